//! The responses of servers: every framing, odd heads, and contradictions.

use std::fs;
use std::io::{Error, ErrorKind, Read, Write};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime};

use crate::rig::{Client, Server, give, hang_up, head, noise, say};

#[test]
fn every_framing_of_a_body_is_understood() {
    let bytes = noise(3 << 20);
    for framing in ["length", "until the end", "chunks", "medium chunks", "small chunks"] {
        let body = bytes.clone();
        let server = Server::start(move |_, stream| match framing {
            "length" => {
                say(stream, &format!("HTTP/1.1 200 OK\nContent-Length: {}\n\n", body.len()))?;
                stream.write_all(&body)
            }
            "until the end" => {
                say(stream, "HTTP/1.0 200 OK\n\n")?;
                stream.write_all(&body)?;
                hang_up()
            }
            _ => {
                say(stream, "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n")?;
                let len = match framing {
                    "small chunks" => 4_001,
                    "medium chunks" => 12 << 10,
                    _ => 1 << 20,
                };
                for chunk in body.chunks(len) {
                    say(stream, &format!("{:x};note=1\n", chunk.len()))?;
                    stream.write_all(chunk)?;
                    say(stream, "\n")?;
                }
                say(stream, "0\nTrailer: x\n\n")
            }
        });
        for connections in [1, 4] {
            let done = Client::with(connections).gets_anyhow(&server.url("/"), &bytes);
            assert_eq!(done.connections, 1, "{framing}");
            // To copy small chunks costs less.
            let copied = if framing == "small chunks" { 2 * bytes.len() as u64 } else { 0 };
            assert_eq!(done.report.user_space_bytes(), copied, "{framing}");
        }
    }
}

#[test]
fn an_empty_file_is_downloaded_with_any_number_of_connections() {
    let bytes = noise(0);
    let server = Server::of(&bytes);
    // Several connections request a part, which an empty file does not have.
    for connections in [1, 4] {
        Client::with(connections).gets(&server.url("/"), &bytes);
    }
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn a_head_that_comes_in_single_bytes_is_read_without_the_body() {
    let bytes = noise(2 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, "\"x\"");
        for byte in head.replace('\n', "\r\n").bytes() {
            stream.write_all(&[byte])?;
        }
        stream.write_all(&body[range])
    });
    Client::new().gets(&server.url("/"), &bytes);
}

#[test]
fn interim_responses_are_skipped_up_to_a_limit() {
    let bytes = noise(100);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        say(stream, "HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: </x>\n\n")?;
        give(request, stream, &body, "\"x\"")
    });
    Client::new().gets(&server.url("/"), &bytes);
    let endless = Server::start(|_, stream| {
        (0..10_000).try_for_each(|_| say(stream, "HTTP/1.1 100 Continue\n\n"))
    });
    Client::new().fails(&endless.url("/"), "too many interim answers");
    let other = Server::start(|_, stream| say(stream, "HTTP/1.1 101 Switching Protocols\n\n"));
    Client::new().fails(&other.url("/"), "invalid response");
}

#[test]
fn malformed_or_endless_heads_are_refused() {
    for (answer, words) in [
        ("SSH-2.0-OpenSSH\n\n".to_owned(), "invalid response"),
        (format!("HTTP/1.1 200 OK\nX: {}\n\n", "x".repeat(100_000)), "too long"),
        ("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\n".to_owned(), "Content-Length"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n".to_owned(), "transfer coding"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nxyz\n".to_owned(), "unexpected byte"),
        ("HTTP/1.1 404 Not Found\nContent-Length: 0\n\n".to_owned(), "404 Not Found"),
    ] {
        let server = Server::start(move |_, stream| say(stream, &answer));
        Client::new().fails(&server.url("/"), words);
        assert_eq!(server.requests().len(), 1, "{words}");
    }
}

#[test]
fn a_part_without_a_total_length_leads_to_a_request_for_the_whole() {
    let bytes = noise(20 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, "\"x\"");
        say(stream, &head.replace(&format!("/{}\n", body.len()), "/*\n"))?;
        stream.write_all(&body[range])
    });
    Client::with(4).gets(&server.url("/"), &bytes);
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn an_endless_refusal_causes_no_wait() {
    for head in
        ["Content-Type: text/html\nContent-Length: 9\n\nabc", "Content-Type: text/plain\n\n"]
    {
        let (gone, is_gone) = channel();
        let server = Server::start(move |_, stream| {
            say(stream, &format!("HTTP/1.1 404 Not Found\n{head}"))?;
            // Waits until the client leaves, or much longer than it may stay.
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            let is_late = |error: &Error| error.kind() == ErrorKind::WouldBlock;
            let _ = gone.send(!stream.read(&mut [0]).as_ref().is_err_and(is_late));
            hang_up()
        });
        Client::new().fails(&server.url("/"), "404 Not Found");
        assert!(is_gone.recv().unwrap(), "{head}");
    }
}

#[test]
fn a_refusal_sent_byte_by_byte_causes_no_wait() {
    let (gone, is_gone) = channel();
    let server = Server::start(move |_, stream| {
        say(stream, "HTTP/1.1 404 No\nContent-Type: text/plain\nContent-Length: 4000\n\n")?;
        // Writes until the client leaves, or much longer than it may stay.
        let has_left = (0..40).any(|_| {
            thread::sleep(Duration::from_millis(500));
            stream.write_all(b"a").is_err()
        });
        let _ = gone.send(has_left);
        hang_up()
    });
    Client::new().fails(&server.url("/"), "404 Not Found");
    assert!(is_gone.recv().unwrap());
}

#[test]
fn a_part_must_be_the_requested_one() {
    let bytes = noise(40 << 20);
    for (range, words) in [
        ("bytes 1-16777215/41943040", "other bytes"),
        ("bytes 0-16777216/41943040", "other bytes"),
        ("bytes 0-99/41943040", "contradicts"),
        ("bytes 0-16777215/16777215", "valid Content-Range"),
        ("bytes 5-4/41943040", "valid Content-Range"),
        ("bytes */41943040", "valid Content-Range"),
        ("pages 0-16777215/41943040", "valid Content-Range"),
        ("", "valid Content-Range"),
    ] {
        let server = Server::start(move |_, stream| {
            let len = 16 << 20;
            let field = format!("Content-Range: {range}\nETag: \"x\"\nContent-Length: {len}\n\n");
            say(stream, &format!("HTTP/1.1 206 Partial\n{field}"))
        });
        Client::with(4).fails(&server.url("/"), words);
    }
    // Less than requested is allowed (RFC 9110 15.3.7); the rest must be requested next.
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let range = request.range(body.len()).unwrap();
        let range = range.start..range.end.min(range.start + (5 << 20));
        let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, body.len());
        let fields =
            format!("Content-Range: {content_range}\nETag: \"x\"\nContent-Length: {}", range.len());
        say(stream, &format!("HTTP/1.1 206 Partial\n{fields}\n\n"))?;
        stream.write_all(&body[range])
    });
    Client::with(2).gets(&server.url("/"), &bytes);
}

#[test]
fn a_part_may_come_in_chunks_or_until_the_end() {
    let bytes = noise(20 << 20);
    for is_chunked in [true, false] {
        let body = bytes.clone();
        let server = Server::start(move |request, stream| {
            let range = request.range(body.len()).unwrap();
            let content_range = format!("bytes {}-{}/{}", range.start, range.end - 1, body.len());
            let coding = if is_chunked { "Transfer-Encoding: chunked\n" } else { "" };
            let fields = format!("Content-Range: {content_range}\nETag: \"x\"\n{coding}");
            say(stream, &format!("HTTP/1.1 206 Partial\n{fields}\n"))?;
            if !is_chunked {
                stream.write_all(&body[range])?;
                return hang_up();
            }
            for chunk in body[range].chunks(1_000_000) {
                say(stream, &format!("{:x}\n", chunk.len()))?;
                stream.write_all(chunk)?;
                say(stream, "\n")?;
            }
            say(stream, "0\n\n")
        });
        Client::with(3).gets(&server.url("/"), &bytes);
    }
}

#[test]
fn a_part_sent_as_a_200_is_not_treated_as_the_whole() {
    const PART: usize = 16 << 20;
    let bytes = noise(20 << 20);
    for (range, always) in [
        ("bytes 0-16777215/*", false),
        ("bytes=0-16777215/20971520", false),
        ("0-16777215/20971520", false),
        ("bytes 0-16777215/unknown", false),
        ("bytes 0-16777215/20971520", false),
        ("bytes 0-20971519/20971520", false),
        ("bytes 0-16777215/20971520\nContent-Range: bytes 0-16777215/16777216", false),
        ("bytes 0-16777215/*", true),
    ] {
        let body = bytes.clone();
        let server = Server::start(move |request, stream| {
            let is_part = always || request.field("range").is_some();
            let sent = if is_part { &body[..PART] } else { &body[..] };
            let field = if is_part { format!("Content-Range: {range}\n") } else { String::new() };
            let fields = format!("{field}ETag: \"x\"\nContent-Length: {}", sent.len());
            say(stream, &format!("HTTP/1.1 200 OK\n{fields}\n\n"))?;
            stream.write_all(sent)
        });
        if always {
            drop(Client::with(2).fails(&server.url("/"), "a part instead of the whole"))
        } else {
            drop(Client::with(2).gets(&server.url("/"), &bytes))
        }
        assert_eq!(server.requests().len(), 2, "{range}");
    }
}

#[test]
fn the_file_gets_its_modification_time_unless_disabled() {
    let bytes = noise(10);
    let server = Server::start(|_, stream| {
        let date = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
        say(stream, &format!("HTTP/1.1 200 OK\n{date}\nContent-Length: 2\n\nok"))
    });
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let mut client = Client::new();
    client.get(&server.url("/")).unwrap();
    assert_eq!(fs::metadata(client.path()).unwrap().modified().unwrap(), time);
    client.options.keep_time = false;
    client.get(&server.url("/")).unwrap();
    assert!(fs::metadata(client.path()).unwrap().modified().unwrap() > time);
    drop(bytes);
}

#[test]
fn a_file_larger_than_the_disk_is_refused_before_its_first_byte() {
    let server = Server::start(|_, stream| {
        let head = "HTTP/1.1 200 OK\nETag: \"x\"\nAccept-Ranges: bytes\n";
        say(stream, &format!("{head}Content-Length: {}\n\n", u64::MAX / 4))
    });
    Client::new().fails(&server.url("/"), "are free");
}

#[test]
fn an_unrequested_coding_is_refused() {
    let bytes = noise(1000);
    let serve = |coding: &'static str| {
        let body = bytes.clone();
        Server::start(move |_, stream| {
            let fields = format!("Content-Encoding: {coding}\nContent-Length: {}", body.len());
            say(stream, &format!("HTTP/1.1 200 OK\n{fields}\n\n"))?;
            stream.write_all(&body)
        })
    };
    for coding in ["gzip", "GZip", "br", "identity, gzip", "gzip\nContent-Encoding: br", "new"] {
        for connections in [1, 4] {
            let server = serve(coding);
            let failed = Client::with(connections).fails(&server.url("/page"), "Content-Encoding ");
            assert!(failed.to_string().contains("not requested"), "{failed}");
            assert_eq!(server.requests().len(), 1, "{coding}");
        }
    }
    // Values that are no coding, and files that are named after their coding.
    for (coding, path) in [
        ("identity", "/page"),
        ("aws-chunked", "/page"),
        ("", "/page"),
        ("utf-8", "/page"),
        ("gzip", "/a.tar.gz"),
        ("x-gzip", "/a.TGZ"),
        ("zstd", "/a.zst"),
    ] {
        Client::with(1).gets(&serve(coding).url(path), &bytes);
    }
    let mut client = Client::with(1);
    client.headers = vec![("accept-encoding".to_owned(), "gzip".to_owned())];
    client.gets(&serve("gzip").url("/page"), &bytes);
}
