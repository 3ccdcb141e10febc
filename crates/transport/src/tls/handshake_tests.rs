//! A handshake that may hand its keys to the kernel leaves later bytes in the socket.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use underpass_engine::TlsTransport;
use underpass_engine::ktls::Support;

use super::kernel_offer::KernelOffer;
use super::{
    Acceptor, Connector, EncryptedBy, Handshake, HandshakeProgress, Identity, KernelTlsObstacle,
    Session, Trust,
};

/// Returns a kernel offer whose TLS module supports no cipher, which is found only at the end.
fn claimed_offer() -> KernelOffer {
    KernelOffer::of(Some(Support { module: Ok(()), ..Support::none(Errno::INVAL) }))
}

/// Returns a kernel offer that fails when it is used: a Unix socket cannot have TLS.
fn false_offer() -> KernelOffer {
    let mut support = Support { module: Ok(()), ..Support::none(Errno::INVAL) };
    support.suites.as_flattened_mut().fill(Ok(()));
    KernelOffer::of(Some(support))
}

fn both() -> (Acceptor, Connector) {
    let identity = Identity::self_signed(&["a".to_owned()]).unwrap();
    let trust = Trust { insecure: true, ..Trust::default() };
    (Acceptor::new(identity, false).unwrap(), Connector::new(&trust).unwrap())
}

/// Alternates between both sides until they are done, and returns what was left in the server's
/// socket when its handshake was done. The client sends a word as soon as it may.
fn complete_handshake(
    (client_end, server_end): (&UnixStream, &UnixStream),
    connector: &Connector,
    acceptor: &Acceptor,
) -> (Session, Session, Vec<u8>) {
    let mut client = Handshake::connect(connector, "a").unwrap();
    let mut server = Handshake::accept(acceptor).unwrap();
    let (mut asked, mut answered) = (None, None);
    let mut left = vec![0; 100];
    for _ in 0..10 {
        if asked.is_none()
            && let HandshakeProgress::Done(session) = client.advance(client_end.as_fd()).unwrap()
        {
            assert_eq!(session.send(client_end.as_fd(), b"word", false), Ok(4));
            asked = Some(session);
        }
        if answered.is_none()
            && let HandshakeProgress::Done(session) = server.advance(server_end.as_fd()).unwrap()
        {
            let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
            let len = recv(server_end, &mut left[..], flags).map_or(0, |(len, _)| len);
            left.truncate(len);
            answered = Some(session);
        }
        if asked.is_some() && answered.is_some() {
            break;
        }
    }
    (asked.unwrap(), answered.unwrap(), left)
}

#[test]
fn bytes_after_a_handshake_stay_in_the_socket() {
    let (acceptor, connector) = both();
    for (offer, why) in [
        (claimed_offer(), KernelTlsObstacle::Version),
        (false_offer(), KernelTlsObstacle::Refused(Errno::OPNOTSUPP)),
    ] {
        let ends = UnixStream::pair().unwrap();
        let acceptor = acceptor.clone().with(offer);
        let (_client, server, left) = complete_handshake((&ends.0, &ends.1), &connector, &acceptor);
        assert_eq!(server.facts().encrypted_by, EncryptedBy::UserSpace(why));
        // The word as one record: header, word and type, and 16 bytes of authentication tag.
        assert_eq!(left.len(), 5 + 4 + 1 + 16);
        assert_eq!(left[..5], [23, 3, 3, 0, 21]);
        let mut word = [0; 9];
        assert_eq!(server.receive(ends.1.as_fd(), &mut word), Ok(4));
        assert_eq!(&word[..4], b"word");
    }
}

#[test]
fn user_space_tls_reads_all_that_has_arrived() {
    let (acceptor, connector) = both();
    let ends = UnixStream::pair().unwrap();
    let (_client, server, left) = complete_handshake((&ends.0, &ends.1), &connector, &acceptor);
    assert!(left.is_empty());
    assert!(server.has_input());
    assert_eq!(server.receive(ends.1.as_fd(), &mut [0; 9]), Ok(4));
}

#[test]
fn a_client_leaves_tickets_in_the_socket() {
    let (acceptor, connector) = both();
    let ends = UnixStream::pair().unwrap();
    let connector = connector.with(claimed_offer());
    let (client, server, _) = complete_handshake((&ends.0, &ends.1), &connector, &acceptor);
    assert_eq!(server.send(ends.1.as_fd(), b"back", false), Ok(4));
    assert!(!client.has_input());
    let mut word = [0; 9];
    assert_eq!(client.receive(ends.0.as_fd(), &mut word), Ok(4));
    assert_eq!(&word[..4], b"back");
}

#[test]
fn a_handshake_may_arrive_byte_by_byte() {
    let (acceptor, connector) = both();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut client = Handshake::connect(&connector, "a").unwrap();
    assert!(matches!(client.advance(ours.as_fd()), Ok(HandshakeProgress::Reads)));
    let mut hello = Vec::new();
    let _ = theirs.read_to_end(&mut hello);
    for offer in [KernelOffer::of(None), claimed_offer()] {
        let (near, far) = UnixStream::pair().unwrap();
        let mut server = Handshake::accept(&acceptor.clone().with(offer)).unwrap();
        let mut answer = [0; 5];
        for byte in &hello {
            assert_eq!(rustix::io::write(&far, &[*byte]), Ok(1));
            assert_eq!(recv(&far, &mut answer, RecvFlags::DONTWAIT).unwrap_err(), Errno::AGAIN);
            assert!(matches!(server.advance(near.as_fd()), Ok(HandshakeProgress::Reads)));
            // Bytes known to belong to the handshake do not stay in the socket: no later read would
            // wait for the rest.
            let held = recv(&near, &mut answer, RecvFlags::DONTWAIT | RecvFlags::PEEK);
            assert_eq!(held.unwrap_err(), Errno::AGAIN);
        }
        recv(&far, &mut answer, RecvFlags::DONTWAIT).unwrap();
        assert_eq!(answer[..3], [22, 3, 3], "the server has answered");
    }
}
