//! When a transfer checks the file for the last time, and what it holds back until then.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::scratch::{Scratch, pattern, tcp_pair};
use rustix::fs::{Advice, fadvise};
use underpass_engine::{
    Chain, Confirm, Error, Integrity, Mechanism, Options, Sink, Source, Status, Tally, Transfer,
    Version, Wait, is_absent, is_resident,
};

/// More than one buffer, less than the buffers of a connection hold.
const LEN: usize = 100_000;

fn options(confirm: Confirm) -> Options<'static> {
    Options::default().integrity(Integrity::Detect).confirm(confirm)
}

/// Advances a transfer until it is done or waits for something other than the sink.
fn advance(transfer: &mut Transfer<'_, &File, &TcpStream>) -> Result<Status, Error> {
    loop {
        match transfer.advance()? {
            Status::Waiting(Wait::Sink) | Status::Yielded => {}
            status => return Ok(status),
        }
    }
}

/// Advances the transfer until it is done or has failed while the peer reads all that is sent, and
/// returns what the peer has read.
fn exchange(
    transfer: &mut Transfer<'_, &File, &TcpStream>,
    receiver: &mut TcpStream,
) -> Result<Vec<u8>, Error> {
    let mut got = Vec::new();
    while advance(transfer)? != Status::Done {
        let from = got.len();
        got.resize(usize::try_from(transfer.report().bytes()).unwrap(), 0);
        receiver.read_exact(&mut got[from..]).unwrap();
    }
    Ok(got)
}

#[test]
fn the_last_bytes_are_held_back_until_the_peer_has_all_others() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let chain = Chain::new().bytes(&b"head"[..]).source(Source::of(&file).unwrap());
    let mut transfer = Transfer::new(chain, Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::BeforeEnd));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
    // A peer that acknowledges by itself needs no byte that triggers it.
    assert_eq!(transfer.report().bytes(), (4 + LEN - 3) as u64);
    for _ in 0..10 {
        assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
        assert!(transfer.report().bytes() < (4 + LEN) as u64);
    }
    let mut got = exchange(&mut transfer, &mut receiver).unwrap();
    let last = 4 + LEN - got.len();
    assert!((1..=3).contains(&last), "{last} bytes were held back");
    got.resize(4 + LEN, 0);
    receiver.read_exact(&mut got[4 + LEN - last..]).unwrap();
    assert_eq!(got, [b"head", &pattern(LEN)[..]].concat());
    assert_eq!(transfer.report().user_space_bytes(), 0);
}

#[test]
fn a_peer_that_counts_bytes_never_gets_the_last_one_of_a_changed_file() {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::BeforeEnd));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
    fs::write(&path, vec![7; LEN]).unwrap();
    let error = exchange(&mut transfer, &mut receiver).unwrap_err();
    assert!(matches!(error, Error::SourceChanged { .. }), "{error}");
    drop(sender);
    let end = receiver.read(&mut [0; 2]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_peer_that_counts_bytes_never_gets_the_last_one_once_a_lease_has_expired() {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
    transfer = transfer
        .options(Options::default().integrity(Integrity::Lease).confirm(Confirm::BeforeEnd));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
    let writer = std::thread::spawn(move || fs::write(&path, vec![7; LEN]).unwrap());
    let error = loop {
        match advance(&mut transfer) {
            Ok(status) => assert_eq!(status, Status::Waiting(Wait::Acknowledgement)),
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(matches!(error, Error::SourceChanged { level: Integrity::Lease, .. }), "{error}");
    assert!(error.bytes() < LEN as u64);
    writer.join().unwrap();
    drop(sender);
    let end = receiver.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_lease_is_given_back_once_the_last_bytes_are_copied() {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
    transfer = transfer
        .options(Options::default().integrity(Integrity::Lease).confirm(Confirm::BeforeEnd));
    let mut got = exchange(&mut transfer, &mut receiver).unwrap();
    // The writer does not wait, and the peer does not read these bytes.
    File::options().write(true).open(&path).unwrap().write_all_at(&[0; LEN], 0).unwrap();
    let read = got.len();
    got.resize(LEN, 0);
    receiver.read_exact(&mut got[read..]).unwrap();
    assert_eq!(got, pattern(LEN));
    assert_eq!(transfer.report().integrity(), Integrity::Lease);
}

#[test]
fn copied_last_bytes_belong_to_the_checked_version() {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::BeforeCopiedEnd));
    let mut got = exchange(&mut transfer, &mut receiver).unwrap();
    // Sent by reference, they would be the new ones.
    File::options().write(true).open(&path).unwrap().write_all_at(&[0; LEN], 0).unwrap();
    let last = LEN - got.len();
    got.resize(LEN, 0);
    receiver.read_exact(&mut got[LEN - last..]).unwrap();
    assert_eq!(got, pattern(LEN));
    let report = transfer.report();
    assert_eq!(report.bytes(), LEN as u64);
    assert_eq!(report.user_space_bytes(), 2 * last as u64);
    // One call has read them, another has sent them.
    let copied = Tally { bytes: last as u64, calls: 2 };
    assert_eq!((report.by(Mechanism::ReadWrite), report.memory()), (copied, Tally::default()));
    assert_eq!(report.by(Mechanism::Sendfile).bytes, (LEN - last) as u64);
}

#[test]
fn a_delayed_acknowledgement_is_triggered() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (mut sender, mut receiver) = tcp_pair();
    sender.set_nodelay(true).unwrap();
    // Requests make the peer delay its acknowledgements, to send them with a response.
    let peer = std::thread::spawn(move || {
        let mut got = vec![0; LEN];
        while receiver.write_all(b"?").is_ok() && receiver.read_exact(&mut got).is_ok() {
            assert_eq!(got, pattern(LEN));
        }
    });
    // On a busy machine the acknowledgement may arrive without a trigger many times.
    let deadline = Instant::now() + Duration::from_secs(30);
    let is_nudged = std::iter::repeat(()).take_while(|()| Instant::now() < deadline).any(|()| {
        sender.read_exact(&mut [0]).unwrap();
        let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
        transfer = transfer.options(options(Confirm::BeforeEnd));
        let mut sent = 0;
        while transfer.advance().unwrap() != Status::Done {
            sent = transfer.report().bytes();
        }
        sent > LEN as u64 - 3
    });
    assert!(is_nudged);
    drop(sender);
    peer.join().unwrap();
}

#[test]
fn a_change_after_the_end_was_released_fails_nothing() {
    let scratch = Scratch::new();
    let path = scratch.file("source", LEN);
    let file = File::open(&path).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let chain = Chain::new().source(Source::of(&file).unwrap()).bytes(&b"trailer"[..]);
    let mut transfer =
        Transfer::new(chain, Sink::socket(&sender)).options(options(Confirm::BeforeEnd));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
    receiver.read_exact(&mut vec![0; LEN]).unwrap();
    while advance(&mut transfer).unwrap() != Status::Done {}
    fs::write(&path, b"other").unwrap();
    assert_eq!(transfer.advance().unwrap(), Status::Done);
    receiver.read_exact(&mut [0; 7]).unwrap();
}

#[test]
fn memory_after_the_last_file_is_held_back() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, mut receiver) = tcp_pair();
    let chain = Chain::new().source(Source::of(&file).unwrap()).bytes(&b"trailer"[..]);
    let mut transfer = Transfer::new(chain, Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::BeforeEnd));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Waiting(Wait::Acknowledgement));
    assert_eq!(transfer.report().bytes(), LEN as u64);
    receiver.read_exact(&mut vec![0; LEN]).unwrap();
    while advance(&mut transfer).unwrap() != Status::Done {}
    let mut trailer = [0; 7];
    receiver.read_exact(&mut trailer).unwrap();
    assert_eq!(&trailer, b"trailer");
}

#[test]
fn weaker_confirmation_does_not_wait_for_the_peer() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", LEN)).unwrap();
    let (sender, _receiver) = tcp_pair();
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::HandedOver));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Done);
}

#[test]
fn a_small_file_is_not_sent_at_all_if_it_is_not_in_the_promised_version() {
    let shrink: fn(&Path) = |path| {
        File::options().write(true).open(path).unwrap().set_len(500).unwrap();
    };
    let rewrite: fn(&Path) = |path| fs::write(path, vec![7; 1000]).unwrap();
    let replace: fn(&Path) = |path| {
        fs::write(path.with_file_name("new"), b"new").unwrap();
        fs::rename(path.with_file_name("new"), path).unwrap();
    };
    // A file that was replaced still exists, which is enough unless it must be in place.
    for (change, is_in_place, is_sent) in [
        (shrink, false, false),
        (rewrite, false, false),
        (replace, true, false),
        (replace, false, true),
    ] {
        let scratch = Scratch::new();
        let path = scratch.file("source", 1000);
        let file = File::open(&path).unwrap();
        let promised = Version::of(&file).unwrap();
        change(&path);
        let (sender, _receiver) = tcp_pair();
        let source = Source::range(&file, 0, 1000).version(promised);
        let source = if is_in_place { source.in_place() } else { source };
        let chain = Chain::new().bytes(&b"head"[..]).source(source);
        let mut transfer = Transfer::new(chain, Sink::socket(&sender));
        transfer = transfer.options(options(Confirm::HandedOver));
        match advance(&mut transfer) {
            Ok(status) => assert_eq!((status, is_sent), (Status::Done, true)),
            Err(error) => {
                assert!(is_in_place || matches!(error, Error::SourceChanged { .. }), "{error}");
                assert_eq!((error.bytes(), is_sent), (0, false));
            }
        }
    }
}

#[test]
fn copies_need_no_acknowledgement() {
    let scratch = Scratch::new();
    let file = File::open(scratch.file("source", 1000)).unwrap();
    let (sender, _receiver) = tcp_pair();
    let chain = Chain::new().bytes(&b"head"[..]).source(Source::of(&file).unwrap());
    let mut transfer = Transfer::new(chain, Sink::socket(&sender));
    transfer = transfer.options(options(Confirm::Delivered));
    assert_eq!(advance(&mut transfer).unwrap(), Status::Done);
    assert_eq!(transfer.report().user_space_bytes(), 2000);
}

#[test]
fn evicted_pages_are_distinguished_from_resident_ones() {
    let scratch = Scratch::new();
    let file = File::options().read(true).write(true).open(scratch.file("source", LEN)).unwrap();
    file.sync_all().unwrap();
    assert!(is_resident(&file, 0, LEN as u64));
    assert!(!is_absent(&file, 0, LEN as u64));
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    if is_resident(&file, 0, 1) {
        return underpass_testkit::skip("this file system keeps its files in memory");
    }
    assert!(is_absent(&file, 50_000, 4096));
    assert!(!is_resident(&file, 50_000, 4096));
    assert!(is_resident(&file, 0, 0), "nothing is always there");
}
