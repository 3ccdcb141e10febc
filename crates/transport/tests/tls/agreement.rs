//! What the two sides agree on: version, suite, protocol, and resumption of earlier sessions.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, HandshakeKind, ServerConfig};
use underpass_transport::tls::{EncryptedBy, KernelTlsObstacle};

use crate::rig::{
    Certificate, Ours, Usable, accept, client_peer, connect, converse, converse_with_peer,
    server_peer,
};

const SUITES: [(CipherSuite, &str, &str); 6] = [
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLSv1.3", "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLSv1.2",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLSv1.2",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLSv1.2",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    ),
];

/// Returns a peer's algorithms with one suite only.
fn only(suite: CipherSuite) -> Arc<rustls::crypto::CryptoProvider> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|one| one.suite() == suite);
    Arc::new(provider)
}

#[test]
fn a_server_speaks_each_suite() {
    let certificate = Certificate::new();
    for (suite, version, name) in SUITES {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&certificate.pem));
        let config = ClientConfig::builder_with_provider(only(suite))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (socket, peer) = client_peer(config, converse);
        let ours = Ours(accept(&socket, &certificate.acceptor()).unwrap(), socket);
        converse_with_peer(&ours);
        let facts = ours.0.facts();
        assert_eq!((facts.version, facts.suite, facts.is_resumed), (version, name, false));
        assert_eq!(facts.encrypted_by, EncryptedBy::UserSpace(KernelTlsObstacle::Unwanted));
        peer.join().unwrap();
    }
}

#[test]
fn a_client_speaks_each_suite() {
    let certificate = Certificate::new();
    for (suite, version, name) in SUITES {
        let config = ServerConfig::builder_with_provider(only(suite))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&certificate.server(&[&TLS13]).cert_resolver));
        let (socket, peer) = server_peer(Arc::new(config), converse);
        let ours = Ours(connect(&socket, &certificate.connector()).unwrap(), socket);
        converse_with_peer(&ours);
        let facts = ours.0.facts();
        assert_eq!((facts.version, facts.suite, facts.is_resumed), (version, name, false));
        peer.join().unwrap();
    }
}

fn certificates(pem: &str) -> Vec<rustls::pki_types::CertificateDer<'static>> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().collect()
}

#[test]
fn clients_resume_their_sessions() {
    let certificate = Certificate::new();
    for version in [&TLS12, &TLS13] {
        let acceptor = certificate.acceptor();
        let config = certificate.client(&[version]);
        for round in 0..3 {
            // A server that reloaded its certificate still resumes earlier sessions.
            if round == 2 {
                acceptor.identities().set_default(certificate.identity());
            }
            let (socket, peer) = client_peer(config.clone(), |peer| {
                converse(peer);
                peer.conn.handshake_kind()
            });
            let ours = Ours(accept(&socket, &acceptor).unwrap(), socket);
            converse_with_peer(&ours);
            assert_eq!(ours.0.facts().is_resumed, round > 0);
            let resumed = Some(HandshakeKind::Resumed);
            assert_eq!(peer.join().unwrap() == resumed, round > 0, "{version:?}");
        }
    }
}

#[test]
fn our_client_resumes_its_session() {
    let certificate = Certificate::new();
    for version in [&TLS12, &TLS13] {
        let connector = certificate.connector();
        let config = Arc::new(certificate.server(&[version]));
        for round in 0..3 {
            let (socket, peer) = server_peer(Arc::clone(&config), converse);
            let ours = Ours(connect(&socket, &connector).unwrap(), socket);
            converse_with_peer(&ours);
            assert_eq!(ours.0.facts().is_resumed, round > 0, "{version:?}");
            peer.join().unwrap();
        }
    }
}

#[test]
fn alpn_selects_http_for_clients_that_offer_it() {
    let certificate = Certificate::new();
    let asked = [
        ("", None),
        ("h2 http/1.1", Some("http/1.1")),
        ("http/1.0", Some("http/1.0")),
        ("h2", None),
    ];
    for (protocols, agreed) in asked {
        let mut config = certificate.client(&[&TLS13]);
        let protocols = protocols.split_whitespace();
        config.alpn_protocols = protocols.map(|name| name.as_bytes().to_vec()).collect();
        let is_refused = config.alpn_protocols.len() == 1 && agreed.is_none();
        let (socket, peer) = client_peer(config, move |peer| {
            if is_refused {
                let error = peer.conn.complete_io(&mut peer.sock).unwrap_err();
                assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
                return None;
            }
            converse(peer);
            peer.conn.alpn_protocol().map(<[u8]>::to_vec)
        });
        match accept(&socket, &certificate.acceptor()) {
            Ok(session) => converse_with_peer(&Ours(session, socket)),
            Err(error) => {
                assert!(is_refused);
                let expected = "the peer does not offer HTTP/1.1 (ALPN)";
                assert_eq!(error.to_string(), expected);
            }
        }
        assert_eq!(peer.join().unwrap().as_deref(), agreed.map(str::as_bytes));
    }
    // A stream is not HTTP and requests no protocol.
    for (connector, agreed) in [
        (certificate.connector(), Some(b"http/1.1".to_vec())),
        (certificate.connector().for_streams(), None),
    ] {
        let mut config = certificate.server(&[&TLS13]);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let (socket, peer) = server_peer(Arc::new(config), |peer| {
            converse(peer);
            peer.conn.alpn_protocol().map(<[u8]>::to_vec)
        });
        let ours = Ours(connect(&socket, &connector).unwrap(), socket);
        converse_with_peer(&ours);
        assert_eq!(peer.join().unwrap(), agreed);
    }
}
