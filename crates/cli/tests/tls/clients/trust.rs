//! The servers that clients trust, and the messages about others.

use crate::clients::site::{Authority, Nginx, at_home, free_port, run, until_listening};
use crate::rig::{Finished, Running, folder, serve_by};

/// The only line that was printed.
#[track_caller]
fn line(finished: &Finished) -> &str {
    let lines: Vec<_> = finished.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{}", finished.stderr);
    lines[0]
}

#[test]
fn an_invalid_certificate_is_a_one_line_error() {
    let authority = Authority::new();
    let expired = authority.issue_as("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let future = authority.issue_as("localhost", |params| {
        params.not_before = rcgen::date_time_ymd(2190, 1, 1);
        params.not_after = rcgen::date_time_ymd(2191, 1, 1);
    });
    let (stranger, other) = (Authority::new(), authority.issue("other.example"));
    let (unknown, alone) = (stranger.issue("localhost"), authority.self_signed());
    let certificates = [
        (&expired, "expired on 2021-01-01"),
        (&future, "not valid before 2190-01-01"),
        (&other, "other.example"),
        (&unknown, "authority"),
        (&alone, "self-signed"),
    ];
    let ports = certificates.map(|_| free_port());
    let servers: Vec<_> =
        ports.iter().zip(certificates).map(|(port, (pair, _))| (*port, pair, "")).collect();
    let Some(nginx) = Nginx::new(&servers) else { return };
    std::fs::write(nginx.root().join("file"), "file").unwrap();
    let (home, ca) = (folder(), authority.path());
    std::fs::write(home.path().join("mine"), "mine").unwrap();
    for (port, (_, words)) in ports.into_iter().zip(certificates) {
        until_listening(port);
        let url = format!("https://localhost:{port}/file");
        for args in [
            &["get", &url, "--cacert", &ca][..],
            &["get", "-r", &url, "--cacert", &ca],
            &["put", "mine", &url, "--cacert", &ca],
        ] {
            let finished = run(home.path(), args).failed(1, &[words]);
            let line = line(&finished);
            assert!(line.contains(&format!("TLS with localhost:{port}: ")), "{line}");
        }
        assert!(!home.path().join("file").exists());
        let finished = run(home.path(), &["get", &url, "-k", "-f"]).succeeded();
        let warnings = finished.stderr.lines().filter(|line| line.contains("--insecure")).count();
        assert_eq!(warnings, 1, "{}", finished.stderr);
        std::fs::remove_file(home.path().join("file")).unwrap();
    }
}

#[test]
fn a_pin_is_enough_and_with_an_authority_both_are_needed() {
    let authority = Authority::new();
    let certificate = authority.self_signed();
    let trusted = authority.issue("localhost");
    let (port, other) = (free_port(), free_port());
    let Some(nginx) = Nginx::new(&[(port, &certificate, ""), (other, &trusted, "")]) else {
        return;
    };
    std::fs::write(nginx.root().join("file"), "file").unwrap();
    until_listening(other);
    let (home, ca) = (folder(), authority.path());
    let wrong = "sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let pin = |port: u16| {
        let url = format!("https://localhost:{port}/file");
        let finished =
            run(home.path(), &["get", &url, "--pin", wrong]).failed(1, &["not a pinned"]);
        let at = finished.stderr.find("sha256//").unwrap();
        (url, finished.stderr[at..].split_whitespace().next().unwrap().to_owned())
    };
    let (url, key) = pin(port);
    let finished =
        run(home.path(), &["get", &url, "-f", "--pin", wrong, "--pin", &key]).succeeded();
    assert!(!finished.stderr.contains("insecure"), "{}", finished.stderr);
    run(home.path(), &["get", &url, "-f", "--pin", &key, "--cacert", &ca])
        .failed(1, &["self-signed"]);
    let (url, key) = pin(other);
    run(home.path(), &["get", &url, "-f", "--pin", &key, "--cacert", &ca]).succeeded();
    run(home.path(), &["get", &url, "-f", "--pin", wrong, "--cacert", &ca]).failed(1, &[&key]);
    run(home.path(), &["get", &url, "--pin", "sha256//x"]).failed(2, &["sha256//x"]);
}

#[test]
fn authorities_come_from_the_system_or_from_a_file() {
    let authority = Authority::new();
    let certificate = authority.issue("localhost");
    let port = free_port();
    let Some(nginx) = Nginx::new(&[(port, &certificate, "")]) else { return };
    std::fs::write(nginx.root().join("file"), "file").unwrap();
    until_listening(port);
    let (home, url) = (folder(), format!("https://localhost:{port}/file"));
    let mut command = at_home(home.path(), &["get", &url]);
    command.env("SSL_CERT_FILE", authority.path());
    Running::start(command).finish().succeeded();
    // So does a server's own certificate, as update-ca-certificates(8) adds it to the system's.
    let (alone, port) = (Authority::new(), free_port());
    let Some(nginx) = Nginx::new(&[(port, &alone.own(), "")]) else { return };
    std::fs::write(nginx.root().join("file"), "file").unwrap();
    until_listening(port);
    let own = format!("https://localhost:{port}/file");
    let mut command = at_home(home.path(), &["get", "-f", &own]);
    command.env("SSL_CERT_FILE", alone.path());
    Running::start(command).finish().succeeded();
    run(home.path(), &["get", "-f", &own]).failed(1, &["self-signed"]);
    for (path, words) in [("/no/such", "cannot be read"), (&url[..], "cannot be read")] {
        let finished = run(home.path(), &["get", "-f", &url, "--cacert", path]).failed(1, &[words]);
        line(&finished);
    }
    std::fs::write(home.path().join("empty"), "").unwrap();
    run(home.path(), &["get", "-f", &url, "--cacert", "empty"]).failed(1, &["no certificate"]);
}

#[test]
fn a_port_without_tls_is_distinguished_from_one_with_it() {
    let home = folder();
    let server = serve_by(at_home(home.path(), &[]), &home, &["--quiet"]);
    let url = server.address.replace("http:", "https:");
    run(home.path(), &["get", "-k", &format!("{url}file")])
        .failed(1, &["does not speak TLS", "is that the port"]);
}
