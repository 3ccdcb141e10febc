//! Connections that fail, and servers that do not work.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use underpass_client::download::{DownloadError, DownloadEvent, Downloader, Target};
use underpass_client::{ClientError, Url};

use crate::rig::{Client, Server, TAG, give, hang_up, head, noise, say};

const LEN: usize = 12 << 20;

#[test]
fn a_download_resumes_after_a_broken_connection() {
    for is_reset in [false, true] {
        for connections in [1, 3] {
            let bytes = noise(LEN);
            let body = Arc::clone(&bytes);
            let server = Server::start(move |request, stream| {
                let (head, range) = head(request, &body, TAG);
                if request.number > 2 {
                    return give(request, stream, &body, TAG);
                }
                say(stream, &head)?;
                let some = range.start..range.end.min(range.start + (2 << 20));
                stream.write_all(&body[some])?;
                if is_reset {
                    // Closing then sends a reset instead of an end, and drops buffered bytes.
                    set_socket_linger(&*stream, Some(Duration::ZERO)).unwrap();
                }
                hang_up()
            });
            let client = Client::with(connections);
            let done = client.gets(&server.url("/"), &bytes);
            assert_eq!(done.report.bytes(), LEN as u64, "something was moved twice");
        }
    }
}

#[test]
fn without_ranges_a_download_restarts_a_limited_number_of_times() {
    let bytes = noise(LEN);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        say(stream, &format!("HTTP/1.0 200 OK\nContent-Length: {LEN}\n\n"))?;
        stream.write_all(&body[..if request.number < 2 { LEN / 2 } else { LEN }])?;
        hang_up()
    });
    let mut client = Client::new();
    let done = client.gets(&server.url("/"), &bytes);
    assert_eq!(done.report.bytes(), 2 * LEN as u64);
    client.options.retries = 1;
    let never = Server::start(|_, stream| {
        say(stream, &format!("HTTP/1.0 200 OK\nContent-Length: {LEN}\n\nabc"))?;
        hang_up()
    });
    let client = Client { folder: Client::new().folder, ..client };
    client.fails(&never.url("/"), "ended before the last byte");
    assert_eq!(never.requests().len(), 2);
}

#[test]
fn interim_responses_are_no_progress() {
    let server = Server::start(|_, stream| {
        for _ in 0..90 {
            say(stream, "HTTP/1.1 102 Processing\n\n")?;
            std::thread::sleep(Duration::from_millis(200));
        }
        hang_up()
    });
    let mut client = Client::new();
    client.options.retries = 0;
    client.timeout = Duration::from_secs(1);
    let started = Instant::now();
    let failed = client.fails(&server.url("/"), "too little progress");
    assert!(failed.error.is_temporary());
    assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
}

#[test]
fn retry_after_is_respected_up_to_a_limit() {
    let bytes = noise(1000);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| match request.number {
        0 => say(stream, "HTTP/1.1 503 Busy\nRetry-After: 2\nContent-Length: 0\n\n"),
        _ => give(request, stream, &body, TAG),
    });
    let started = Instant::now();
    let client = Client::new();
    client.gets(&server.url("/"), &bytes);
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(client.events("Retrying"), 1);
    // A wait of an hour is too long for a download.
    let server = Server::start(|_, stream| {
        say(stream, "HTTP/1.1 429 Slow\nRetry-After: 3600\nContent-Length: 0\n\n")
    });
    Client::new().fails(&server.url("/"), "429");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn permanent_errors_are_not_retried() {
    for status in [400, 401, 403, 404, 410, 501] {
        let server = Server::start(move |_, stream| {
            let fields = "Content-Type: text/plain\nContent-Length: 10";
            say(stream, &format!("HTTP/1.1 {status} x\n{fields}\n\nno, sorry!"))
        });
        Client::new().fails(&server.url("/"), &format!("{status}"));
        assert_eq!(server.requests().len(), 1, "{status}");
    }
    std::thread::scope(|scope| {
        for status in [408, 429, 500, 502, 503, 504] {
            scope.spawn(move || {
                // The body of such a response ends with the connection, which stays open until the
                // timeout.
                let head = format!("HTTP/1.1 {status} x\n\n");
                let server = Server::start(move |_, stream| say(stream, &head));
                let mut client = Client::new();
                client.options.retries = 1;
                client.timeout = Duration::from_secs(3);
                client.fails(&server.url("/"), &format!("{status}"));
                assert_eq!(server.requests().len(), 2, "{status}");
            });
        }
    });
}

#[test]
fn a_silent_server_is_given_up_after_the_timeout() {
    for says in ["", "HTTP/1.1 200 OK\nContent-Le", "HTTP/1.1 200 OK\nContent-Length: 9\n\nabc"] {
        let server = Server::start(move |_, stream| {
            say(stream, says)?;
            std::thread::sleep(Duration::from_secs(60));
            hang_up()
        });
        let mut client = Client::new();
        client.timeout = Duration::from_millis(300);
        client.options.retries = 0;
        let failed = client.fails(&server.url("/"), "too little progress");
        let is_it = matches!(failed.error, DownloadError::Client(ClientError::TimedOut(_)));
        assert!(is_it, "{failed:?}");
    }
}

/// Sends `portion` now and then, for as long as the client stays.
fn drip(stream: &mut std::net::TcpStream, portion: &[u8]) -> std::io::Result<()> {
    loop {
        stream.write_all(portion)?;
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_byte_now_and_then_is_no_progress() {
    for (framing, portion) in
        [("Content-Length: 2000", "x"), ("Transfer-Encoding: chunked", "1\r\nx\r\n")]
    {
        let server = Server::start(move |_, stream| {
            say(stream, &format!("HTTP/1.1 200 OK\n{framing}\n\n"))?;
            drip(stream, portion.as_bytes())
        });
        let mut client = Client::new();
        (client.timeout, client.min_rate) = (Duration::from_millis(500), 1000);
        client.options.retries = 1;
        let failed = client.fails(&server.url("/"), "too little progress");
        let is_it = matches!(failed.error, DownloadError::Client(ClientError::TimedOut(_)));
        assert!(is_it, "{failed:?}");
        assert_eq!(server.requests().len(), 2, "{framing}");
    }
}

#[test]
fn bytes_of_small_chunks_count_once_for_the_minimum_rate() {
    let server = Server::start(|_, stream| {
        say(stream, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n")?;
        // At most 720 bytes a second.
        drip(stream, format!("1e\r\n{}\r\n", "x".repeat(30)).as_bytes())
    });
    let mut client = Client::new();
    (client.timeout, client.min_rate) = (Duration::from_millis(500), 1000);
    client.options.retries = 0;
    client.fails(&server.url("/"), "too little progress");
}

#[test]
fn a_byte_of_each_attempt_is_no_progress() {
    let body = noise(LEN);
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        // The first 2 MiB are enough for the partial file to be kept.
        let bytes = if request.number == 0 { 2 << 20 } else { 1 };
        stream.write_all(&body[range.start..range.start + bytes])?;
        hang_up()
    });
    let mut client = Client::with(1);
    client.options.retries = 2;
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(failed.to_string().contains("ended before the last byte"), "{failed}");
    let kept = failed.kept.unwrap();
    assert_eq!(kept.bytes, (2 << 20) + server.requests().len() as u64 - 1);
    assert!(server.requests().len() <= 4, "{}", server.requests().len());
}

#[test]
fn an_address_without_a_listener_is_reported_at_once() {
    let url = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap()
    };
    let client = Client::new();
    client.fails(&url, "refused");
    assert_eq!(client.events("Retrying"), 0);
}

#[test]
fn a_thread_that_panics_ends_the_download() {
    let server = Server::start(|request, stream| {
        let bytes = noise(4 * LEN);
        let (head, range) = head(request, &bytes, TAG);
        if request.number > 0 {
            return hang_up();
        }
        say(stream, &head)?;
        stream.write_all(&bytes[range])
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    let url = server.url("/");
    let download = std::thread::spawn(move || {
        // Dropped even on a panic.
        let _sender = sender;
        let client = Client::with(3);
        let folder = std::fs::File::open(client.folder.path()).unwrap().into();
        let target =
            Target::Named { folder: &folder, name: "file".as_ref(), if_exists: client.if_exists };
        let downloader = Downloader::new(client.agent(None), client.options.clone());
        let report =
            |event: &DownloadEvent<'_>| assert!(!matches!(event, DownloadEvent::Retrying { .. }));
        drop(downloader.fetch(&url, &target, &client.gauge, &report));
    });
    let ended = receiver.recv_timeout(Duration::from_secs(120));
    assert_eq!(ended, Err::<(), _>(std::sync::mpsc::RecvTimeoutError::Disconnected));
    assert!(download.join().is_err());
}

#[test]
fn failures_in_a_row_are_counted_once() {
    let bytes = noise(8 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        if request.number > 0 {
            return hang_up();
        }
        let (head, _) = head(request, &body, TAG);
        say(stream, &head)?;
        stream.write_all(&body[..2 << 20])?;
        hang_up()
    });
    let mut client = Client::with(1);
    client.options.retries = 2;
    assert!(client.get(&server.url("/")).is_err());
    assert_eq!(server.requests().len(), 3);
}
