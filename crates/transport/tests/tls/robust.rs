//! Peers that send forbidden bytes cause a failure with the right alert, and use no more memory
//! than others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::ClientConnection;
use rustls::version::{TLS12, TLS13};
use underpass_engine::TlsTransport;
use underpass_transport::tls::{Handshake, HandshakeError, Session};

use crate::rig::{
    Certificate, ClientPeer, Ours, Usable, accept, client_peer, connect, converse,
    converse_with_peer, pair, server_peer, wait,
};

/// Alerts (RFC 8446 6).
const UNEXPECTED_MESSAGE: u8 = 10;
const DECODE_ERROR: u8 = 50;

/// Sends our server these bytes, and returns its failure and the alert that it sends.
fn answer_to(bytes: &[u8]) -> (String, Vec<u8>) {
    let (ours, mut theirs) = pair();
    theirs.write_all(bytes).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let error = accept(&ours, &Certificate::new().acceptor()).unwrap_err();
    drop(ours);
    let mut alert = Vec::new();
    theirs.read_to_end(&mut alert).unwrap();
    (error.to_string(), alert)
}

#[test]
fn malformed_beginnings_are_answered_by_an_alert() {
    let record = |bytes: &[u8]| [&[22, 3, 1, 0, bytes.len() as u8][..], bytes].concat();
    let cases: [(Vec<u8>, u8); 6] = [
        (record(&[99, 0, 0, 1, 0]), UNEXPECTED_MESSAGE),
        (record(&[1, 0, 0, 4, 3, 3, 0, 0]), DECODE_ERROR),
        (record(&[1, 9, 0, 0]), DECODE_ERROR),
        (vec![22, 3, 1, 0xff, 0xff, 1, 0], DECODE_ERROR),
        (vec![22, 9, 9, 0, 1, 0], DECODE_ERROR),
        (vec![23, 3, 3, 0, 1, 0], UNEXPECTED_MESSAGE),
    ];
    for (bytes, alert) in cases {
        let (text, answer) = answer_to(&bytes);
        assert!(!text.contains('\n'));
        let [21, 3, _, 0, 2, 2, description] = answer[..] else { panic!("{bytes:?}: {answer:?}") };
        assert_eq!(description, alert, "{bytes:?}");
    }
    // A client that disconnects in the middle, or at once, gets no alert.
    for bytes in [&[22, 3, 1, 0, 9, 1][..], &[]] {
        let (text, answer) = answer_to(bytes);
        assert_eq!(text, "the peer closed the connection in the middle of the TLS handshake");
        assert!(answer.is_empty());
    }
}

#[test]
fn plain_http_is_left_in_the_socket() {
    let (ours, mut theirs) = pair();
    theirs.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let error = accept(&ours, &Certificate::new().acceptor()).unwrap_err();
    assert!(matches!(error, HandshakeError::PlainHttp));
    let mut request = [0; 99];
    let (_, len) = recv(&ours, &mut request[..], RecvFlags::DONTWAIT).unwrap();
    assert_eq!(&request[..len], b"GET / HTTP/1.1\r\n\r\n");
    // A client that connects to a server without TLS.
    let (ours, mut theirs) = pair();
    theirs.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    let error = connect(&ours, &Certificate::new().connector()).unwrap_err();
    let expected = "the peer does not speak TLS: what it sends is not a TLS record";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_endless_client_hello_is_refused() {
    // One message in records of one byte each, which need more room than the message.
    let (ours, mut theirs) = pair();
    let flood = std::thread::spawn(move || {
        let _ = theirs.write_all(&[22, 3, 1, 0, 4, 1, 0, 0xff, 0xff]);
        for _ in 0..65_000 {
            if theirs.write_all(&[22, 3, 1, 0, 1, 7]).is_err() {
                return;
            }
        }
        let _ = theirs.read_to_end(&mut Vec::new());
    });
    let error = accept(&ours, &Certificate::new().acceptor()).unwrap_err();
    assert!(matches!(error, HandshakeError::Tls(_)), "{error}");
    drop(ours);
    flood.join().unwrap();
}

/// Runs a client that, after a word in each direction, sends arbitrary bytes in place of records;
/// returns our failure and what rustls reports to the client.
fn after_a_word(
    version: &'static rustls::SupportedProtocolVersion,
    act: impl FnOnce(&mut ClientPeer) + Send + 'static,
) -> (Errno, String, Session, TcpStream) {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(certificate.client(&[version]), move |peer| {
        converse(peer);
        act(peer);
        let mut rest = Vec::new();
        let end = peer.read_to_end(&mut rest);
        end.map_or_else(|error| error.to_string(), |_| "close_notify".to_owned())
    });
    let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
    converse_with_peer(&ours);
    let failure = loop {
        match ours.receive(&mut [0; 100]) {
            Ok(0) => panic!("an end"),
            Ok(_) => (),
            Err(error) => break error,
        }
    };
    let Ours(session, socket) = ours;
    assert!(session.has_input());
    assert_eq!(session.peek(socket.as_fd()), Some(false));
    assert_eq!(session.send(socket.as_fd(), b"more", false), Err(failure), "it is over");
    // Our alert and the end of the connection, as a server closes it.
    socket.shutdown(Shutdown::Write).unwrap();
    let alert = peer.join().unwrap();
    (failure, alert, session, socket)
}

#[test]
fn records_that_are_not_the_peers_end_a_session() {
    for version in [&TLS12, &TLS13] {
        let (failure, alert, ..) = after_a_word(version, |peer| {
            peer.sock.write_all(&[23, 3, 3, 0, 40]).unwrap();
            peer.sock.write_all(&[7; 40]).unwrap();
        });
        assert_eq!(failure, Errno::BADMSG, "{version:?}");
        assert_eq!(alert, "received fatal alert: BadRecordMac");
    }
}

#[test]
fn records_that_are_too_long_end_a_session() {
    let (failure, alert, ..) = after_a_word(&TLS13, |peer| {
        peer.sock.write_all(&[23, 3, 3, 0x7f, 0xff]).unwrap();
    });
    assert_eq!(failure, Errno::PROTO);
    assert!(alert.starts_with("received fatal alert: "), "{alert}");
}

#[test]
fn a_truncated_record_is_an_error() {
    let (failure, alert, ..) = after_a_word(&TLS13, |peer| {
        peer.sock.write_all(&[23, 3, 3, 0, 40, 1, 2, 3]).unwrap();
        peer.sock.shutdown(Shutdown::Write).unwrap();
    });
    assert_eq!(failure, Errno::CONNABORTED);
    assert!(!alert.is_empty());
}

#[test]
fn a_peer_may_change_keys_many_times() {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(certificate.client(&[&TLS13]), |peer| {
        for _ in 0..50 {
            converse(peer);
            peer.conn.refresh_traffic_keys().unwrap();
        }
    });
    let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
    for _ in 0..50 {
        converse_with_peer(&ours);
    }
    peer.join().unwrap();
}

#[test]
fn alerts_of_the_peer_are_reported() {
    let certificate = Certificate::new();
    // A client that does not trust us.
    let other = Certificate::with(|params| {
        params.distinguished_name.push(rcgen::DnType::CommonName, "other");
    });
    let (socket, peer) = client_peer(other.client(&[&TLS13]), |peer: &mut ClientPeer| {
        let connection: &mut ClientConnection = &mut peer.conn;
        connection.complete_io(&mut peer.sock).is_err()
    });
    let error = accept(&socket, &certificate.acceptor()).unwrap_err();
    assert_eq!(error.to_string(), "the peer rejected our certificate as untrusted");
    assert!(peer.join().unwrap());
    // A server without an algorithm in common with us.
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = vec![rustls::crypto::aws_lc_rs::kx_group::SECP256R1];
    let config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(certificate.server(&[&TLS13]).cert_resolver);
    let (socket, peer) = server_peer(config.into(), converse);
    // The server requests another key share, and gets it.
    let ours = Ours(connect(&socket, &certificate.connector()).unwrap(), socket);
    converse_with_peer(&ours);
    peer.join().unwrap();
}

#[test]
fn a_handshake_can_move_to_another_thread() {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(certificate.client(&[&TLS13]), converse);
    let mut hands = Handshake::accept(&certificate.acceptor()).unwrap();
    let session = loop {
        let there = socket.try_clone().unwrap();
        let step = std::thread::spawn(move || (hands.advance(there.as_fd()).unwrap(), hands));
        let (progress, back) = step.join().unwrap();
        hands = back;
        match progress {
            underpass_transport::tls::HandshakeProgress::Reads => wait(&socket, PollFlags::IN),
            underpass_transport::tls::HandshakeProgress::Writes => wait(&socket, PollFlags::OUT),
            underpass_transport::tls::HandshakeProgress::Done(session) => break session,
        }
    };
    converse_with_peer(&Ours(session, socket));
    peer.join().unwrap();
}
