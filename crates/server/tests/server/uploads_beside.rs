//! Uploads of a file, or into a folder, that others change meanwhile.

use std::fs;
use std::thread;
use std::time::Duration;

use super::rig::{Client, Running, request, wait_until};
use super::uploads::{names, open_site, put, put_by_another, send};

/// Begins a request with a body of two bytes, and waits until the server wants it.
fn begin(server: &Running, verb: &str, path: &str, field: &str) -> Client {
    let mut client = server.connect();
    let fields = [field, "Content-Length: 2", "Expect: 100-continue"];
    client.send(request(verb, path, &fields));
    assert_eq!(client.head().unwrap().status, 100);
    client
}

#[test]
fn no_change_of_several_at_once_is_lost() {
    let server = open_site().start();
    put(&server, "/log", &[], b"");
    thread::scope(|scope| {
        for first in [b'a', b'A'] {
            let server = &server;
            scope.spawn(move || {
                for letter in first..first + 25 {
                    let mut client = server.connect();
                    let line = [letter, letter, b'\n'];
                    send(&mut client, "PATCH", "/log", &["X-Update-Range: append"], &line);
                    assert_eq!(client.reply().status, 204);
                }
            });
        }
    });
    let log = fs::read_to_string(server.path("log")).unwrap();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    let letters = (b'A'..=b'Y').chain(b'a'..=b'y').map(|letter| char::from(letter).to_string());
    assert_eq!(lines, letters.map(|letter| letter.repeat(2)).collect::<Vec<_>>());
}

#[test]
fn a_partial_update_uses_the_file_at_the_time_of_its_commit() {
    // The range, what happens meanwhile, and the resulting content or the refusal.
    for (range, meanwhile, expected) in [
        ("append", Some("put"), Ok("later..")),
        ("append", Some("in place"), Ok("oldest..")),
        ("append", None, Err(404)),
        ("bytes=1-2", Some("put"), Ok("l..er")),
        ("bytes=-2", Some("in place"), Ok("olde..")),
        // The place is beyond the end.
        ("bytes=3-4", Some("shorter"), Err(416)),
    ] {
        let server = open_site().start();
        fs::write(server.path("file"), "old").unwrap();
        let mut client = begin(&server, "PATCH", "/file", &format!("X-Update-Range: {range}"));
        match meanwhile {
            Some("put") => drop(put(&server, "/file", &[], b"later")),
            Some("in place") => fs::write(server.path("file"), "oldest").unwrap(),
            Some(_) => fs::write(server.path("file"), "o").unwrap(),
            None => fs::remove_file(server.path("file")).unwrap(),
        }
        client.send("..");
        let status = client.reply().status;
        match expected {
            Ok(bytes) => {
                assert_eq!(status, 204, "{range} {meanwhile:?}");
                assert_eq!(fs::read_to_string(server.path("file")).unwrap(), bytes);
            }
            Err(refused) => assert_eq!(status, refused, "{range} {meanwhile:?}"),
        }
    }
}

#[test]
fn the_rest_of_a_file_is_not_appended_to_the_beginning_of_an_older_one() {
    let server = open_site().start();
    fs::write(server.path("file"), "old").unwrap();
    let mut client = begin(&server, "PUT", "/file", "Content-Range: bytes 3-4/5");
    put_by_another(&server, "/file", b"new");
    client.send("..");
    assert_eq!(client.reply().status, 503);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"new");
    // No part remains that the same mistake could complete.
    let mut client = begin(&server, "PUT", "/file", "Content-Range: bytes 3-4/5");
    client.send("..");
    assert_eq!(client.reply().status, 204);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"new..");
}

#[test]
fn an_upload_in_parts_does_not_replace_a_newer_file() {
    let server = open_site().start();
    let ranges = |first: usize| {
        [first..first + 2, first + 2..first + 4].map(|range| {
            format!("Content-Range: bytes {}-{}/{}", range.start, range.end - 1, first + 4)
        })
    };
    for (present, meanwhile, status, expected) in
        [("old", true, 503, "new"), ("new", false, 204, "new..::")]
    {
        fs::write(server.path("file"), present).unwrap();
        let [first, last] = ranges(present.len());
        assert_eq!(put(&server, "/file", &[&first], b"..").status, 202);
        let mut client = begin(&server, "PUT", "/file", &last);
        if meanwhile {
            put_by_another(&server, "/file", b"new");
        }
        client.send("::");
        assert_eq!(client.reply().status, status, "{meanwhile}");
        assert_eq!(fs::read_to_string(server.path("file")).unwrap(), expected);
    }
    // A whole file does not depend on the one that it replaces.
    let [first, last] = ranges(0);
    assert_eq!(put(&server, "/file", &[&first], b"AB").status, 202);
    let mut client = begin(&server, "PUT", "/file", &last);
    put_by_another(&server, "/file", b"new");
    client.send("CD");
    assert_eq!(client.reply().status, 204);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"ABCD");
}

/// Begins an upload to `/in/july/report`, has the folder moved, and returns how the upload ends.
fn moved_meanwhile(verb: &str, field: &str, replaced: bool, by: impl Fn(&Running)) -> u16 {
    let site = open_site().with_site(|site| site.changes.delete = true);
    fs::create_dir_all(site.path("in/july")).unwrap();
    fs::create_dir(site.path("archive")).unwrap();
    fs::write(site.path("in/july/report"), "approved").unwrap();
    let server = site.start();
    let mut client = begin(&server, verb, "/in/july/report", field);
    by(&server);
    if replaced {
        fs::create_dir(server.path("in/july")).unwrap();
    }
    client.send("..");
    let status = client.reply().status;
    assert_eq!(fs::read(server.path("archive/july/report")).unwrap(), b"approved", "{field}");
    assert!(!server.path("in/july/report").exists(), "{field}");
    let left = fs::read_dir(server.path("archive/july")).unwrap();
    assert_eq!(left.count(), 1, "{field}");
    status
}

#[test]
fn an_upload_does_not_follow_its_folder_to_another_place() {
    let by_request = |server: &Running| {
        let moved = server.ask("MOVE", "/in/july/", &["Destination: /archive/july/"]);
        assert_eq!(moved.status, 201);
    };
    let by_program = |server: &Running| {
        fs::rename(server.path("in/july"), server.path("archive/july")).unwrap();
    };
    for replaced in [false, true] {
        for (verb, field) in [
            ("PUT", "X-A: b"),
            ("PUT", "Upload-Complete: ?1"),
            ("PUT", "Content-Range: bytes 0-1/2"),
            ("PATCH", "X-Update-Range: append"),
        ] {
            assert_eq!(moved_meanwhile(verb, field, replaced, by_request), 409, "{field}");
            assert_eq!(moved_meanwhile(verb, field, replaced, by_program), 409, "{field}");
        }
    }
}

#[test]
fn a_newer_upload_leaves_the_connection_of_one_that_has_arrived() {
    const LEN: usize = 24 << 20;
    let server = open_site().start();
    let newer: [(&str, &[u8]); 2] = [("X-A: b", b"new"), ("Content-Range: bytes 0-3/4", b"more")];
    for (field, body) in newer {
        let mut older = server.connect();
        // To compare this with the digest takes a while.
        let digest = format!("Repr-Digest: sha-512=:{}==:", "A".repeat(86));
        let range = format!("Content-Range: bytes 0-{}/{LEN}", LEN - 1);
        send(&mut older, "PUT", "/file", &[&range, &digest], &vec![0; LEN]);
        wait_until("all of it is here", || {
            let part = names(&server).into_iter().find(|name| name.ends_with(".upload"));
            part.is_some_and(|part| {
                fs::metadata(server.path(&part)).is_ok_and(|it| it.len() == LEN as u64)
            })
        });
        // The server still has to notice that.
        thread::sleep(Duration::from_millis(20));
        assert!(put(&server, "/file", &[field], body).status < 300);
        assert_eq!(older.reply().status, 400);
        assert_eq!(older.get("/file").body, body);
    }
}

#[test]
fn an_upload_that_a_newer_one_cuts_off_stores_nothing() {
    let server = open_site().start();
    put(&server, "/counter", &[], b"100000");
    let stored: usize = thread::scope(|scope| {
        let count = || {
            (0..100).filter(|_| {
                let before = server.get("/counter");
                let next = before.text().parse::<u32>().unwrap() + 1;
                let version = format!("If-Match: {}", before.field("ETag").unwrap());
                let fields = [&version, "Content-Range: bytes 0-5/6"];
                let mut client = server.connect();
                send(&mut client, "PUT", "/counter", &fields, next.to_string().as_bytes());
                client.try_reply(true).is_ok_and(|reply| reply.status == 204)
            })
        };
        let counting: Vec<_> = (0..4).map(|_| scope.spawn(move || count().count())).collect();
        counting.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(stored > 0);
    assert_eq!(server.get("/counter").text(), (100_000 + stored).to_string());
}
