//! Timeouts: a client without progress is dropped, and one with some never is.

use std::io::{self, Write};
use std::net::Shutdown;
use std::thread::sleep;
use std::time::{Duration, Instant};

use underpass_engine::Integrity;

use super::rig::{Client, Running, Site, narrow, pattern, request, wait_until};

const LEN: usize = 6 << 20;

fn site() -> Running {
    let site = Site::of(&[("a", b"first")]);
    site.write("large", &pattern(LEN));
    site.with(|settings| settings.timeout = Duration::from_secs(1)).start()
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let site = site();
    let begun = Instant::now();
    let mut silent = site.connect();
    let mut used = site.connect();
    assert_eq!(used.get("/a").text(), "first");
    assert!(silent.is_closed() && used.is_closed());
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[test]
fn an_incomplete_request_times_out_with_408() {
    let site = site();
    let parts = ["G", "GET /a HTTP/1.1\r\nHost:", "GET /a HTTP/1.1\r\nHost: a\r\nX: y\r\n"];
    let mut clients = parts.map(|part| {
        let mut client = site.connect();
        client.send(part);
        client
    });
    for client in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.status, reply.field("Connection")), (408, Some("close")));
        assert!(client.is_closed());
    }
    // The connection is not idle if its request arrived with the one before.
    let mut ahead = site.connect();
    ahead.send(request("GET", "/a", &[]) + "GET /b");
    assert_eq!((ahead.reply().status, ahead.reply().status), (200, 408));
    let targets = parts.map(|part| part.lines().next().unwrap().to_owned());
    for target in targets {
        site.line(&format!("\"target\":\"{target}\""));
    }
}

#[test]
fn an_incomplete_body_in_memory_times_out_with_408() {
    let site = site();
    for (framing, part) in [("Content-Length: 10", "<D"), ("Transfer-Encoding: chunked", "2\r\n<D")]
    {
        let begin = || {
            let mut client = site.connect();
            client.send(request("PROPFIND", "/a", &["Depth: 0", framing]) + part);
            client
        };
        let mut late = begin();
        let reply = late.reply();
        assert_eq!((reply.status, reply.field("Connection")), (408, Some("close")), "{framing}");
        assert!(late.is_closed());
        let mut ended = begin();
        ended.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(ended.reply().status, 400, "{framing}");
    }
}

#[test]
fn a_request_that_trickles_in_has_to_be_complete_in_time() {
    let site = site();
    let mut client = site.connect();
    let begun = Instant::now();
    let trickle = std::thread::spawn({
        let mut stream = client.stream.try_clone().unwrap();
        move || {
            use std::io::Write;
            // Endlessly, if the server allows it.
            while stream.write_all(b"GET /a HTTP/1.1\r\nX: y"[..1].as_ref()).is_ok()
                && begun.elapsed() < Duration::from_secs(60)
            {
                sleep(Duration::from_millis(50));
            }
        }
    });
    assert_eq!(client.reply().status, 408);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    trickle.join().unwrap();
}

#[test]
fn a_body_that_does_not_arrive_does_not_delay_the_response_forever() {
    let site = site();
    let mut client = site.connect();
    client.send(request("PUT", "/a", &["Content-Length: 1000"]) + "only this");
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("Connection")), (405, Some("close")));
    assert!(client.is_closed());
}

#[test]
fn a_client_that_stops_reading_times_out() {
    let site = site();
    let mut client = site.connect_narrow();
    client.send(request("GET", "/large", &[]));
    client.head().unwrap();
    let line = site.record("\"target\":\"/large\"");
    assert_eq!((&line["failure"], &line["complete"]), (&"timeout".into(), &false.into()));
    assert!(line["acknowledged"].as_u64() < Some(LEN as u64));
    assert_eq!(client.end().map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionReset));
}

#[test]
fn a_slow_but_steady_reader_is_not_given_up() {
    let site = site();
    let mut client = site.connect_narrow();
    client.send(request("GET", "/large", &[]));
    client.head().unwrap();
    let expected = pattern(LEN);
    let begun = Instant::now();
    let mut read = 0;
    // Three times as long as the time without progress that would end it.
    while begun.elapsed() < Duration::from_secs(3) {
        assert!(client.take(16 << 10).unwrap() == expected[read..read + (16 << 10)]);
        read += 16 << 10;
        sleep(Duration::from_millis(100));
    }
    assert!(client.take(LEN - read).unwrap() == expected[read..]);
    assert_eq!(client.get("/a").text(), "first");
}

#[test]
fn a_slow_reader_of_what_the_kernel_has_is_not_idle() {
    let site = Site::of(&[("a", b"first")]);
    site.write("short", &pattern(120_000));
    // Otherwise the last bytes are held back until the others have arrived.
    let site = site.with_site(|site| site.integrity = Integrity::Fast);
    let site = site.with(|settings| settings.timeout = Duration::from_secs(1)).start();
    let mut client = Client::new(narrow(site.socket(), 2 << 10));
    client.send(request("GET", "/short", &[]));
    client.head().unwrap();
    let expected = pattern(120_000);
    for part in expected.chunks(4000) {
        assert!(client.take(part.len()).unwrap() == part);
        sleep(Duration::from_millis(100));
    }
    let line = site.record("\"target\":\"/short\"");
    assert_eq!((&line["complete"], &line["acknowledged"]), (&true.into(), &120_000.into()));
}

#[test]
fn a_connection_that_asks_now_and_then_is_kept() {
    let site = site();
    let mut client = site.connect();
    for _ in 0..8 {
        assert_eq!(client.get("/a").text(), "first");
        sleep(Duration::from_millis(300));
    }
    drop(client);
    wait_until("it is closed", || site.metric("connections_open") == 1.0);
}

#[test]
fn a_trickling_unwanted_body_does_not_keep_a_connection() {
    let site = site();
    let started = Instant::now();
    let mut client = site.connect();
    client.send(request("PUT", "/a", &["Content-Length: 100000"]));
    let mut stream = client.stream.try_clone().unwrap();
    let trickle = std::thread::spawn(move || {
        while started.elapsed() < Duration::from_secs(60) && stream.write_all(b"x").is_ok() {
            sleep(Duration::from_millis(100));
        }
    });
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("Connection")), (405, Some("close")));
    assert!(client.is_closed());
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    trickle.join().unwrap();
}
