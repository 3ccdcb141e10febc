//! The servers that a client trusts, and its messages about others: one line each.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use underpass_transport::tls::{
    Connector, Handshake, HandshakeError, Identity, Pin, TlsError, Trust,
};

use crate::rig::{
    Certificate, Ours, Usable, connect, converse, converse_with_peer, server_peer, shake,
};

/// Returns the result of a client with this trust that connects to a server with this certificate
/// by a name.
fn try_with(certificate: &Certificate, trust: &Trust, host: &str) -> Result<(), HandshakeError> {
    for version in [&TLS12, &TLS13] {
        let config = Arc::new(certificate.server(&[version]));
        let (socket, peer) =
            server_peer(config, |peer| peer.conn.complete_io(&mut peer.sock).map(|_| ()));
        let connector = Connector::new(trust).unwrap();
        let shaken = shake(&socket, Handshake::connect(&connector, host).unwrap());
        drop(socket);
        let answer = peer.join().unwrap();
        if let Err(error) = shaken {
            let answer = answer.unwrap_err().to_string();
            assert!(answer.contains("received fatal alert"), "the server is told: {answer}");
            return Err(error);
        }
    }
    Ok(())
}

fn says(result: Result<(), HandshakeError>) -> String {
    let text = result.unwrap_err().to_string();
    assert!(!text.contains('\n') && !text.contains("Error"), "{text}");
    text
}

#[test]
fn names_and_addresses_are_checked() {
    let certificate = Certificate::new();
    let trust = certificate.trust();
    for host in ["localhost", "127.0.0.1", "LOCALHOST"] {
        try_with(&certificate, &trust, host).unwrap();
    }
    for host in ["example.org", "127.0.0.2", "::1"] {
        let expected =
            format!("the server's certificate is not for {host}, but for localhost, 127.0.0.1");
        assert_eq!(says(try_with(&certificate, &trust, host)), expected);
    }
    let nameless = Certificate::with(|params| params.subject_alt_names.clear());
    let expected = "the server's certificate is not for localhost, but for no name at all";
    assert_eq!(says(try_with(&nameless, &nameless.trust(), "localhost")), expected);
    let error = Handshake::connect(&certificate.connector(), "a b").unwrap_err();
    assert_eq!(error.to_string(), "`a b` is neither a name nor an address that TLS can check");
}

#[test]
fn validity_times_of_certificates_are_checked() {
    // Also of a certificate that is itself in the file and looks like a CA certificate.
    for is_ca in [
        rcgen::IsCa::NoCa,
        rcgen::IsCa::ExplicitNoCa,
        rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained),
    ] {
        let with = |from: i32, to: i32| {
            Certificate::with(|params| {
                params.is_ca = is_ca;
                params.not_before = rcgen::date_time_ymd(from, 1, 2);
                params.not_after = rcgen::date_time_ymd(to, 3, 4);
            })
        };
        let good = with(2020, 2999);
        try_with(&good, &good.trust(), "localhost").unwrap();
        let old = with(2019, 2020);
        let expected = "the server's certificate expired on 2020-03-04";
        assert_eq!(says(try_with(&old, &old.trust(), "localhost")), expected);
        let early = with(2998, 2999);
        let expected =
            "the server's certificate is not valid before 2998-01-02, and this machine's";
        assert!(says(try_with(&early, &early.trust(), "localhost")).starts_with(expected));
    }
}

#[test]
fn unknown_certificates_are_refused_unless_insecure() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let expected = "the server's certificate is self-signed and not trusted";
    assert_eq!(says(try_with(&certificate, &other.trust(), "localhost")), expected);
    let signed = signed_by_stranger();
    let expected =
        "the server's certificate was issued by a certificate authority that is not trusted here";
    assert_eq!(says(try_with(&signed, &other.trust(), "localhost")), expected);
    let insecure = Trust { insecure: true, ..Trust::default() };
    for certificate in [&certificate, &signed] {
        try_with(certificate, &insecure, "example.org").unwrap();
    }
}

/// Returns a certificate whose issuer is unknown.
fn signed_by_stranger() -> Certificate {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "a stranger");
    let issuer = rcgen::Issuer::new(authority, rcgen::KeyPair::generate().unwrap());
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    Certificate::of(&params.signed_by(&key, &issuer).unwrap().pem(), &key.serialize_pem())
}

#[test]
fn pins_are_checked_in_addition_to_authorities() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let (pin, wrong) = (certificate.identity().pin(), other.identity().pin());
    let expected = format!("the server's public key is not a pinned one, but {pin}");
    for insecure in [false, true] {
        let with = |pins: &[Pin]| Trust { insecure, pins: pins.to_vec(), ..certificate.trust() };
        try_with(&certificate, &with(&[pin]), "localhost").unwrap();
        try_with(&certificate, &with(&[wrong, pin]), "localhost").unwrap();
        assert_eq!(says(try_with(&certificate, &with(&[wrong]), "localhost")), expected);
    }
    let with_other = Trust { pins: vec![pin], ..other.trust() };
    assert!(says(try_with(&certificate, &with_other, "localhost")).contains("self-signed"));
}

#[test]
fn insecure_still_checks_that_the_server_has_the_key() {
    // A server that presents the certificate of another, without its key.
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let thief = Certificate::of(&certificate.pem, &other.key);
    let key = rustls::pki_types::PrivateKeyDer::try_from(
        rcgen::KeyPair::from_pem(&thief.key).unwrap().serialize_der(),
    );
    let key = rustls::crypto::aws_lc_rs::sign::any_ecdsa_type(&key.unwrap()).unwrap();
    use rustls::pki_types::pem::PemObject;
    let leaf = rustls::pki_types::CertificateDer::from_pem_slice(thief.pem.as_bytes()).unwrap();
    let shown = rustls::sign::CertifiedKey::new(vec![leaf], key);
    let trust =
        Trust { insecure: true, pins: vec![certificate.identity().pin()], ..Trust::default() };
    for version in [&TLS12, &TLS13] {
        let mut config = certificate.server(&[version]);
        config.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(shown.clone()));
        let (socket, peer) =
            server_peer(Arc::new(config), |peer| peer.conn.complete_io(&mut peer.sock).is_err());
        let error = connect(&socket, &Connector::new(&trust).unwrap()).unwrap_err();
        drop(socket);
        let expected = "the server does not have the private key of its certificate";
        assert_eq!(error.to_string(), expected);
        assert!(peer.join().unwrap());
    }
}

#[test]
fn a_generated_certificate_is_valid_for_its_names() {
    let names = ["localhost", "::1", "10.1.2.3"].map(str::to_owned);
    let identity = Identity::self_signed(&names).unwrap();
    assert_eq!(identity.warning(), None);
    let shown = identity.fingerprint();
    assert_eq!((shown.len(), shown.matches(':').count()), (95, 31));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cert.pem");
    std::fs::write(&path, identity.certificate_pem()).unwrap();
    let trust = Trust { authorities: Some(path), pins: vec![identity.pin()], ..Trust::default() };
    let connector = Connector::new(&trust).unwrap();
    let acceptor = underpass_transport::tls::Acceptor::new(identity, false).unwrap();
    assert!(!acceptor.is_slow());
    for name in names {
        let (near, far) = crate::rig::pair();
        far.set_nonblocking(true).unwrap();
        let server = std::thread::spawn({
            let acceptor = acceptor.clone();
            move || {
                let session = crate::rig::accept(&far, &acceptor).unwrap();
                let ours = Ours(session, far);
                assert_eq!(ours.receive(&mut [0; 9]), Ok(4));
                ours.send(b"pong").unwrap();
            }
        });
        let session = shake(&near, Handshake::connect(&connector, &name).unwrap()).unwrap();
        converse_with_peer(&Ours(session, near));
        server.join().unwrap();
    }
    let error = Identity::self_signed(&["a\u{e9}b".to_owned()]).unwrap_err();
    assert_eq!(error.to_string(), "a certificate cannot be for the name `a\u{e9}b`");
}

/// Returns the message about these files.
fn fault(folder: &Path, certificate: &str, key: &str) -> String {
    let error = Identity::load(&folder.join(certificate), &folder.join(key)).unwrap_err();
    let text = error.to_string();
    assert!(!text.contains('\n'));
    text.replace(&format!("{}/", folder.display()), "")
}

#[test]
fn files_that_cannot_be_used_are_distinguished() {
    let (certificate, other) = (Certificate::new(), Certificate::new());
    let folder = certificate.folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write("other.pem", &other.key);
    write("both.pem", &format!("{}{}", certificate.pem, certificate.key));
    write("text", "hello\n");
    let body = "\nMIIBvTBXBgkq\n-----END";
    write(
        "sealed.pem",
        &format!("-----BEGIN ENCRYPTED PRIVATE KEY-----{body} ENCRYPTED PRIVATE KEY-----\n"),
    );
    write(
        "old.pem",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AA\n\nAAAA\n\
         -----END EC PRIVATE KEY-----\n",
    );
    write("odd.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    write("bad.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    write("torn.pem", "-----BEGIN CERTIF\n");
    // As a secret store may provide it.
    write("line.pem", "-----BEGIN PRIVATE KEY----- c2VjcmV0 -----END PRIVATE KEY-----\n");
    write("open.pem", "-----BEGIN PRIVATE KEY----- c2VjcmV0\n");
    Identity::load(&folder.join("both.pem"), &folder.join("both.pem")).unwrap();
    let cases = [
        ("none", "key.pem", "none cannot be read: No such file or directory"),
        ("cert.pem", "none", "none cannot be read: No such file or directory"),
        (".", "key.pem", " cannot be read: Is a directory"),
        ("text", "key.pem", "text has no certificate in it (PEM, "),
        ("key.pem", "key.pem", "key.pem has no certificate in it (PEM, "),
        ("cut.pem", "key.pem", "cut.pem is not PEM: `-----END CERTIFICATE-----` is missing, "),
        ("torn.pem", "key.pem", "torn.pem is not PEM: `-----BEGIN CERTIF` begins no section"),
        ("cert.pem", "line.pem", "a line with `-----BEGIN` has more than a label, or none"),
        ("cert.pem", "open.pem", "a line with `-----BEGIN` has more than a label, or none"),
        ("cert.pem", "cut.pem", "cut.pem is not PEM: `-----END CERTIFICATE-----` is missing, "),
        ("bad.pem", "key.pem", "bad.pem has a certificate in it that cannot be used: "),
        ("cert.pem", "cert.pem", "cert.pem has no private key in it (PEM, "),
        ("cert.pem", "sealed.pem", "sealed.pem has an encrypted private key in it: decrypt it, "),
        ("cert.pem", "old.pem", "old.pem has an encrypted private key in it: decrypt it, "),
        ("cert.pem", "odd.pem", "odd.pem has a private key in it that cannot be used: "),
        ("cert.pem", "other.pem", "other.pem is not the key of the certificate in cert.pem "),
    ];
    for (certificate, key, expected) in cases {
        let text = fault(folder, certificate, key);
        assert!(
            text.starts_with(expected) || text.ends_with(expected),
            "{certificate}, {key}: {text}"
        );
    }
    let authorities = Trust { authorities: Some(folder.join("text")), ..Trust::default() };
    let error = Connector::new(&authorities).unwrap_err();
    assert!(matches!(error, TlsError::Unusable { .. }), "{error}");
}

#[test]
fn an_expired_certificate_is_reported_and_used() {
    let old = Certificate::with(|params| {
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    let expected = "the certificate expired on 2020-01-01: clients will refuse it";
    assert_eq!(old.identity().warning(), Some(expected));
    let early = Certificate::with(|params| {
        params.not_before = rcgen::date_time_ymd(2998, 1, 1);
        params.not_after = rcgen::date_time_ymd(2999, 1, 1);
    });
    let expected = "the certificate is not valid before 2998-01-01: clients will refuse it";
    assert_eq!(early.identity().warning(), Some(expected));
    let key = early.folder.path().join("key.pem");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let identity = early.identity();
    let warning = identity.warning().unwrap();
    let expected = format!("every user of this machine can read {0}: chmod 600 {0}", key.display());
    assert!(warning.ends_with(&expected), "{warning}");
}

#[test]
fn the_authorities_of_the_system_are_those_of_its_variables() {
    // A child process, because environment variables belong to the whole process.
    let certificate = Certificate::new();
    let path = certificate.folder.path().join("cert.pem");
    let asks = |path: &Path| {
        let test = std::env::current_exe().unwrap();
        let output = std::process::Command::new(test)
            .args(["--exact", "trust::system_authorities_of_a_process", "--ignored", "--nocapture"])
            .env("SSL_CERT_FILE", path)
            .env_remove("SSL_CERT_DIR")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(asks(&path).contains("there are some"));
    let text = asks(&certificate.folder.path().join("key.pem"));
    assert!(text.contains("this system has no CA certificates: install"), "{text}");
}

#[test]
#[ignore = "run by the test above"]
fn system_authorities_of_a_process() {
    match Connector::new(&Trust::default()) {
        Ok(_) => println!("there are some"),
        Err(error) => println!("{error}"),
    }
}

#[test]
fn only_its_own_connector_remembers_a_session() {
    let certificate = Certificate::new();
    let config = Arc::new(certificate.server(&[&TLS13]));
    for _ in 0..2 {
        let (socket, peer) = server_peer(Arc::clone(&config), converse);
        let ours = Ours(connect(&socket, &certificate.connector()).unwrap(), socket);
        converse_with_peer(&ours);
        assert!(!ours.0.facts().is_resumed);
        peer.join().unwrap();
    }
}
