//! TLS 1.3 peers whose records are validly encrypted but have forbidden contents: each gets an
//! alert with the reason why the connection ends.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustls::ClientConfig;
use rustls::version::TLS13;

use crate::disguise;
use crate::rig::{Certificate, Ours, Usable, accept, client_peer, converse, converse_with_peer};

/// Types and contents of records.
type Records = &'static [(u8, &'static [u8])];

/// Returns the configuration of a peer that can disguise records.
fn client(certificate: &Certificate) -> ClientConfig {
    certificate.client_by(Arc::new(disguise::provider()), &[&TLS13])
}

/// Sends our server these records, each a type and a content; returns its failure, if there is one,
/// and how the connection ended for the client.
fn answer_to(records: Records) -> (Option<Errno>, String) {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(client(&certificate), move |peer| {
        converse(peer);
        for (kind, content) in records {
            peer.write_all(&disguise::record(*kind, content)).unwrap();
            peer.flush().unwrap();
        }
        peer.conn.send_close_notify();
        let _ = peer.flush();
        let end = peer.read_to_end(&mut Vec::new());
        end.map_or_else(|error| error.to_string(), |_| "close_notify".to_owned())
    });
    let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
    converse_with_peer(&ours);
    let failure = loop {
        match ours.receive(&mut [0; 100]) {
            Ok(0) => break None,
            Ok(_) => (),
            Err(error) => break Some(error),
        }
    };
    let Ours(session, socket) = ours;
    session.close(socket.as_fd());
    socket.shutdown(Shutdown::Write).unwrap();
    (failure, peer.join().unwrap())
}

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

#[test]
fn contents_that_no_peer_may_send_are_answered_by_an_alert() {
    let cases: [(&str, Records); 7] = [
        ("no type at all", &[(0, b"")]),
        ("no type behind zeros", &[(0, &[0; 40])]),
        ("data within a message", &[(HANDSHAKE, &[24, 0, 0]), (DATA, b"x"), (HANDSHAKE, &[1, 0])]),
        (
            "empty data within a message",
            &[(HANDSHAKE, &[24, 0]), (DATA, b""), (HANDSHAKE, &[0, 1, 0])],
        ),
        ("an alert within a message", &[(HANDSHAKE, &[24, 0, 0]), (21, &[1, 0])]),
        ("an empty part of a message", &[(HANDSHAKE, b"")]),
        ("keys of a record that has another message", &[(HANDSHAKE, &[24, 0, 0, 1, 0, 24])]),
    ];
    for (what, records) in cases {
        let (failure, alert) = answer_to(records);
        assert_eq!(failure, Some(Errno::PROTO), "{what}");
        assert_eq!(alert, "received fatal alert: UnexpectedMessage", "{what}");
    }
}

#[test]
fn a_key_update_in_pieces_is_understood() {
    // The peer does not actually change its key, so its next record cannot be read: that shows that
    // the message was understood.
    let (failure, alert) =
        answer_to(&[(HANDSHAKE, &[24, 0]), (HANDSHAKE, &[0, 1]), (HANDSHAKE, &[0])]);
    assert_eq!(failure, Some(Errno::BADMSG));
    assert_eq!(alert, "received fatal alert: BadRecordMac");
}
