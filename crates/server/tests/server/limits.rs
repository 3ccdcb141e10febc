//! Limits: connections, bytes per second, and the shutdown.

use std::time::{Duration, Instant};
use std::{fs, io};

use underpass_engine::Integrity;

use super::rig::{Client, Running, Site, narrow, pattern, request, wait_until};

pub(crate) const LEN: usize = 12 << 20;

/// A small file, and `large` of that length.
pub(crate) fn site() -> Site {
    let site = Site::of(&[("a", b"first")]);
    site.write("large", &pattern(LEN));
    site
}

/// A client in the middle of a response, which cannot end before it reads.
pub(crate) fn begun(site: &Running) -> Client {
    let mut client = site.connect_narrow();
    client.send(request("GET", "/large", &[]));
    assert_eq!(client.head().unwrap().status, 200);
    client.take(100_000).unwrap();
    client
}

#[test]
fn a_limited_connection_is_not_faster_than_its_limit() {
    let site = site().with(|settings| settings.rate = Some(6 << 20)).start();
    let begun = Instant::now();
    assert!(site.get("/large").body == pattern(LEN));
    // Two seconds, less what the kernel lets through at the beginning.
    assert!(begun.elapsed() > Duration::from_millis(1400), "{:?}", begun.elapsed());
}

#[test]
fn draining_lets_a_transfer_end_and_refuses_new_ones() {
    let site = site().start();
    let mut idle = site.connect();
    assert_eq!(idle.get("/a").text(), "first");
    let mut client = begun(&site);
    let address = site.socket();
    site.control.drain();
    assert!(idle.is_closed());
    wait_until("nobody listens", || {
        let refused = std::net::TcpStream::connect(address).map_err(|error| error.kind());
        refused.err() == Some(io::ErrorKind::ConnectionRefused)
    });
    wait_until("it says so", || site.notes().iter().any(|note| note == "Draining { open: 1 }"));
    assert!(!site.has_ended());
    assert!(client.take(LEN - 100_000).unwrap() == pattern(LEN)[100_000..]);
    wait_until("it has ended", || site.has_ended());
    assert!(site.notes().contains(&"Drained { left: 0 }".to_owned()), "{:?}", site.notes());
    assert!(client.is_closed());
    let summary = site.finish();
    assert_eq!((summary.requests, summary.cut_off), (2, 0));
    assert!(summary.bytes > LEN as u64);
}

#[test]
fn a_response_of_which_the_kernel_has_the_rest_is_complete_at_shutdown() {
    let site = site();
    site.write("short", &pattern(120_000));
    // Otherwise the last bytes are held back until the others have arrived.
    let site = site.with_site(|site| site.integrity = Integrity::Fast).start();
    let mut clients = Vec::new();
    for taken in [0, 40_000, 80_000] {
        let mut client = Client::new(narrow(site.socket(), 2 << 10));
        client.send(request("GET", &format!("/short?{taken}"), &[]));
        client.head().unwrap();
        client.take(taken).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        clients.push((taken, client));
    }
    site.control.drain();
    // They read the rest only once the shutdown has begun.
    std::thread::sleep(Duration::from_millis(200));
    for (taken, client) in &mut clients {
        assert!(client.take(120_000 - *taken).unwrap() == pattern(120_000)[*taken..]);
        assert!(client.is_closed());
        let record = site.record(&format!("\"target\":\"/short?{taken}\""));
        assert_eq!((&record["complete"], &record["acknowledged"]), (&true.into(), &120_000.into()));
    }
    assert_eq!(site.finish().cut_off, 0);
}

#[test]
fn a_half_sent_request_is_answered_before_shutdown() {
    let site = site().start();
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\n");
    std::thread::sleep(Duration::from_millis(100));
    site.control.drain();
    std::thread::sleep(Duration::from_millis(100));
    client.send("Host: localhost\r\n\r\n");
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.field("Connection")), ("first", Some("close")));
    assert!(client.is_closed());
    assert_eq!(site.finish().cut_off, 0);
}

#[test]
fn a_request_that_has_arrived_is_answered_before_shutdown() {
    let site = site().start();
    let mut client = site.connect();
    assert_eq!(client.get("/a").text(), "first");
    let mut other = site.connect();
    assert_eq!(other.get("/a").text(), "first");
    let held_up = site.hold_up_log();
    drop(other);
    std::thread::sleep(Duration::from_millis(100));
    client.send(request("GET", "/a", &[]));
    site.control.drain();
    drop(held_up);
    let reply = client.reply();
    assert_eq!((reply.text().as_str(), reply.field("Connection")), ("first", Some("close")));
    assert!(client.is_closed());
    assert_eq!(site.finish().cut_off, 0);
}

#[test]
fn the_first_request_of_a_new_connection_is_answered_at_shutdown() {
    let site = site().start();
    let mut idle = site.connect();
    assert_eq!(idle.get("/a").text(), "first");
    let (mut client, mut silent) = (site.connect(), site.connect());
    // Including the one that asks.
    wait_until("they are accepted", || site.metric("connections_open") == 4.0);
    site.control.drain();
    assert!(idle.is_closed());
    let reply = client.get("/a");
    assert_eq!((reply.text().as_str(), reply.field("Connection")), ("first", Some("close")));
    assert!(client.is_closed());
    assert!(silent.is_closed(), "it is not waited for until the deadline");
    assert_eq!(site.finish().cut_off, 0);
}

#[test]
fn the_deadline_cuts_off_and_counts() {
    let site = site().with(|settings| settings.drain = Duration::from_millis(300)).start();
    let mut clients = [begun(&site), begun(&site)];
    let refused_at = Instant::now();
    site.control.drain();
    for client in &mut clients {
        let end = client.end_when_ended(|| site.has_ended());
        assert_eq!(end.map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    }
    assert!(refused_at.elapsed() >= Duration::from_millis(300));
    assert!(site.notes().contains(&"Drained { left: 2 }".to_owned()), "{:?}", site.notes());
    let lines = site.lines();
    let cut = lines.iter().filter(|line| line.contains("/large")).collect::<Vec<_>>();
    assert_eq!(cut.len(), 2, "each has its line");
    assert!(cut.iter().all(|line| line.contains("\"complete\":false")));
    assert_eq!(site.finish().cut_off, 2);
}

#[test]
fn stop_ends_connections_at_once() {
    let site = site().start();
    let mut client = begun(&site);
    site.control.drain();
    std::thread::sleep(Duration::from_millis(50));
    site.control.stop();
    wait_until("it has ended", || site.has_ended());
    assert_eq!(client.end().map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
    assert_eq!(site.finish().cut_off, 1);
}

#[test]
fn a_body_that_is_cut_off_is_reset_before_it_has_an_end() {
    let site = Site::new();
    let long = "x".repeat(240);
    for at in 0..20_000 {
        fs::File::create(site.path(&format!("{at:05}{long}"))).unwrap();
    }
    let site = site.start();
    let mut client = site.connect();
    client.send(request("GET", "/?ndjson", &[]));
    let head = client.head().unwrap();
    assert_eq!((head.status, head.field("Content-Length")), (200, None));
    // It reads all that comes, so that nothing keeps an orderly end from arriving at once.
    let mut taken = client.take(200 << 10).unwrap().len();
    site.control.stop();
    let end = loop {
        match client.take(16 << 10) {
            Ok(more) => taken += more.len(),
            Err(error) => break error.kind(),
        }
    };
    let is_whole = taken > 20_000 * long.len();
    assert!(is_whole || end == io::ErrorKind::ConnectionReset, "after {taken} bytes: {end}");
}

#[test]
fn a_server_with_nothing_to_do_ends_at_once() {
    let site = site().start();
    assert_eq!(site.get("/a").text(), "first");
    let refused_at = Instant::now();
    site.control.drain();
    assert_eq!(site.finish().cut_off, 0);
    assert!(refused_at.elapsed() < Duration::from_secs(10));
}
