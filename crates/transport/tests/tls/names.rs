//! Servers with several names, and the challenges of certificate authorities for them.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use underpass_transport::tls::{Acceptor, HandshakeError, Identities};

use crate::rig::{Certificate, Usable, accept, client_peer, provider};

#[test]
fn a_client_gets_the_certificate_of_the_name_that_it_asks_for() {
    let (asked, other) = (Certificate::new(), Certificate::new());
    let identities = Identities::default();
    let acceptor = Acceptor::with_identities(identities.clone(), false).unwrap();
    let believes = |certificate: &Certificate| {
        let config = certificate.client(&[&TLS13]);
        let (socket, peer) = client_peer(config, |peer| peer.conn.complete_io(&mut peer.sock));
        (accept(&socket, &acceptor).is_ok(), peer.join().unwrap().is_ok())
    };
    assert_eq!(believes(&asked), (false, false), "there is no certificate yet");
    identities.set_default(other.identity());
    assert_eq!(believes(&other), (true, true));
    identities.set("LocalHost", asked.identity());
    assert_eq!(believes(&asked), (true, true));
    assert_eq!(believes(&other), (false, false));
    identities.set("a.example", other.identity());
    assert_eq!(believes(&asked), (true, true));
    let names: Vec<_> = identities.expiries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a.example", "localhost"]);
}

#[test]
fn a_challenge_is_answered_while_it_is_pending_and_only_to_a_certificate_authority() {
    let certificate = Certificate::new();
    let acceptor = certificate.acceptor().for_challenges();
    let identities = acceptor.identities();
    for version in [&TLS12, &TLS13] {
        // Returns what the client sees: the protocol, and the certificate.
        let meet = |protocols: &[&[u8]]| {
            let mut config = ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[version])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptEveryCertificate(provider())))
                .with_no_client_auth();
            config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
            let (socket, peer) = client_peer(config, |peer| {
                peer.conn.complete_io(&mut peer.sock).ok()?;
                let leaf = peer.conn.peer_certificates()?.first()?.clone();
                Some((peer.conn.alpn_protocol()?.to_vec(), leaf))
            });
            let accepted = accept(&socket, &acceptor);
            (accepted, peer.join().unwrap())
        };
        let (acme, http): (&[u8], &[u8]) = (b"acme-tls/1", b"http/1.1");
        let (refused, seen) = meet(&[acme]);
        assert!(matches!(refused, Err(HandshakeError::Tls(_))), "{refused:?}");
        assert_eq!(seen, None);
        let digest = [7; 32];
        identities.answer_over_tls("LOCALHOST", &digest).unwrap();
        let (ended, seen) = meet(&[acme]);
        assert!(matches!(ended, Err(HandshakeError::Challenge)), "{ended:?}");
        let (protocol, leaf) = seen.unwrap();
        assert_eq!(protocol, acme);
        assert!(leaf.windows(32).any(|part| part == digest), "the digest is in the certificate");
        // A browser is not a certificate authority, whatever else it offers.
        let (served, seen) = meet(&[http, acme]);
        assert!(served.is_ok(), "{served:?}");
        let (protocol, leaf) = seen.unwrap();
        assert_eq!(protocol, http);
        assert!(!leaf.windows(32).any(|part| part == digest));
        identities.end_answers();
        assert_eq!(meet(&[acme]).1, None);
    }
}

#[test]
fn a_server_without_orders_knows_no_challenges() {
    let acceptor = Certificate::new().acceptor();
    acceptor.identities().answer_over_tls("localhost", &[7; 32]).unwrap();
    let mut config = Certificate::new().client(&[&TLS13]);
    config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
    let (socket, peer) = client_peer(config, |peer| peer.conn.complete_io(&mut peer.sock));
    let refused = accept(&socket, &acceptor);
    assert!(matches!(refused, Err(HandshakeError::Tls(Error::NoApplicationProtocol))));
    assert!(peer.join().unwrap().is_err());
}

/// Accepts every certificate, as a certificate authority does: a verifier that parses the
/// certificate of a challenge refuses its critical extension.
#[derive(Debug)]
struct AcceptEveryCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptEveryCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
