//! Resumable uploads of the IETF draft: an upload has its own address from its first request, and
//! can be resumed there, whatever happens meanwhile.

use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;

use super::rig::{Client, Reply, Running, Site, pattern, request, wait_for, wait_until};
use super::uploads::{leave, names, open_site, put, send};

const TOTAL: usize = 3_000_000;

/// Begins an upload and reads where it can be resumed; the body is still to be sent.
fn begin(server: &Running, path: &str, fields: &[&str]) -> (Client, String) {
    let mut client = server.connect();
    client.send(request("PUT", path, &[fields, &["Upload-Draft-Interop-Version: 8"]].concat()));
    let interim = client.head().unwrap();
    assert_eq!(interim.status, 104, "{interim:?}");
    assert!(interim.field("Upload-Limit").is_some());
    assert_eq!(interim.field("Upload-Draft-Interop-Version"), Some("8"));
    let location = interim.upload_of(path);
    (client, location)
}

/// An upload of which the first bytes arrived before its client left.
fn broken(server: &Running, path: &str, sent: usize) -> String {
    let length = format!("Content-Length: {TOTAL}");
    let (mut client, location) = begin(server, path, &["Upload-Complete: ?1", &length]);
    client.send(&pattern(TOTAL)[..sent]);
    leave(server, client);
    assert_eq!(offset(server, &location), Some(sent as u64));
    location
}

fn head(server: &Running, location: &str) -> Reply {
    server.ask("HEAD", location, &[])
}

fn offset(server: &Running, location: &str) -> Option<u64> {
    let reply = head(server, location);
    assert!(matches!(reply.status, 204 | 404), "{reply:?}");
    reply.field("Upload-Offset").map(|offset| offset.parse().unwrap())
}

/// Sends a piece, and reads the reply.
fn patch(server: &Running, location: &str, at: usize, is_last: bool, body: &[u8]) -> Reply {
    let mut client = server.connect();
    let complete = format!("Upload-Complete: ?{}", u8::from(is_last));
    let at = format!("Upload-Offset: {at}");
    let fields = [complete.as_str(), &at, "Content-Type: application/partial-upload"];
    send(&mut client, "PATCH", location, &fields, body);
    client.reply()
}

/// The names of parts in the folder.
fn parts(server: &Running) -> usize {
    names(server).iter().filter(|name| name.ends_with(".upload")).count()
}

#[test]
fn an_upload_in_one_request_is_an_upload() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?1", "Content-Length: 3000000"];
    let (mut client, location) = begin(&server, "/a%20file", &fields);
    client.send(pattern(TOTAL));
    let reply = client.reply();
    assert_eq!((reply.status, reply.field("Upload-Complete")), (201, Some("?1")));
    assert_eq!(reply.field("ETag"), server.get("/a%20file").field("ETag"));
    assert!(fs::read(server.path("a file")).unwrap() == pattern(TOTAL));
    assert_eq!(names(&server), ["a file"]);
    // A complete upload no longer exists as an upload; its connection is kept.
    assert_eq!(client.ask("HEAD", &location, &[]).status, 404);
}

#[test]
fn no_104_without_request() {
    let server = open_site().start();
    let mut client = server.connect();
    send(&mut client, "PUT", "/file", &["Upload-Length: 3"], b"abc");
    assert_eq!(client.reply().status, 201);
    // Nor one that means another version of the draft.
    for version in [None, Some("Upload-Draft-Interop-Version: 7")] {
        let fields: Vec<_> = version.into_iter().chain(["Upload-Complete: ?1"]).collect();
        send(&mut client, "PUT", "/file", &fields, b"abc");
        assert_eq!(client.reply().status, 204);
    }
    // Nor a client of 1.0, which knows no interim responses.
    client.send("PUT /b HTTP/1.0\r\nUpload-Complete: ?1\r\nContent-Length: 3\r\n\r\nabc");
    assert_eq!(client.reply().status, 201);
}

#[test]
fn a_100_comes_after_the_104_and_a_refusal_instead_of_both() {
    let server = open_site().with_site(|site| site.changes.limit = Some(10)).start();
    let fields = ["Upload-Complete: ?1", "Expect: 100-continue", "Content-Length: 3"];
    let (mut client, _) = begin(&server, "/file", &fields);
    assert_eq!(client.head().unwrap().status, 100);
    client.send("abc");
    assert_eq!(client.reply().status, 201);
    let refused = server.ask("PUT", "/file", &["Upload-Complete: ?0", "Upload-Length: 11"]);
    assert_eq!(refused.status, 413);
    assert!(refused.field("Upload-Limit").unwrap().starts_with("max-size=10, "));
}

#[test]
fn a_broken_upload_resumes_where_it_stopped() {
    let server = open_site().start();
    fs::write(server.path("file"), "old").unwrap();
    let location = broken(&server, "/file", 1_234_567);
    assert_eq!(server.get("/file").body, b"old");
    let state = head(&server, &location);
    assert_eq!(state.field("Upload-Complete"), Some("?0"));
    assert_eq!(state.field("Upload-Length"), Some("3000000"));
    assert_eq!(server.get(&location).field("Upload-Offset"), Some("1234567"));
    assert_eq!(state.field("Cache-Control"), Some("no-store"));
    assert!(state.field("Upload-Limit").unwrap().starts_with("min-size=0, max-age="));
    let all = pattern(TOTAL);
    let wrong = patch(&server, &location, 1_000_000, true, &all[1_000_000..]);
    assert_eq!((wrong.status, wrong.field("Upload-Offset")), (409, Some("1234567")));
    assert_eq!(wrong.field("Content-Type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_str(&wrong.text()).unwrap();
    assert_eq!(problem["expected-offset"], 1_234_567);
    assert_eq!(problem["provided-offset"], 1_000_000);
    assert!(problem["type"].as_str().unwrap().ends_with("#mismatching-upload-offset"));
    let reply = patch(&server, &location, 1_234_567, true, &all[1_234_567..]);
    assert_eq!((reply.status, reply.field("Upload-Complete")), (204, Some("?1")));
    assert!(server.get("/file").body == all);
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn an_upload_comes_in_as_many_pieces_as_its_client_likes() {
    let server = open_site().start();
    let created = server.ask("PUT", "/file", &["Upload-Complete: ?0"]);
    assert_eq!((created.status, created.field("Upload-Offset")), (201, Some("0")));
    assert_eq!(created.field("Upload-Complete"), Some("?0"));
    let location = &created.upload_of("/file");
    assert_eq!(offset(&server, location), Some(0));
    assert_eq!(head(&server, location).field("Upload-Length"), None);
    let all = pattern(TOTAL);
    let mut at = 0;
    for len in [1_000_000, 0, 1, 999_999] {
        let reply = patch(&server, location, at, false, &all[at..at + len]);
        at += len;
        assert_eq!((reply.status, reply.field("Upload-Complete")), (204, Some("?0")));
        assert_eq!(reply.field("Upload-Offset"), Some(at.to_string().as_str()));
    }
    let last = patch(&server, location, at, false, &all[at..]);
    assert_eq!(last.status, 204);
    // An empty piece can be the last one.
    let reply = patch(&server, location, TOTAL, true, b"");
    assert_eq!((reply.status, reply.field("Upload-Complete")), (201, Some("?1")));
    assert!(server.get("/file").body == all);
    assert_eq!(patch(&server, location, TOTAL, true, b"").status, 404);
}

#[test]
fn a_first_piece_may_come_with_the_creation() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?0", "Upload-Length: 10", "Content-Length: 4"];
    let (mut client, location) = begin(&server, "/file", &fields);
    client.send("0123");
    let reply = client.reply();
    assert_eq!((reply.status, reply.upload_of("/file")), (201, location.clone()));
    assert_eq!(reply.field("Upload-Offset"), Some("4"));
    // Lengths that differ from the first one are refused, and leave everything as it was.
    for (is_last, body) in [(true, "45"), (true, "456789a"), (false, "456789a")] {
        let reply = patch(&server, &location, 4, is_last, body.as_bytes());
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.text().contains("#inconsistent-upload-length"));
    }
    assert_eq!(offset(&server, &location), Some(4));
    assert_eq!(patch(&server, &location, 4, true, b"456789").status, 201);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"0123456789");
}

#[test]
fn chunked_pieces_are_pieces_too() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?1", "Transfer-Encoding: chunked"];
    let (mut client, location) = begin(&server, "/file", &fields);
    client.send("5\r\nhello\r\n");
    wait_until("five bytes are here", || parts(&server) == 1);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply().status, 400);
    assert_eq!(offset(&server, &location), Some(5));
    let mut client = server.connect();
    let fields = [
        "Upload-Complete: ?1",
        "Upload-Offset: 5",
        "Transfer-Encoding: chunked",
        "Content-Type: application/partial-upload",
    ];
    client.send(request("PATCH", &location, &fields));
    client.send("6\r\n world\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 201);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"hello world");
}

#[test]
fn more_bytes_than_were_announced_end_an_upload_for_good() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?0", "Upload-Length: 5", "Transfer-Encoding: chunked"];
    let (mut client, location) = begin(&server, "/file", &fields);
    client.send("3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.status, 400);
    assert!(reply.text().contains("#inconsistent-upload-length"));
    assert_eq!(head(&server, &location).status, 404);
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn no_piece_makes_an_upload_longer_than_the_limit() {
    let server = open_site().with_site(|site| site.changes.limit = Some(10)).start();
    let expect = "Expect: 100-continue";
    let too_long = ["Upload-Complete: ?0", "Content-Length: 11", expect];
    assert_eq!(server.ask("PUT", "/file", &too_long).status, 413, "no byte is awaited");
    let first = ["Upload-Complete: ?0", "Content-Length: 6"];
    let (mut client, location) = begin(&server, "/file", &first);
    client.send("123456");
    assert_eq!(client.reply().status, 201);
    let fields = [
        "Upload-Complete: ?0",
        "Upload-Offset: 6",
        "Content-Type: application/partial-upload",
        "Content-Length: 5",
        expect,
    ];
    let reply = server.ask("PATCH", &location, &fields);
    assert_eq!(reply.status, 413, "no byte is awaited");
    assert!(reply.field("Upload-Limit").unwrap().starts_with("max-size=10, "));
    assert_eq!(offset(&server, &location), Some(6), "less may follow");
    let mut client = server.connect();
    let chunked = [&fields[..3], &["Transfer-Encoding: chunked"]].concat();
    client.send(request("PATCH", &location, &chunked));
    client.send("5\r\n78901\r\n0\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.status, 413);
    assert!(reply.text().contains("at most 10 bytes"), "{}", reply.text());
}

#[test]
fn a_part_can_be_read_by_no_other_user_until_it_is_complete() {
    let server = open_site().start();
    let mode = |name: &str| fs::metadata(server.path(name)).unwrap().permissions().mode() & 0o777;
    let part = || names(&server).into_iter().find(|name| name.ends_with(".upload"));
    let location = broken(&server, "/file", 1000);
    assert_eq!(mode(&part().unwrap()), 0o600);
    let rest = &pattern(TOTAL)[1000..];
    assert_eq!(patch(&server, &location, 1000, true, rest).status, 201);
    fs::write(server.path("usual"), "").unwrap();
    assert_eq!(mode("file"), mode("usual"));
    let mut client = server.connect();
    client.send(request("PUT", "/file", &[&format!("Content-Length: {TOTAL}")]));
    client.send(&pattern(TOTAL)[..TOTAL / 2]);
    drop(client);
    wait_until("a part is kept", || part().is_some());
    assert_eq!(mode(&part().unwrap()), 0o600);
}

#[test]
fn a_client_that_leaves_before_its_first_byte_leaves_nothing() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?1", "Content-Length: 5"];
    let (client, location) = begin(&server, "/file", &fields);
    drop(client);
    server.line("\"reset\"");
    assert_eq!(names(&server), [""; 0]);
    assert_eq!(head(&server, &location).status, 404);
}

#[test]
fn an_upload_whose_address_was_not_sent_leaves_nothing() {
    let server = open_site().start();
    for field in ["Upload-Complete: ?1", "Upload-Complete: ?0\r\nUpload-Draft-Interop-Version: 7"] {
        let mut client = server.connect();
        client.send(request("PUT", "/file", &[field, "Content-Length: 3000000"]));
        client.send(pattern(2_000_000));
        leave(&server, client);
        assert_eq!(names(&server), [""; 0], "{field}");
    }
}

#[test]
fn a_piece_that_ends_before_its_first_byte_leaves_the_upload_that_its_client_knows() {
    let server = open_site().start();
    let created = server.ask("PUT", "/file", &["Upload-Complete: ?0", "Content-Length: 0"]);
    assert_eq!(created.status, 201);
    let location = created.upload_of("/file");
    let begin = || {
        let mut client = server.connect();
        let fields = [
            "Upload-Complete: ?1",
            "Upload-Offset: 0",
            "Content-Type: application/partial-upload",
            "Content-Length: 5",
            "Expect: 100-continue",
        ];
        client.send(request("PATCH", &location, &fields));
        assert_eq!(client.head().unwrap().status, 100);
        client
    };
    leave(&server, begin());
    assert_eq!(offset(&server, &location), Some(0));
    // Nor does one that another one takes over.
    let mut older = begin();
    assert_eq!(patch(&server, &location, 0, true, b"whole").status, 201);
    assert!(older.try_reply(true).is_err());
    assert_eq!(fs::read(server.path("file")).unwrap(), b"whole");
    assert_eq!(names(&server), ["file"]);
}

#[test]
fn an_upload_can_be_cancelled() {
    let server = open_site().start();
    let location = broken(&server, "/file", 100_000);
    assert_eq!(parts(&server), 1);
    assert_eq!(server.ask("DELETE", &location, &[]).status, 204);
    assert_eq!(names(&server), [""; 0]);
    assert_eq!(server.ask("DELETE", &location, &[]).status, 404);
    assert_eq!(head(&server, &location).status, 404);
}

#[test]
fn the_newest_connection_resumes_and_the_old_one_is_ended() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?1", "Content-Length: 3000000"];
    let (mut old, location) = begin(&server, "/file", &fields);
    old.send(&pattern(TOTAL)[..500_000]);
    let at = wait_for("something is here", || offset(&server, &location).filter(|at| *at > 0));
    // The query has ended nothing; resuming does, and returns the offset from then on.
    let mut at = usize::try_from(at).unwrap();
    let reply = patch(&server, &location, at + 1, true, &pattern(TOTAL)[at + 1..]);
    assert_eq!(reply.status, 409);
    assert!(old.try_reply(true).is_err());
    assert_eq!(server.record("PUT")["failure"], "superseded");
    at = reply.field("Upload-Offset").unwrap().parse().unwrap();
    let reply = patch(&server, &location, at, true, &pattern(TOTAL)[at..]);
    assert_eq!(reply.status, 201);
    assert!(server.get("/file").body == pattern(TOTAL));
}

#[test]
fn an_upload_is_resumed_after_a_restart() {
    let site = open_site();
    let (root, settings) = (site.path(""), site.settings.sites[0].changes);
    let server = site.start();
    let location = broken(&server, "/file", 700_000);
    let again = Site::new().with(|other| {
        other.sites[0].root = Some(root);
        other.sites[0].changes = settings;
    });
    let again = again.start();
    assert_eq!(offset(&again, &location), Some(700_000));
    let reply = patch(&again, &location, 700_000, true, &pattern(TOTAL)[700_000..]);
    assert_eq!(reply.status, 201);
    assert!(fs::read(server.path("file")).unwrap() == pattern(TOTAL));
}

#[test]
fn an_upload_that_must_be_first_replaces_nothing() {
    let server = open_site().start();
    let fields = ["Upload-Complete: ?0", "If-None-Match: *"];
    let created = server.ask("PUT", "/file", &fields);
    let location = &created.upload_of("/file");
    assert!(location.ends_with("-k"), "{location}");
    fs::write(server.path("file"), "theirs").unwrap();
    let reply = patch(&server, location, 0, true, b"ours");
    assert_eq!((reply.status, reply.field("Upload-Complete")), (412, Some("?1")));
    assert_eq!(fs::read(server.path("file")).unwrap(), b"theirs");
    assert_eq!(names(&server), ["file"]);
}

/// Begins an upload that may replace the present version of `/file` only.
fn begin_with(server: &Running, condition: &str, field: &str) -> String {
    fs::write(server.path("file"), "old").unwrap();
    let present = server.get("/file");
    let condition = format!("{condition}: {}", present.field(field).unwrap());
    let begun = server.ask("PUT", "/file", &["Upload-Complete: ?0", &condition]);
    assert_eq!(begun.status, 201, "{begun:?}");
    begun.upload_of("/file")
}

#[test]
fn an_upload_for_one_version_replaces_no_other() {
    let server = open_site().start();
    for (condition, field) in [("If-Match", "ETag"), ("If-Unmodified-Since", "Last-Modified")] {
        let location = begin_with(&server, condition, field);
        assert_eq!(patch(&server, &location, 0, false, b"ou").status, 204);
        assert_eq!(patch(&server, &location, 2, true, b"rs").status, 204);
        assert_eq!(fs::read(server.path("file")).unwrap(), b"ours");
        // The other version is there before the body, or comes with it.
        let location = begin_with(&server, condition, field);
        fs::write(server.path("file"), "theirs").unwrap();
        assert_eq!(patch(&server, &location, 0, true, b"ours").status, 412);
        assert_eq!((names(&server), head(&server, &location).status), (vec!["file".into()], 404));
        let location = begin_with(&server, condition, field);
        let mut client = server.connect();
        let fields = ["Upload-Complete: ?1", "Upload-Offset: 0", "Content-Length: 4"];
        let media_type = ["Content-Type: application/partial-upload"];
        client.send(request("PATCH", &location, &[&fields[..], &media_type].concat()));
        client.send("ou");
        wait_until("the first bytes", || offset(&server, &location) == Some(2));
        fs::write(server.path("file"), "theirs").unwrap();
        client.send("rs");
        assert_eq!(client.reply().status, 412);
        assert_eq!(fs::read(server.path("file")).unwrap(), b"theirs");
        assert_eq!(names(&server), ["file"]);
    }
}

#[test]
fn invalid_requests_for_an_upload_are_refused() {
    let server = open_site().start();
    let location = broken(&server, "/file", 100);
    let wrong = |fields: &[&str]| server.ask("PATCH", &location, fields).status;
    let (complete, at) = ("Upload-Complete: ?1", "Upload-Offset: 100");
    let media_type = "Content-Type: application/partial-upload; a=b";
    assert_eq!(wrong(&[complete, at]), 415);
    assert_eq!(wrong(&[complete, at, "Content-Type: text/plain"]), 415);
    assert_eq!(wrong(&[complete, media_type]), 400);
    assert_eq!(wrong(&[at, media_type]), 400);
    // A value of another kind counts as none.
    assert_eq!(wrong(&["Upload-Complete: 1", at, media_type]), 400);
    assert_eq!(wrong(&[complete, "Upload-Offset: -1", media_type]), 400);
    assert_eq!(server.ask("PUT", &location, &[complete]).status, 405);
    let both = ["Upload-Complete: ?1", "Content-Range: bytes 0-3/4"];
    assert_eq!(put(&server, "/file", &both, b"0123").status, 400);
    // Older drafts.
    assert_eq!(put(&server, "/file", &["Upload-Incomplete: ?1"], b"0123").status, 400);
    assert_eq!(put(&server, "/whole", &["Upload-Incomplete: ?0"], b"0123").status, 201);
    let token = location.split('=').nth(1).unwrap();
    for unknown in ["", "x", &token[1..], &format!("{token}-k-k"), "../file"] {
        let address = format!("/file?upload={unknown}");
        assert_eq!(server.ask("HEAD", &address, &[]).status, 404, "{address}");
    }
    assert_eq!(offset(&server, &location), Some(100));
    // The address of one name is none of another.
    assert_eq!(server.ask("HEAD", &location.replace("/file", "/other"), &[]).status, 404);
}

#[test]
fn options_announces_resumable_uploads() {
    let server = open_site().start();
    for path in ["/", "/file", "*"] {
        let reply = server.ask("OPTIONS", path, &[]);
        assert_eq!(reply.field("Accept-Patch"), Some("application/partial-upload"), "{path}");
        assert_eq!(reply.field("Upload-Limit"), Some("min-size=0, max-age=86400"));
    }
    let reply = Site::new().start().ask("OPTIONS", "/", &[]);
    assert!(reply.field("Accept-Patch").is_none() && reply.field("Upload-Limit").is_none());
}

#[test]
fn names_of_any_length_have_room_for_their_parts() {
    let server = open_site().start();
    for name in ["x".repeat(255), "ä".repeat(127)] {
        let path: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let location = broken(&server, &format!("/{path}"), 1_000);
        let rest = &pattern(TOTAL)[1_000..];
        assert_eq!(patch(&server, &location, 1_000, true, rest).status, 201);
        assert!(server.path(&name).is_file());
    }
    assert_eq!(parts(&server), 0);
}

#[test]
fn many_connections_that_resume_at_once_make_one_whole_file() {
    let server = open_site().start();
    let location = broken(&server, "/file", 10);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                // Each queries the offset and resumes, and may be overtaken at any moment.
                for _ in 0..200 {
                    let mut client = server.connect();
                    let Ok(reply) = client.try_ask("HEAD", &location, &[]) else { continue };
                    let Some(at) = reply.field("Upload-Offset") else { return };
                    let at: usize = at.parse().unwrap();
                    let mut client = server.connect();
                    let fields = [
                        "Upload-Complete: ?1".to_owned(),
                        format!("Upload-Offset: {at}"),
                        format!("Content-Length: {}", TOTAL - at),
                        "Content-Type: application/partial-upload".to_owned(),
                    ];
                    let fields: Vec<_> = fields.iter().map(String::as_str).collect();
                    let _ =
                        client.stream.write_all(request("PATCH", &location, &fields).as_bytes());
                    for piece in pattern(TOTAL)[at..].chunks(100_000) {
                        if client.stream.write_all(piece).is_err() {
                            break;
                        }
                    }
                    let _ = client.try_reply(true);
                }
            });
        }
    });
    wait_until("it is whole", || {
        server.path("file").exists() || {
            let at = usize::try_from(offset(&server, &location).unwrap_or(0)).unwrap();
            patch(&server, &location, at, true, &pattern(TOTAL)[at..]).status == 201
        }
    });
    assert!(fs::read(server.path("file")).unwrap() == pattern(TOTAL));
    assert_eq!(parts(&server), 0);
}

#[test]
fn the_address_of_an_upload_is_a_link_whatever_the_prefix() {
    let site = open_site();
    let server = site.with_site(|site| site.path_prefix = "/caf\u{e9}".into()).start();
    let fields = ["Upload-Complete: ?0", "Content-Length: 1"];
    let (mut client, location) = begin(&server, "/caf%C3%A9/new", &fields);
    client.send("x");
    assert_eq!(client.reply().upload_of("/caf%C3%A9/new"), location);
    assert_eq!(offset(&server, &location), Some(1));
}
