//! Origins that cannot be reached, or whose certificate cannot be trusted.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::{Node, until_stored};
use crate::rig::{Running, folder, noise_file, serve, underpass, until};
use crate::scripted_origin::{Gate, Object, Origin};
use underpass_testkit::tls::certificate;

/// Accepts connections, and does this with each of them after the first bytes of the client.
fn listener(act: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            act(stream);
        }
    });
    address.to_string()
}

/// Requests a file from a node; checks what the client gets, and returns what the node says of it.
fn refused(origin: &str, args: &[&str], (status, detail): (u16, &str)) -> String {
    let node = Node::new(origin, args);
    // The second one may meet an origin that is left alone, for the same reason.
    let replies = [node.get("/a"), node.get("/a")];
    for reply in &replies {
        assert!(reply.field("retry-after").is_some(), "{}", reply.head);
        assert_eq!(reply.status, status);
        assert!(reply.cache().ends_with(&format!("detail={detail}")), "{}", reply.cache());
    }
    assert_eq!(node.metric("objects"), 0);
    let requests = node.metric("requests_total");
    let said = node.server.end().stderr;
    let lines: Vec<_> = said.lines().filter(|line| line.contains(" /a from ")).collect();
    assert!(!lines.is_empty(), "{said}");
    // A request that was not sent is not counted.
    assert_eq!(requests, lines.len() as u64, "{said}");
    assert!(lines[0].contains(&format!("/a from {}: ", origin.trim_end_matches('/'))), "{said}");
    lines[0].to_owned()
}

#[test]
fn an_origin_that_hangs_is_left_alone_while_another_one_answers() {
    let gate = Gate::default();
    let held = gate.clone();
    let hanging = Origin::new(move |_, _| held.wait());
    let object = Object::new(b"hello".to_vec(), "a");
    let other = Origin::of(&object);
    let node = Node::new(&hanging.url(), &["--timeout", "1", "--origin", &other.url()]);
    for number in 0..4 {
        node.get(&format!("/{number}")).assert_is(200, b"hello");
    }
    assert!(hanging.requests().len() < 4, "{:#?}", hanging.requests());
    gate.open();
}

#[test]
fn stale_files_do_not_wait_for_one_another_if_the_only_origin_hangs() {
    const FILES: usize = 96;
    let (gate, hangs) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let object = Object::new(b"hello".to_vec(), "a").with("Cache-Control: max-age=0");
    let (held, is_hanging) = (gate.clone(), Arc::clone(&hangs));
    let origin = Origin::new(move |request, sending| {
        if is_hanging.load(Ordering::Relaxed) && request.path != "/quick" {
            held.wait();
        }
        object.send(request, sending);
    });
    let node = Node::new(&origin.url(), &["--timeout", "2", "--stale-if-error", "1d"]);
    let path = |number: usize| format!("/{number}");
    (0..FILES).for_each(|number| node.get(&path(number)).assert_is(200, b"hello"));
    hangs.store(true, Ordering::Relaxed);
    // A few files that are late tell nothing about the others.
    let clients: Vec<_> = (0..3).map(|number| node.client("GET", &path(number), &[])).collect();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, b"hello"));
    assert!(node.get("/quick").cache().contains("fwd-status=200"));
    let began = Instant::now();
    let clients: Vec<_> = (0..FILES).map(|number| node.client("GET", &path(number), &[])).collect();
    for client in clients {
        let reply = client.finish();
        reply.assert_is(200, b"hello");
        // On a busy machine some may wait for a thread as long as for the origin.
        let whys = ["detail=origin-timeout", "detail=busy"];
        assert!(whys.iter().any(|why| reply.cache().contains(why)), "{}", reply.cache());
    }
    // There are 16 threads for validations.
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    gate.open();
    hangs.store(false, Ordering::Relaxed);
    until("an answer of the origin", || node.get("/0").cache().contains("fwd=stale"));
}

#[test]
fn a_name_that_cannot_be_found_is_an_origin_that_cannot_be_reached() {
    let line = refused("http://no-such-host.invalid/", &[], (504, "origin-unreachable"));
    assert!(line.contains("looking up no-such-host.invalid"), "{line}");
}

#[test]
fn handshake_failures_are_reported_to_the_operator() {
    let cut = listener(drop);
    let plain = listener(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let refusing = listener(|mut stream| {
        // A fatal alert: handshake_failure.
        let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]);
    });
    for (address, words) in [
        (&cut, "in the middle of the TLS handshake"),
        (&plain, "does not speak TLS"),
        (&refusing, "refuses the TLS handshake"),
    ] {
        let line = refused(&format!("https://{address}/"), &[], (502, "origin-tls"));
        assert!(line.contains(words), "{line}");
    }
    let held = listener(std::mem::forget);
    let url = format!("https://{held}/");
    let line = refused(&url, &["--timeout", "1"], (504, "origin-unreachable"));
    assert!(line.contains("TLS handshake with"), "{line}");
}

/// A server of files with a certificate for these names.
fn secure(files: &std::path::Path, names: &[&str]) -> (Running, tempfile::TempDir) {
    let keys = folder();
    let (certificate, key) = certificate(keys.path(), "cert", names);
    (serve(files, &["--tls-cert", &certificate, "--tls-key", &key]), keys)
}

#[test]
fn an_untrusted_certificate_is_reported_with_the_option_that_trusts_it() {
    let files = folder();
    noise_file(files.path(), "a", 5);
    let (origin, _keys) = secure(files.path(), &["127.0.0.1"]);
    let line = refused(&origin.address, &[], (502, "origin-tls"));
    assert!(line.contains("--origin-cacert") && !line.contains("--pin"), "{line}");
    let (other, keys) = secure(files.path(), &["other.test"]);
    let trusted = keys.path().join("cert.pem");
    let args = ["--origin-cacert", trusted.to_str().unwrap()];
    let line = refused(&other.address, &args, (502, "origin-tls"));
    assert!(line.contains("not for 127.0.0.1, but for other.test"), "{line}");
}

#[test]
fn cached_objects_are_served_despite_a_bad_origin_certificate() {
    let (files, cache, keys) = (folder(), folder(), folder());
    noise_file(files.path(), "a", 5);
    let bytes = fs::read(files.path().join("a")).unwrap();
    let (good, trusted) = secure(files.path(), &["127.0.0.1"]);
    let trusted = trusted.path().join("cert.pem");
    let trusted = trusted.to_str().unwrap();
    let args = ["--origin-cacert", trusted, "--fresh", "0", "--stale-if-error", "1d"];
    let node = Node::on(cache, &good.address, &args);
    node.get("/a").assert_is(200, &bytes);
    until_stored(&node, 5);
    let port = good.address.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    drop(good);
    // The same address, with an unknown certificate.
    let (certificate, key) = certificate(keys.path(), "cert", &["127.0.0.1"]);
    until("the port is free", || TcpListener::bind(format!("127.0.0.1:{port}")).is_ok());
    let mut command = underpass();
    command.args(["serve", "--port", &port, "--tls-cert", &certificate, "--tls-key", &key]);
    command.arg(files.path());
    let _bad = Running::listening(command);
    let stale = node.get("/a");
    stale.assert_is(200, &bytes);
    assert!(stale.cache().contains("detail=origin-tls"), "{}", stale.cache());
    assert_eq!(node.get("/b").status, 502);
}

#[test]
fn invalid_origin_responses_are_reported_to_the_operator() {
    for (head, detail, words) in [
        ("304 Not Modified", "origin-invalid", "304 Not Modified without a condition"),
        (
            "206 Part\nContent-Range: bytes 0-4/9",
            "origin-invalid",
            "although the whole was requested",
        ),
        ("401 No\nContent-Type: text/plain", "origin-denied", "401 Unauthorized: some words"),
        ("403 No\nContent-Type: text/plain", "origin-denied", "403 Forbidden: some words"),
        (
            "302 Found\nLocation: https://other.test/x?signature=a-secret",
            "origin-redirects",
            "it redirects to other.test, which no --origin-redirect allows",
        ),
    ] {
        let lines = format!("HTTP/1.1 {head}");
        let origin = Origin::new(move |_, sending| sending.answer(&lines, b"some words"));
        let node = Node::new(&origin.url_with_password(), &[]);
        let reply = node.get("/a");
        assert_eq!(reply.status, 502, "{head}");
        assert!(reply.cache().ends_with(detail), "{}", reply.cache());
        assert!(!String::from_utf8_lossy(&reply.body).contains("some words"));
        let said = node.server.end().stderr;
        let line = said.lines().find(|line| line.contains(" /a from ")).unwrap();
        assert!(line.contains(&format!(" {}: ", origin.url().trim_end_matches('/'))), "{line}");
        assert!(line.contains(words), "{line}");
        assert!(!said.contains("a-secret") && !said.contains("user:word@"), "{said}");
    }
}
