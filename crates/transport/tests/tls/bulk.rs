//! Large amounts of data arrive unchanged through small buffers and with slow readers; and an end
//! is only an end if the peer announces it.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustls::version::{TLS12, TLS13};
use underpass_engine::TlsTransport;

use crate::rig::{
    Certificate, Ours, Usable, accept, client_peer, connect, digest, sample, server_peer,
};

const LEN: usize = 3 << 20;

#[test]
fn a_slow_reader_gets_every_byte_once() {
    let certificate = Certificate::new();
    for version in [&TLS12, &TLS13] {
        let (socket, peer) = client_peer(certificate.client(&[version]), |peer| {
            set_socket_recv_buffer_size(&peer.sock, 16_384).unwrap();
            let (mut all, mut buffer) = (Vec::new(), [0; 7919]);
            loop {
                match peer.read(&mut buffer).unwrap() {
                    0 => return digest(&all),
                    len => all.extend_from_slice(&buffer[..len]),
                }
                if all.len() % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        set_socket_send_buffer_size(&socket, 16_384).unwrap();
        let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
        let bytes = sample(LEN);
        // Pieces of all sizes, so that their ends meet those of records.
        let mut rest = bytes.as_slice();
        for step in (1..).map(|turn| turn * 7057 % 150_001) {
            let (piece, behind) = rest.split_at(step.min(rest.len()));
            ours.send(piece).unwrap();
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        ours.close();
        assert_eq!(peer.join().unwrap(), digest(&bytes), "{version:?}");
    }
}

#[test]
fn everything_is_received_whatever_the_buffer() {
    let certificate = Certificate::new();
    for (version, step) in [(&TLS12, 1000), (&TLS13, 1), (&TLS13, 16_385), (&TLS13, 1 << 20)] {
        let len = if step == 1 { 50_000 } else { LEN };
        let config = Arc::new(certificate.server(&[version]));
        let (socket, peer) = server_peer(config, move |peer| {
            peer.write_all(&sample(len)).unwrap();
            peer.conn.send_close_notify();
            peer.flush().unwrap();
        });
        let ours = Ours(connect(&socket, &certificate.connector()).unwrap(), socket);
        assert_eq!(digest(&ours.receive_all(step).unwrap()), digest(&sample(len)));
        assert_eq!(ours.receive(&mut [0; 9]), Ok(0), "an end stays an end");
        peer.join().unwrap();
    }
}

#[test]
fn tls_moves_bytes_in_both_directions_at_once() {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(certificate.client(&[&TLS13]), |peer| {
        let mut back = vec![0; LEN];
        for (sent, got) in sample(LEN).chunks(30_000).zip(back.chunks_mut(30_000)) {
            peer.write_all(sent).unwrap();
            peer.read_exact(got).unwrap();
        }
        digest(&back)
    });
    let session = accept(&socket, &certificate.acceptor()).unwrap();
    let ours = Ours(session, socket);
    let mut buffer = [0; 10_000];
    let mut left = LEN;
    while left > 0 {
        let len = ours.receive(&mut buffer).unwrap();
        ours.send(&buffer[..len]).unwrap();
        left -= len;
    }
    assert_eq!(peer.join().unwrap(), digest(&sample(LEN)));
}

#[test]
fn a_connection_that_is_cut_is_not_a_complete_body() {
    let certificate = Certificate::new();
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(certificate.server(&[version]));
        let (socket, peer) = server_peer(config, |peer| peer.write_all(b"a part").unwrap());
        let ours = Ours(connect(&socket, &certificate.connector()).unwrap(), socket);
        let mut buffer = [0; 6];
        assert_eq!(ours.receive(&mut buffer), Ok(6));
        peer.join().unwrap();
        for _ in 0..2 {
            assert_eq!(ours.receive(&mut buffer), Err(Errno::CONNABORTED));
        }
    }
}

#[test]
fn the_peer_is_told_of_the_end() {
    let certificate = Certificate::new();
    for version in [&TLS12, &TLS13] {
        let (socket, peer) = client_peer(certificate.client(&[version]), |peer| {
            let mut all = Vec::new();
            // rustls returns UnexpectedEof for an unannounced end.
            peer.read_to_end(&mut all).map(|_| all)
        });
        let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
        ours.send(b"all").unwrap();
        ours.close();
        assert_eq!(ours.0.send(ours.1.as_fd(), b"more", false), Err(Errno::PIPE));
        drop(ours);
        assert_eq!(peer.join().unwrap().unwrap(), b"all");
    }
}

#[test]
fn a_quiet_session_can_be_used_again() {
    let certificate = Certificate::new();
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let config = Arc::new(certificate.server(&[&TLS13]));
    let (socket, peer) = server_peer(config, move |peer| {
        peer.conn.complete_io(&mut peer.sock).unwrap(); // with tickets, which are no data
        told.recv().unwrap();
        peer.write_all(b"unasked").unwrap();
        told.recv().unwrap();
    });
    let session = connect(&socket, &certificate.connector()).unwrap();
    assert!(!session.has_input());
    assert!(session.is_quiet(socket.as_fd()));
    tell.send(()).unwrap();
    let ours = Ours(session, socket);
    while ours.0.is_quiet(ours.1.as_fd()) {
        crate::rig::wait(&ours.1, rustix::event::PollFlags::IN);
    }
    assert_eq!(ours.0.peek(ours.1.as_fd()), Some(true));
    assert!(ours.0.has_input());
    let mut buffer = [0; 9];
    assert_eq!(ours.receive(&mut buffer), Ok(7));
    assert_eq!(&buffer[..7], b"unasked");
    tell.send(()).unwrap();
    peer.join().unwrap();
}
