//! Files that change on the server while they are fetched: two versions are never mixed.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use underpass_client::download::{DownloadError, Downloader, Missing, Target, TargetError};

use crate::rig::{Client, Server, give, hang_up, head, noise, say};

const LEN: usize = 24 << 20;

/// Another file of the same length.
fn other() -> Arc<Vec<u8>> {
    Arc::new(noise(LEN).iter().map(|byte| !byte).collect())
}

#[test]
fn a_file_that_is_replaced_midway_is_fetched_anew() {
    for connections in [1, 4] {
        let (old, new) = (noise(LEN), other());
        let expected = new.clone();
        let server = Server::start(move |request, stream| {
            if request.number == 0 {
                let (head, range) = head(request, &old, "\"old\"");
                say(stream, &head)?;
                stream.write_all(&old[range.start..range.start + (8 << 20)])?;
                return hang_up();
            }
            give(request, stream, &new, "\"new\"")
        });
        let client = Client::with(connections);
        client.gets(&server.url("/"), &expected);
        assert_eq!(client.events("StartingOver"), 1);
    }
}

#[test]
fn a_server_that_ignores_if_range_is_detected_by_its_tag() {
    let (old, new) = (noise(LEN), other());
    let expected = new.clone();
    let server = Server::start(move |request, stream| {
        let (bytes, tag) = if request.number == 0 { (&old, "\"old\"") } else { (&new, "\"new\"") };
        let range = request.range(LEN).unwrap();
        let content_range = format!("bytes {}-{}/{LEN}", range.start, range.end - 1);
        let fields =
            format!("Content-Range: {content_range}\nETag: {tag}\nContent-Length: {}", range.len());
        say(stream, &format!("HTTP/1.1 206 Partial\n{fields}\n\n"))?;
        stream.write_all(&bytes[range])
    });
    Client::with(4).gets(&server.url("/"), &expected);
}

/// Serves the first part of one file with a tag, and all others of another file with these fields.
fn mixed(first: &'static str, later: &'static str) -> Server {
    let (old, new) = (noise(LEN), other());
    Server::start(move |request, stream| {
        let (bytes, fields) = if request.number == 0 { (&old, first) } else { (&new, later) };
        let range = request.range(LEN).unwrap_or(0..LEN);
        let content_range = format!("bytes {}-{}/{LEN}", range.start, range.end - 1);
        let head = match request.field("range") {
            Some(_) => format!("206 Partial\nContent-Range: {content_range}"),
            None => "200 OK".to_owned(),
        };
        say(stream, &format!("HTTP/1.1 {head}\n{fields}Content-Length: {}\n\n", range.len()))?;
        match request.number {
            0 => {
                stream.write_all(&bytes[range.start..range.start + (8 << 20)])?;
                hang_up()
            }
            _ => stream.write_all(&bytes[range]),
        }
    })
}

#[test]
fn a_part_without_the_tag_of_the_others_is_of_another_version() {
    for connections in [1, 2] {
        for later in ["", "ETag: W/\"old\"\n", "Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT\n"] {
            // The second download gets no version at all, and fetches everything from the start.
            let server = mixed("ETag: \"old\"\nAccept-Ranges: bytes\n", later);
            let client = Client::with(connections);
            client.gets(&server.url("/"), &other());
            assert_eq!(client.events("StartingOver"), 1, "{connections} {later}");
        }
    }
}

#[test]
fn a_response_without_a_version_discards_no_received_bytes() {
    // All requests, or only one of them, are answered with a proxy's page.
    for (connections, pages) in [(1, 1), (4, 1), (1, 99), (4, 99)] {
        let is_well = Arc::new(AtomicBool::new(false));
        let (bytes, well) = (noise(LEN), is_well.clone());
        let server = Server::start(move |request, stream| match request.number {
            0 => {
                let (head, range) = head(request, &bytes, "\"v\"");
                say(stream, &head)?;
                stream.write_all(&bytes[range.start..range.start + (8 << 20)])?;
                hang_up()
            }
            number if number <= pages && !well.load(Ordering::Relaxed) => {
                say(stream, "HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 5\n\nsorry")
            }
            _ => give(request, stream, &bytes, "\"v\""),
        });
        let mut client = Client::with(connections);
        client.options.retries = 2;
        if pages > 1 {
            let failed = client.get(&server.url("/")).unwrap_err();
            assert!(
                matches!(failed.error, DownloadError::Missing(Missing::Validator)),
                "{failed:?}"
            );
            assert_eq!(failed.kept.unwrap().bytes, 8 << 20);
            assert_eq!(client.names(), ["file.part", "file.part.journal"]);
            is_well.store(true, Ordering::Relaxed);
        }
        client.gets(&server.url("/"), &noise(LEN));
        assert_eq!(client.events("StartingOver"), 0, "{connections} {pages}");
    }
}

#[test]
fn another_tag_is_of_another_version_whatever_its_date() {
    let date =
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\nLast-Modified: Sun, 06 Nov 1994 08:49:30 GMT\n";
    let first = format!("{date}ETag: W/\"old\"\nAccept-Ranges: bytes\n").leak();
    let later = format!("{date}ETag: W/\"new\"\nAccept-Ranges: bytes\n").leak();
    for connections in [1, 4] {
        let server = mixed(first, later);
        let client = Client::with(connections);
        client.gets(&server.url("/"), &other());
        assert_eq!(client.events("StartingOver"), 1);
    }
    // Some servers forget the quotes, or write other characters than RFC 9110 8.8.3 allows.
    for [old, new] in [["1", "2"], ["'1'", "'2'"], ["w/\"1\"", "w/\"2\""], ["\"a 1\"", "\"a 2\""]] {
        let [first, later] =
            [old, new].map(|tag| format!("{date}ETag: {tag}\nAccept-Ranges: bytes\n"));
        let server = mixed(first.leak(), later.leak());
        let client = Client::with(1);
        client.gets(&server.url("/"), &other());
        assert_eq!(client.events("StartingOver"), 1, "{old}");
    }
    // A later process compares with the version in the journal.
    let server = mixed(first, later);
    let mut client = Client::with(1);
    client.options.retries = 0;
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(failed.kept.is_some(), "{failed:?}");
    client.gets(&server.url("/"), &other());
    assert_eq!(client.events("StartingOver"), 1);
    // The same weak tag, or none, does not contradict the date.
    for tag in ["ETag: W/\"x\"\n", "ETag: \"x\"\n", ""] {
        let bytes = noise(LEN);
        let body = bytes.clone();
        let server = Server::start(move |request, stream| {
            let (head, range) = head(request, &body, request.field("if-range").unwrap_or("x"));
            let tag = if request.number == 0 { "ETag: W/\"x\"\n" } else { tag };
            let (before, after) = head.split_once("ETag: ").unwrap();
            let after = after.split_once('\n').unwrap().1;
            say(stream, &format!("{before}{date}{tag}{after}"))?;
            if request.number == 0 {
                stream.write_all(&body[range.start..range.start + (4 << 20)])?;
                return hang_up();
            }
            stream.write_all(&body[range])
        });
        let client = Client::with(1);
        client.gets(&server.url("/"), &bytes);
        assert_eq!(client.events("StartingOver"), 0, "{tag}");
    }
}

#[test]
fn parts_of_unknown_versions_are_not_combined() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let dates = format!("Last-Modified: {date}\nDate: {date}\n");
    let weak = "ETag: W/\"same\"\n".to_owned();
    let files = (noise(LEN), other());
    for fields in [String::new(), weak, format!("Last-Modified: {date}\n"), dates] {
        let (old, new) = files.clone();
        let said = fields.clone();
        let server = Server::start(move |request, stream| {
            // The file changes between the first two requests.
            let bytes = if request.number == 0 { &old } else { &new };
            let (head, range) = head(request, bytes, "x");
            say(stream, &head.replace("ETag: x\n", &said))?;
            stream.write_all(&bytes[range])
        });
        let client = Client::with(2);
        client.gets(&server.url("/"), &files.1);
        let requests = server.requests();
        assert!(
            requests.len() == 2 && requests[1].field("range").is_none(),
            "{fields}: {requests:?}"
        );
    }
}

#[test]
fn a_short_file_without_a_version_is_fetched_by_one_request() {
    let bytes = noise(2 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, "x");
        say(stream, &head.replace("ETag: x\n", ""))?;
        stream.write_all(&body[range])
    });
    Client::with(2).gets(&server.url("/"), &bytes);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn the_version_of_an_empty_part_is_not_that_of_later_bytes() {
    for connections in [1, 4] {
        let (old, new) = (noise(LEN), other());
        let server = Server::start(move |request, stream| match request.number {
            0 => {
                let head = "HTTP/1.1 200 OK\nETag: \"old\"\nAccept-Ranges: bytes\n";
                say(stream, &format!("{head}Transfer-Encoding: chunked\n\n"))?;
                hang_up()
            }
            // One of several servers has the new version already, and closes the connection early.
            1 => {
                let (head, range) = head(request, &new, "\"new\"");
                say(stream, &head)?;
                stream.write_all(&new[range.start..range.start + (8 << 20)])?;
                hang_up()
            }
            _ => give(request, stream, &old, "\"old\""),
        });
        let client = Client::with(connections);
        let done = client.get(&server.url("/")).unwrap();
        let found = fs::read(client.path()).unwrap();
        assert!(found == *noise(LEN), "a mixture, called {:?}", done.version);
    }
}

#[test]
fn parts_of_several_servers_are_resumed_only_if_a_digest_is_compared() {
    let (right, wrong) = (noise(LEN), other());
    let is_well = Arc::new(AtomicBool::new(false));
    let (bytes, well) = (right.clone(), is_well.clone());
    let first = Server::start(move |request, stream| {
        if well.load(Ordering::Relaxed) {
            return give(request, stream, &bytes, "\"right\"");
        }
        if request.number > 0 {
            return say(stream, "HTTP/1.1 404 x\nContent-Length: 0\n\n");
        }
        let (head, range) = head(request, &bytes, "\"right\"");
        say(stream, &head)?;
        stream.write_all(&bytes[range.start..range.start + (4 << 20)])?;
        // Waits until the other server has sent a part.
        std::thread::sleep(std::time::Duration::from_millis(300));
        hang_up()
    });
    let mirror = Server::start(move |request, stream| {
        if request.number > 0 {
            return say(stream, "HTTP/1.1 404 x\nContent-Length: 0\n\n");
        }
        let (head, range) = head(request, &wrong, "\"wrong\"");
        say(stream, &head)?;
        stream.write_all(&wrong[range.start..range.start + (2 << 20)])?;
        hang_up()
    });
    let mut client = Client::with(2);
    client.options.expected = vec![format!("sha-256:{}", "0".repeat(64)).parse().unwrap()];
    client.options.retries = 0;
    let folder: OwnedFd = fs::File::open(client.folder.path()).unwrap().into();
    let name = OsStr::new("file");
    let target = Target::Named { folder: &folder, name, if_exists: client.if_exists };
    let downloader = Downloader::new(client.agent(None), client.options.clone());
    let downloader = downloader.with_mirrors(vec![(client.agent(None), mirror.url("/"))]);
    let failed = downloader.fetch(&first.url("/"), &target, &client.gauge, &|_| {});
    assert!(failed.is_err(), "{failed:?}");
    assert_eq!(client.names(), ["file.part", "file.part.journal"]);
    is_well.store(true, Ordering::Relaxed);
    // Without a digest, only the URL tells which server is right.
    client.options.expected.clear();
    client.gets(&first.url("/"), &right);
}

#[test]
fn a_download_that_starts_over_leaves_the_partial_file_of_another_one() {
    let (old, new) = (noise(LEN), other());
    let (begin, begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let (end, may_end) = channel::<()>();
    let waits = Mutex::new((may_go_on, may_end));
    let (first, second) = (old, new.clone());
    let server = Server::start(move |request, stream| match request.number {
        0 => {
            say(stream, &head(request, &first, "\"old\"").0)?;
            stream.write_all(&first[..8 << 20])?;
            hang_up()
        }
        1 => give(request, stream, &second, "\"new\""),
        // The first download has started over: it waits until the other one has the partial file.
        2 => {
            begin.send(()).unwrap();
            waits.lock().unwrap().0.recv().unwrap();
            give(request, stream, &second, "\"new\"")
        }
        _ => {
            let (head, range) = head(request, &second, "\"new\"");
            say(stream, &head)?;
            stream.write_all(&second[range.start..8 << 20])?;
            waits.lock().unwrap().1.recv().unwrap();
            stream.write_all(&second[8 << 20..range.end])
        }
    });
    let (one, two) = (Client::with(1), Client::with(1));
    let folder: OwnedFd = fs::File::open(one.folder.path()).unwrap().into();
    let fetch = |client: &Client| {
        let name = OsStr::new("file");
        let target = Target::Named { folder: &folder, name, if_exists: client.if_exists };
        let downloader = Downloader::new(client.agent(None), client.options.clone());
        downloader.fetch(&server.url("/"), &target, &client.gauge, &|_| {})
    };
    std::thread::scope(|scope| {
        let loser = scope.spawn(|| fetch(&one));
        begun.recv().unwrap();
        let winner = scope.spawn(|| fetch(&two));
        while two.gauge.done() == 0 {
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
        let failed = loser.join().unwrap().unwrap_err();
        assert!(matches!(failed.error, DownloadError::Target(TargetError::Busy)), "{failed:?}");
        assert_eq!(one.names(), ["file.part", "file.part.journal"]);
        end.send(()).unwrap();
        winner.join().unwrap().unwrap();
    });
    assert_eq!(one.names(), ["file"]);
    assert!(fs::read(one.path()).unwrap() == *new, "other bytes");
}

#[test]
fn servers_of_one_name_with_different_tags_give_one_version() {
    let bytes = noise(LEN);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        give(request, stream, &body, if request.number % 2 == 0 { "\"0\"" } else { "\"1\"" })
    });
    Client::with(4).gets(&server.url("/"), &bytes);
}

#[test]
fn a_part_need_not_repeat_the_date_of_the_others() {
    let dates =
        "Date: Sun, 06 Nov 1994 08:49:37 GMT\nLast-Modified: Sun, 06 Nov 1994 08:49:30 GMT\n";
    let bytes = noise(LEN);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let tag = request.field("if-range").unwrap_or("x");
        let (head, range) = head(request, &body, tag);
        let fields = if request.number == 0 { dates } else { "" };
        say(stream, &head.replace(&format!("ETag: {tag}\n"), fields))?;
        if request.number == 0 {
            stream.write_all(&body[range.start..range.start + (4 << 20)])?;
            return hang_up();
        }
        stream.write_all(&body[range])
    });
    let client = Client::with(1);
    client.gets(&server.url("/"), &bytes);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(client.events("StartingOver"), 0);
}

#[test]
fn a_file_that_never_stays_the_same_is_given_up() {
    let bytes = noise(LEN);
    let server = Server::start(move |request, stream| {
        let tag = format!("\"{}\"", request.number);
        let (head, range) = head(request, &bytes, &tag);
        say(stream, &head)?;
        stream.write_all(&bytes[range.start..(range.start + (2 << 20)).min(range.end)])?;
        hang_up()
    });
    let client = Client::new();
    let failed = client.fails(&server.url("/"), "changed");
    assert!(matches!(failed.error, DownloadError::Changed), "{failed:?}");
    assert!(client.events("StartingOver") > 1);
}

#[test]
fn our_409_for_a_replaced_file_means_starting_over() {
    for status in [409, 412, 416] {
        let bytes = noise(LEN);
        let body = bytes.clone();
        let server = Server::start(move |request, stream| match request.number {
            0 => {
                say(stream, &head(request, &body, "\"x\"").0)?;
                stream.write_all(&body[..4 << 20])?;
                hang_up()
            }
            1 => say(stream, &format!("HTTP/1.1 {status} x\nContent-Length: 0\n\n")),
            _ => give(request, stream, &body, "\"x\""),
        });
        let client = Client::new();
        client.gets(&server.url("/"), &bytes);
        assert_eq!(client.events("StartingOver"), 1, "{status}");
    }
}

#[test]
fn without_a_strong_validator_no_parts_are_combined() {
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\n";
    for (fields, is_usable) in [
        ("ETag: W/\"x\"\n".to_owned(), false),
        ("ETag: x\n".to_owned(), false),
        ("Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT\n".to_owned(), false),
        (format!("{date}Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n"), false),
        (format!("{date}Last-Modified: Sun, 06 Nov 1994 08:49:36 GMT\n"), true),
        (format!("{date}ETag: W/\"x\"\nLast-Modified: Sun, 06 Nov 1994 08:49:30 GMT\n"), true),
        ("ETag: \"x\"\n".to_owned(), true),
    ] {
        let bytes = noise(LEN);
        let (body, new_fields) = (bytes.clone(), fields.clone());
        let server = Server::start(move |request, stream| {
            let (head, range) = head(request, &body, "\"x\"");
            // The server sends the requested range in any case: the client must be careful.
            let head = head.replace("ETag: \"x\"\n", &new_fields);
            say(stream, &head)?;
            if request.number == 0 {
                stream.write_all(&body[range.start..range.start + (4 << 20)])?;
                return hang_up();
            }
            stream.write_all(&body[range])
        });
        Client::new().gets(&server.url("/"), &bytes);
        let second = server.requests()[1].clone();
        assert_eq!(second.field("if-range").is_some(), is_usable, "{fields}: {}", second.head);
        assert_eq!(second.field("range").is_some(), is_usable, "{fields}: {}", second.head);
    }
}

#[test]
fn a_change_after_bytes_went_down_a_pipe_is_an_error() {
    let (old, new) = (noise(LEN), other());
    let server = Server::start(move |request, stream| {
        if request.number == 0 {
            say(stream, &head(request, &old, "\"old\"").0)?;
            stream.write_all(&old[..4 << 20])?;
            return hang_up();
        }
        give(request, stream, &new, "\"new\"")
    });
    let client = Client::new();
    let file = fs::File::options().write(true).open("/dev/null").unwrap();
    let downloader = Downloader::new(client.agent(None), client.options.clone());
    let target = Target::Stream { file: &file, at: 0 };
    let gauge = underpass_client::download::Gauge::default();
    let failed = downloader.fetch(&server.url("/"), &target, &gauge, &|_| {}).unwrap_err();
    assert!(matches!(failed.error, DownloadError::Changed), "{failed:?}");
}
