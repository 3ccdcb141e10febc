//! Peers that send something while bytes are sent to them.

use std::fs::File;
use std::io::{Read, Write};
use std::thread;

use crate::rig::scratch::{Scratch, assert_reset, pattern, tcp_pair};
use underpass_engine::{Error, Options, PeerMessage, Sink, Source, Transfer};

const LEN: usize = 16 << 20;

/// Reads a little as the peer, sends a word, and reads the rest.
fn talkative(mut peer: std::net::TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 1000];
    peer.read_exact(&mut bytes)?;
    peer.write_all(b"word")?;
    peer.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[test]
fn a_listener_that_continues_does_not_end_the_transfer() {
    let scratch = Scratch::new();
    let source = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, peer) = tcp_pair();
    let reader = thread::spawn(move || talkative(peer));
    let mut heard = Vec::new();
    let mut ear = sender.try_clone().unwrap();
    let mut listener = || {
        let mut word = [0; 16];
        let len = ear.read(&mut word).unwrap();
        heard.extend_from_slice(&word[..len]);
        PeerMessage::Continue
    };
    let report = Transfer::new(Source::of(&source).unwrap(), Sink::socket(&sender))
        .options(Options::default().listener(&mut listener))
        .run()
        .unwrap();
    assert_eq!(report.bytes(), LEN as u64);
    assert_eq!(heard, b"word");
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(reader.join().unwrap().unwrap() == pattern(LEN));
}

#[test]
fn a_listener_that_stops_listening_is_not_called_again() {
    let scratch = Scratch::new();
    let source = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, peer) = tcp_pair();
    let reader = thread::spawn(move || talkative(peer));
    let mut times = 0;
    let report = Transfer::new(Source::of(&source).unwrap(), Sink::socket(&sender))
        .options(Options::default().listener(|| {
            times += 1;
            PeerMessage::StopListening
        }))
        .run()
        .unwrap();
    assert_eq!((report.bytes(), times), (LEN as u64, 1));
    sender.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(reader.join().unwrap().unwrap() == pattern(LEN));
}

#[test]
fn a_peer_that_stops_reading_ends_the_transfer_with_a_reset() {
    let scratch = Scratch::new();
    let source = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, mut peer) = tcp_pair();
    let (tell, gone) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        peer.read_exact(&mut [0; 1000]).unwrap();
        peer.write_all(b"word").unwrap();
        gone.recv().unwrap();
        peer.read_to_end(&mut Vec::new())
    });
    let error = Transfer::new(Source::of(&source).unwrap(), Sink::socket(&sender))
        .options(Options::default().listener(|| PeerMessage::Abort))
        .run()
        .unwrap_err();
    assert!(matches!(error, Error::Answered { .. }), "{error:?}");
    assert!((1..LEN as u64).contains(&error.bytes()));
    drop(sender);
    tell.send(()).unwrap();
    assert_reset(&reader.join().unwrap());
}

#[test]
fn the_peer_is_listened_to_while_the_source_is_idle() {
    let (out, _into) = std::io::pipe().unwrap();
    let (sender, mut peer) = tcp_pair();
    peer.write_all(b"word").unwrap();
    let error = Transfer::new(Source::of(&out).unwrap(), Sink::socket(&sender))
        .options(Options::default().listener(|| PeerMessage::Abort))
        .run()
        .unwrap_err();
    assert!(matches!(error, Error::Answered { .. }), "{error:?}");
    assert_eq!(error.to_string(), "the peer closed its end after 0 bytes");
}
