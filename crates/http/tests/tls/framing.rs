//! Peers of TLS 1.3 whose records are encrypted as they should be, with contents that no peer may
//! send: each is told by an alert why the connection ends.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustls::crypto::CryptoProvider;
use rustls::crypto::cipher::MessageDecrypter;
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageEncrypter, OutboundChunks, OutboundOpaqueMessage, OutboundPlainMessage,
    Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ConnectionTrafficSecrets, ContentType, Error, RootCertStore,
    SupportedCipherSuite, Tls13CipherSuite,
};

use crate::rig::{Certificate, Ours, accept, client_peer, converse, converse_with_peer, provider};

/// Data that begins with this is sent as a record of the type in the next byte.
const DISGUISE: &[u8] = b"as type ";

/// An algorithm whose sender can be told the type of a record.
struct Disguising(&'static dyn Tls13AeadAlgorithm);

impl Tls13AeadAlgorithm for Disguising {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(DisguisingEncrypter(self.0.encrypter(key, iv)))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        self.0.decrypter(key, iv)
    }

    fn key_len(&self) -> usize {
        self.0.key_len()
    }

    fn extract_keys(
        &self,
        key: AeadKey,
        iv: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        self.0.extract_keys(key, iv)
    }
}

struct DisguisingEncrypter(Box<dyn MessageEncrypter>);

impl MessageEncrypter for DisguisingEncrypter {
    fn encrypt(
        &mut self,
        message: OutboundPlainMessage<'_>,
        sequence: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let bytes = message.payload.to_vec();
        let Some((kind, content)) = bytes.strip_prefix(DISGUISE).and_then(<[u8]>::split_first)
        else {
            return self.0.encrypt(message, sequence);
        };
        let disguised = OutboundPlainMessage {
            typ: ContentType::from(*kind),
            version: message.version,
            payload: OutboundChunks::Single(content),
        };
        self.0.encrypt(disguised, sequence)
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        self.0.encrypted_payload_len(payload_len)
    }
}

/// A peer that can disguise records.
fn client(certificate: &Certificate) -> ClientConfig {
    let usual = provider();
    let suite = usual.cipher_suites.iter().find_map(SupportedCipherSuite::tls13).unwrap();
    let disguising: &'static Disguising = Box::leak(Box::new(Disguising(suite.aead_alg)));
    let suite: &'static Tls13CipherSuite = Box::leak(Box::new(Tls13CipherSuite {
        common: rustls::crypto::CipherSuiteCommon {
            suite: suite.common.suite,
            hash_provider: suite.common.hash_provider,
            confidentiality_limit: suite.common.confidentiality_limit,
        },
        hkdf_provider: suite.hkdf_provider,
        aead_alg: disguising,
        quic: None,
    }));
    let provider = CryptoProvider {
        cipher_suites: vec![SupportedCipherSuite::Tls13(suite)],
        ..CryptoProvider::clone(&usual)
    };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.pem.as_bytes()).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// What our server does with these records, each a type and a content: its failure, if it is one,
/// and how the connection ended for the client.
fn answer_to(records: &'static [(u8, &'static [u8])]) -> (Option<Errno>, String) {
    let certificate = Certificate::new();
    let (socket, peer) = client_peer(client(&certificate), move |peer| {
        converse(peer);
        for (kind, content) in records {
            peer.write_all(&[DISGUISE, &[*kind], content].concat()).unwrap();
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
    let cases: [(&str, &[(u8, &[u8])]); 7] = [
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
        let (failure, told) = answer_to(records);
        assert_eq!(failure, Some(Errno::PROTO), "{what}");
        assert_eq!(told, "received fatal alert: UnexpectedMessage", "{what}");
    }
}

#[test]
fn new_keys_in_pieces_are_new_keys() {
    // The peer does not change its key, so that what it says next cannot be read: that is how it
    // shows that the message was understood.
    let (failure, told) =
        answer_to(&[(HANDSHAKE, &[24, 0]), (HANDSHAKE, &[0, 1]), (HANDSHAKE, &[0])]);
    assert_eq!(failure, Some(Errno::BADMSG));
    assert_eq!(told, "received fatal alert: BadRecordMac");
}
