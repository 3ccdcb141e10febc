//! Handshakes: those that succeed, those that fail, and those that never end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustls::version::TLS13;

use super::rig::{
    Certificate, PATIENCE, Running, Site, Usable, over, pattern, request, text, wait_until,
};

const LEN: usize = 20 << 20;

fn site() -> Site {
    Site::of(&[("a", b"first")])
}

/// The bytes that the server sends in response to these, up to the end.
fn said(site: &Running, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(site.socket()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut said);
    said
}

/// The first bytes that a client sends.
fn hello(certificate: &Certificate) -> Vec<u8> {
    let mut client = over(pair().0, &certificate.client(&[&TLS13]));
    let mut bytes = Vec::new();
    client.stream.conn.write_tls(&mut bytes).unwrap();
    bytes
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

#[test]
fn plain_http_gets_an_error_with_the_right_url() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).start();
    let port = site.socket().port();
    let mut client = site.connect();
    let reply = client.ask("GET", "/a?b", &[]);
    assert_eq!((reply.status, reply.field("Connection")), (400, Some("close")));
    assert!(reply.text().contains(&format!("https://localhost:{port}/a?b")), "{}", reply.text());
    assert!(client.is_closed());
    let mut old = site.connect();
    old.send("GET / HTTP/1.0\r\n\r\n");
    let reply = old.reply();
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("HTTPS"), "{}", reply.text());
    // Whatever they request, nothing is done for them.
    let mut client = site.connect();
    client.send(request("PUT", "/new", &["Content-Length: 3"]) + "abc");
    assert_eq!(client.reply().status, 400);
    assert!(!site.path("new").exists());
    assert_eq!(site.metric("tls_handshakes_failed_total{reason=\"plain_http\"}"), 3.0);
    assert_eq!(site.record("\"target\":\"/a?b\"")["tls"], serde_json::Value::Null);
}

#[test]
fn malformed_handshakes_end_with_an_alert_or_nothing() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate);
    // Some of it could be the beginning of a handshake.
    let site = site.with(|settings| settings.timeout = Duration::from_secs(1)).start();
    let hello = hello(&certificate);
    let mut huge = vec![22, 3, 1, 0xff, 0xff];
    huge.extend(vec![7; 70_000]);
    let mut data = vec![23, 3, 3, 0, 16];
    data.extend([9; 16]);
    let mut zeros = [22, 3, 1, 0, 0].repeat(100);
    zeros.extend([22, 3, 1, 0, 4, 1, 0, 0xff, 0xff]);
    let garbled: Vec<Vec<u8>> = (0..hello.len())
        .step_by(7)
        .map(|at| {
            hello.iter().enumerate().map(|(i, b)| if i == at { b ^ 0x55 } else { *b }).collect()
        })
        .collect();
    for bytes in [&b"\0\0\0\0\0\0\0\0"[..], &[0x80, 0x2e, 1, 3, 1], &huge, &data, &zeros] {
        let said = said(&site, bytes);
        assert!(said.is_empty() || said[0] == 21, "{said:?}");
    }
    for bytes in garbled {
        let mut stream = TcpStream::connect(site.socket()).unwrap();
        stream.write_all(&bytes).unwrap();
        // The server may have reset the connection already.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        // A handshake, an alert, or the answer to a client with another protocol.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    for end in (0..hello.len()).step_by(11) {
        let mut stream = TcpStream::connect(site.socket()).unwrap();
        stream.write_all(&hello[..end]).unwrap();
        drop(stream);
    }
    assert_eq!(site.get("/a").text(), "first");
    wait_until("all are gone", || site.metric("connections_open") <= 1.0);
}

#[test]
fn an_untrusted_certificate_ends_the_handshake() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).start();
    let other = Certificate::new();
    assert!(site.secure_as(&other.client(&[&TLS13])).try_ask("GET", "/a", &[]).is_err());
    assert_eq!(site.get("/a").text(), "first");
}

#[test]
fn slow_handshakes_are_aborted() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate);
    let site = site.with(|settings| settings.timeout = Duration::from_secs(1)).start();
    let half = &hello(&certificate)[..100];
    for bytes in [&b""[..], half] {
        assert!(said(&site, bytes).is_empty());
    }
    assert_eq!(site.metric("tls_handshakes_failed_total{reason=\"timeout\"}"), 2.0);
}

#[test]
fn stalled_handshakes_delay_no_other() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).start();
    let half = &hello(&certificate)[..100];
    let stalled: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(site.socket()).unwrap();
            stream.write_all(half).unwrap();
            stream
        })
        .collect();
    assert_eq!(site.get("/a").text(), "first");
    drop(stalled);
}

#[test]
fn many_handshakes_at_once_wait_for_each_other_and_all_succeed() {
    for certificate in [Certificate::new(), Certificate::slow()] {
        let site = Arc::new(site().secure(&certificate).start());
        let config = certificate.client(&[&TLS13]);
        let clients: Vec<_> = (0..100).map(|_| site.secure_as(&config)).collect();
        let threads = clients
            .into_iter()
            .map(|mut client| thread::spawn(move || assert_eq!(client.get("/a").text(), "first")));
        // All of them begin before any is waited for.
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(site.metric("requests_total{code=\"200\"}"), 100.0);
    }
}

#[test]
fn slow_signing_keys_work() {
    let certificate = Certificate::slow();
    let site = site().secure(&certificate).start();
    for config in certificate.clients() {
        let mut client = site.secure_as(&config);
        assert_eq!(client.get("/a").text(), "first");
        assert_eq!(client.get("/a").text(), "first");
        // A hello in two pieces.
        let mut client = site.secure_as(&config);
        let mut bytes = Vec::new();
        client.stream.conn.write_tls(&mut bytes).unwrap();
        let (first, second) = bytes.split_at(50);
        client.stream.sock.write_all(first).unwrap();
        thread::sleep(Duration::from_millis(20));
        client.stream.sock.write_all(second).unwrap();
        assert_eq!(client.get("/a").text(), "first");
    }
}

#[test]
fn one_connection_too_many_gets_a_tls_alert() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).with(|settings| {
        settings.max_connections = 1;
        // Without a health check there is no reserve.
        settings.sites[0].health = false;
    });
    site.write("large", &pattern(LEN));
    let site = site.start();
    let mut first = site.secure();
    first.send(request("GET", "/large", &[]));
    assert_eq!(first.head().unwrap().status, 200);
    let error = site.secure().try_ask("GET", "/a", &[]).unwrap_err().to_string();
    assert!(error.contains("alert"), "{error}");
    assert!(first.take(LEN).unwrap() == pattern(LEN));
    assert_eq!(first.get("/a").text(), "first");
}

#[test]
fn an_oversized_client_hello_ends_the_connection() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate);
    // Longer than the test waits: it is not for lack of progress that the connection ends.
    let site = site.with(|settings| settings.timeout = 10 * PATIENCE).start();
    // A message of 64 KiB in records of 16 KiB, which does not come to its end.
    let mut hello = vec![22, 3, 1, 0x40, 0, 1, 0, 0xff, 0xf0];
    hello.resize(5 + (16 << 10), 3);
    let mut next = vec![22, 3, 3, 0x40, 0];
    next.resize(5 + (16 << 10), 3);
    hello.extend(next);
    let begun = std::time::Instant::now();
    let said = said(&site, &hello);
    assert!(said.is_empty() || said[0] == 21, "{said:?}");
    assert!(begun.elapsed() < PATIENCE, "the connection is still open");
    assert_eq!(site.get("/a").text(), "first");
}

#[test]
fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_go_on() {
    let (old, new) = (Certificate::new(), Certificate::slow());
    let site = site().secure(&old);
    let credentials = site.settings.tls.clone().unwrap();
    let site = site.start();
    let mut before = site.secure();
    assert_eq!(before.get("/a").text(), "first");
    credentials.renew(new.identity());
    assert_eq!(before.get("/a").text(), "first");
    assert!(site.secure_as(&old.client(&[&TLS13])).try_ask("GET", "/a", &[]).is_err());
    assert_eq!(site.secure_as(&new.client(&[&TLS13])).get("/a").text(), "first");
}

#[test]
fn a_malformed_record_ends_only_its_connection() {
    let certificate = Certificate::new();
    let site = site().secure(&certificate).start();
    let mut huge = vec![23, 3, 3, 0xff, 0xff];
    huge.extend(vec![7; 70_000]);
    let mut false_record = vec![23, 3, 3, 0, 40];
    false_record.extend([5; 40]);
    for bytes in
        [huge, false_record, b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![21, 3, 3, 0, 2, 2, 40]]
    {
        let mut client = site.secure();
        assert_eq!(client.get("/a").text(), "first");
        client.stream.sock.write_all(&bytes).unwrap();
        let rest = client.end();
        assert!(rest.is_err() || rest.is_ok_and(|len| len == 0), "{}", text(&bytes));
        assert_eq!(site.get("/a").text(), "first");
    }
}
