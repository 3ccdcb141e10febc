//! PUT of whole files: the responses, what exists afterwards, and what does not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::changes_copy::FOR_ONE_USER;
use super::rig::{Client, Reply, Running, Site, pattern, request, wait_until};

/// A folder that may be written to.
pub(crate) fn open_site() -> Site {
    Site::new().with_site(|site| site.changes.upload = true)
}

/// The reply to a request with a body, on a connection of its own.
pub(crate) fn put(server: &Running, path: &str, fields: &[&str], body: &[u8]) -> Reply {
    let mut client = server.connect();
    send(&mut client, "PUT", path, fields, body);
    client.reply()
}

/// The reply to such a request from another address.
pub(crate) fn put_by_another(server: &Running, path: &str, body: &[u8]) -> Reply {
    let mut client = server.connect_from([127, 0, 0, 2].into());
    send(&mut client, "PUT", path, &[], body);
    client.reply()
}

/// Sends a request with a body and its length.
pub(crate) fn send(client: &mut Client, verb: &str, path: &str, fields: &[&str], body: &[u8]) {
    let length = format!("Content-Length: {}", body.len());
    let fields: Vec<_> = fields.iter().copied().chain([length.as_str()]).collect();
    client.send(request(verb, path, &fields));
    // A body that is refused need not be read.
    let _ = client.stream.write_all(body);
}

/// All names in the server's folder, sorted.
pub(crate) fn names(server: &Running) -> Vec<String> {
    underpass_testkit::names(&server.path(""))
}

/// Leaves, and waits until the server has noticed: an earlier query would end the upload there.
pub(crate) fn leave(server: &Running, client: Client) {
    let ended = || server.lines().iter().filter(|line| line.contains("\"reset\"")).count();
    let before = ended();
    drop(client);
    wait_until("the server has noticed", || ended() > before);
}

#[test]
fn a_file_is_put_where_there_was_none_and_replaced_where_there_was() {
    let server = open_site().start();
    let first = put(&server, "/a%20file", &[], b"first");
    assert_eq!(first.status, 201);
    assert_eq!(fs::read(server.path("a file")).unwrap(), b"first");
    let got = server.get("/a%20file");
    assert_eq!(got.field("ETag"), first.field("ETag"));
    assert_eq!(got.field("Last-Modified"), first.field("Last-Modified"));
    let second = put(&server, "/a%20file", &[], &pattern(3 << 20));
    assert_eq!(second.status, 204);
    assert_ne!(second.field("ETag"), first.field("ETag"));
    assert!(server.get("/a%20file").body == pattern(3 << 20));
    assert_eq!(names(&server), ["a file"]);
}

#[test]
fn an_empty_file_is_a_file_with_and_without_a_length() {
    let server = open_site().start();
    assert_eq!(put(&server, "/a", &[], b"").status, 201);
    assert_eq!(server.ask("PUT", "/b", &[]).status, 201);
    assert_eq!(server.ask("PUT", "/b", &["Expect: 100-continue"]).status, 204);
    assert_eq!(fs::read(server.path("a")).unwrap(), b"");
    assert_eq!(fs::read(server.path("b")).unwrap(), b"");
}

#[test]
fn without_a_length_http_1_0_has_no_body() {
    let server = open_site().start();
    put(&server, "/file", &[], b"precious");
    for method in ["PUT", "PATCH"] {
        let mut client = server.connect();
        client.send(format!("{method} /file HTTP/1.0\r\nX-Update-Range: append\r\n\r\nnew"));
        assert_eq!(client.reply().status, 411, "{method}");
    }
    let mut client = server.connect();
    client.send("PUT /empty HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.reply().status, 201);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"precious");
}

#[test]
fn a_chunked_body_is_unwrapped_whatever_the_pieces() {
    let server = open_site().start();
    let mut client = server.connect();
    let body = pattern(300_000);
    client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
    for piece in body.chunks(70_001) {
        client.send(format!("{:x};name=value\r\n", piece.len()));
        client.send(piece);
        client.send("\r\n");
    }
    client.send("0\r\nTrailer: x\r\n\r\n");
    assert_eq!(client.reply().status, 201);
    assert!(fs::read(server.path("file")).unwrap() == body);
    // A byte at a time, all framing among them.
    for byte in request("PUT", "/small", &["Transfer-Encoding: chunked"]).bytes() {
        client.send([byte]);
    }
    for byte in b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n" {
        client.send([*byte]);
    }
    assert_eq!(client.reply().status, 201);
    assert_eq!(fs::read(server.path("small")).unwrap(), b"hello!");
}

#[test]
fn a_malformed_chunk_is_answered_and_leaves_nothing() {
    let server = open_site().start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
    client.send("5\r\nhello\r\nwhat\r\n");
    assert_eq!(client.reply().status, 400);
    assert!(client.is_closed());
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn the_connection_is_kept_after_a_body() {
    let server = open_site().start();
    let mut client = server.connect();
    let body = pattern(200_000);
    // Everything at once: the first body is followed by the next request.
    let mut all = request("PUT", "/a", &["Content-Length: 200000"]).into_bytes();
    all.extend_from_slice(&body);
    all.extend(request("PUT", "/b", &["Content-Length: 3"]).into_bytes());
    all.extend_from_slice(b"abc");
    all.extend(request("PUT", "/c", &["Transfer-Encoding: chunked"]).into_bytes());
    all.extend_from_slice(b"3\r\nabc\r\n0\r\n\r\n");
    all.extend(request("GET", "/b", &[]).into_bytes());
    client.send(&all);
    for _ in 0..3 {
        assert_eq!(client.reply().status, 201);
    }
    assert_eq!(client.reply().body, b"abc");
    assert_eq!(client.get("/c").body, b"abc");
    assert!(client.get("/a").body == body);
}

#[test]
fn a_100_continue_is_sent_only_when_the_request_is_accepted() {
    let server = open_site().with_site(|site| site.changes.limit = Some(10)).start();
    let mut client = server.connect();
    let expect = "Expect: 100-continue";
    client.send(request("PUT", "/file", &[expect, "Content-Length: 5"]));
    assert_eq!(client.head().unwrap().status, 100);
    client.send("hello");
    assert_eq!(client.reply().status, 201);
    for (path, fields, status) in [
        ("/file", &["Content-Length: 11"][..], 413),
        ("/none/file", &["Content-Length: 5"], 409),
        ("/file", &["Content-Length: 5", "If-None-Match: *"], 412),
        ("/.hidden", &["Content-Length: 5"], 403),
        ("/file", &["Content-Length: 5", "Content-Encoding: gzip"], 415),
    ] {
        let mut client = server.connect();
        client.send(request("PUT", path, &[&[expect], fields].concat()));
        let reply = client.reply();
        assert_eq!(reply.status, status, "{path} {fields:?}");
        assert_eq!(reply.field("Connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert_eq!(fs::read(server.path("file")).unwrap(), b"hello");
}

#[test]
fn a_client_that_sends_its_body_at_once_gets_no_100_continue() {
    let server = open_site().start();
    let mut client = server.connect();
    let head = request("PUT", "/file", &["Expect: 100-continue", "Content-Length: 5"]);
    client.send(head + "hello");
    // RFC 9110 10.1.1: no 100 is needed once a part of the body has arrived.
    assert_eq!(client.reply().status, 201);
}

#[test]
fn conditions_are_checked_before_the_body() {
    let server = open_site().start();
    let first = put(&server, "/file", &["If-None-Match: *"], b"first");
    assert_eq!(first.status, 201);
    let tag = first.field("ETag").unwrap().to_owned();
    assert_eq!(put(&server, "/file", &["If-None-Match: *"], b"second").status, 412);
    assert_eq!(put(&server, "/file", &["If-Match: \"other\""], b"second").status, 412);
    assert_eq!(put(&server, "/none", &["If-Match: *"], b"second").status, 412);
    let long_ago = "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(put(&server, "/file", &[long_ago], b"second").status, 412);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"first");
    assert_eq!(put(&server, "/file", &[&format!("If-Match: {tag}")], b"second").status, 204);
    assert_eq!(put(&server, "/file", &[&format!("If-Match: {tag}")], b"third").status, 412);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"second");
}

#[test]
fn a_condition_that_no_longer_holds_after_the_body_is_noticed() {
    let server = open_site().start();
    for (field, was_there) in [("If-None-Match: *", false), ("If-Match: *", true)] {
        let _ = fs::remove_file(server.path("file"));
        if was_there {
            fs::write(server.path("file"), "old").unwrap();
        }
        let mut client = server.connect();
        client.send(request("PUT", "/file", &[field, "Expect: 100-continue", "Content-Length: 5"]));
        assert_eq!(client.head().unwrap().status, 100);
        if was_there {
            fs::remove_file(server.path("file")).unwrap();
        } else {
            fs::write(server.path("file"), "somebody's").unwrap();
        }
        client.send("hello");
        assert_eq!(client.reply().status, 412, "{field}");
        assert_eq!(
            fs::read(server.path("file")).is_ok_and(|read| read == b"somebody's"),
            !was_there
        );
    }
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn one_of_many_concurrent_puts_with_if_none_match_succeeds() {
    let server = open_site().start();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let ask = |number: u8| {
            let server = &server;
            move || put(server, "/file", &["If-None-Match: *"], &[number; 1000]).status
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(ask(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|status| **status == 201).count(), 1, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|status| **status == 412).count(), 7, "{outcomes:?}");
    let bytes = fs::read(server.path("file")).unwrap();
    assert!(bytes.len() == 1000 && bytes.iter().all(|byte| *byte == bytes[0]));
}

#[test]
fn the_old_file_stays_until_the_new_one_is_whole() {
    let server = open_site().start();
    fs::write(server.path("file"), "old").unwrap();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 2000000"]));
    client.send(pattern(1_000_000));
    wait_until("half is here", || server.metric("transfers_open") > 0.0);
    assert_eq!(server.get("/file").body, b"old");
    assert_eq!(names(&server), ["file"]);
    client.send(pattern(1_000_000));
    assert_eq!(client.reply().status, 204);
    assert_eq!(server.get("/file").body.len(), 2_000_000);
}

#[test]
fn only_parent_folders_are_created_and_only_if_enabled() {
    let server = open_site().start();
    let refused = put(&server, "/a/b/file", &[], b"x");
    assert_eq!(refused.status, 409);
    assert!(refused.text().contains("folder"), "{}", refused.text());
    assert_eq!(names(&server), [""; 0]);
    drop(server);
    let server = open_site().with_site(|site| site.changes.create_parents = true).start();
    assert_eq!(put(&server, "/a/b/file", &[], b"x").status, 201);
    assert_eq!(fs::read(server.path("a/b/file")).unwrap(), b"x");
    assert_eq!(server.ask("HEAD", "/c/d/file?partial", &[]).status, 409);
    assert_eq!(names(&server), ["a"]);
    // A file is not a folder.
    assert_eq!(put(&server, "/a/b/file/c", &[], b"x").status, 409);
}

#[test]
fn a_file_does_not_replace_a_folder() {
    let server = open_site().start();
    fs::create_dir(server.path("folder")).unwrap();
    for path in ["/folder", "/folder/", "/new/", "/"] {
        let reply = put(&server, path, &[], b"x");
        assert_eq!(reply.status, 405, "{path}");
        let all = server.ask("OPTIONS", path, &[]).field("Allow").unwrap().to_owned();
        let allowed = all.replace(", PUT, PATCH", "");
        assert_eq!(reply.field("Allow"), Some(&*allowed), "{path}");
        assert_ne!(allowed, all);
    }
    assert_eq!(names(&server), ["folder"]);
}

#[test]
fn names_that_are_hidden_cannot_be_written() {
    let part = format!("/.x.{}.upload", "0".repeat(32));
    let server = open_site().with_site(|site| site.hide.push("*.log".to_owned())).start();
    for path in ["/.env", "/a.log", "/.git/config", &part] {
        assert_eq!(put(&server, path, &[], b"x").status, 403, "{path}");
    }
    assert_eq!(put(&server, "/.underpass/file", &[], b"x").status, 403);
    assert_eq!(names(&server), [""; 0]);
    let server = open_site().with_site(|site| site.shows_hidden = true).start();
    assert_eq!(put(&server, "/.env", &[], b"x").status, 201);
    // Parts of uploads are never served, whatever is shown.
    assert_eq!(put(&server, &part, &[], b"x").status, 403);
    fs::write(server.path(&part[1..]), "x").unwrap();
    assert_eq!(server.get(&part).status, 404);
    assert!(!server.get("/?simple").text().contains("upload"));
}

#[test]
fn nothing_is_written_outside_the_root() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "theirs").unwrap();
    let server = open_site().start();
    symlink(outside.path(), server.path("out")).unwrap();
    symlink(outside.path().join("file"), server.path("link")).unwrap();
    assert_eq!(put(&server, "/out/file", &[], b"ours").status, 409);
    assert_eq!(put(&server, "/../file", &[], b"ours").status, 400);
    // A link itself is a name in the folder, and can be replaced like any other.
    assert_eq!(put(&server, "/link", &[], b"ours").status, 201);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"theirs");
    assert!(fs::symlink_metadata(server.path("link")).unwrap().is_file());
    // One that leads to another folder inside is as good as the folder.
    fs::create_dir(server.path("folder")).unwrap();
    symlink("folder", server.path("inside")).unwrap();
    assert_eq!(put(&server, "/inside/file", &[], b"ours").status, 201);
    assert_eq!(fs::read(server.path("folder/file")).unwrap(), b"ours");
}

#[test]
fn a_new_file_has_the_permissions_of_the_one_it_replaces() {
    let server = open_site().start();
    fs::write(server.path("file"), "old").unwrap();
    fs::set_permissions(server.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(put(&server, "/file", &[], b"new").status, 204);
    assert_eq!(fs::metadata(server.path("file")).unwrap().mode() & 0o777, 0o640);
    // Only root may give a file to a group of which it is no member.
    if chown(server.path("file"), None, Some(3000)).is_ok() {
        assert_eq!(put(&server, "/file", &[], b"new").status, 204);
        let found = fs::metadata(server.path("file")).unwrap();
        assert_eq!((found.mode() & 0o777, found.gid()), (0o640, 3000));
        // Nothing is kept of a file that another user has put into a folder like /tmp.
        fs::set_permissions(server.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
        fs::write(server.path("shared"), "old").unwrap();
        fs::set_permissions(server.path("shared"), fs::Permissions::from_mode(0o666)).unwrap();
        chown(server.path("shared"), Some(1234), Some(3000)).unwrap();
        assert_eq!(put(&server, "/shared", &[], b"new").status, 204);
        let found = fs::metadata(server.path("shared")).unwrap();
        assert_eq!((found.mode() & 0o022, found.gid() == 3000), (0, false));
    }
    assert_eq!(put(&server, "/other", &[], b"new").status, 201);
    fs::write(server.path("usual"), "").unwrap();
    let usual = fs::metadata(server.path("usual")).unwrap().mode();
    assert_eq!(fs::metadata(server.path("other")).unwrap().mode(), usual);
}

#[test]
fn a_new_file_has_the_acl_of_the_one_it_replaces() {
    let server = open_site().start();
    let name = "system.posix_acl_access";
    let acl = FOR_ONE_USER.map(u16::to_le_bytes).concat();
    fs::write(server.path("file"), "old").unwrap();
    if setxattr(server.path("file"), name, &acl, XattrFlags::empty()).is_err() {
        return super::rig::skip("this file system has no ACLs");
    }
    for verb in ["PUT", "PATCH"] {
        let mut client = server.connect();
        send(&mut client, verb, "/file", &["X-Update-Range: append"], b"new");
        assert_eq!(client.reply().status, 204, "{verb}");
        let mut kept = vec![0; acl.len() + 1];
        let len = getxattr(server.path("file"), name, &mut kept[..]).unwrap();
        assert_eq!(kept[..len], acl, "{verb}");
    }
}

#[test]
fn a_file_without_an_acl_gets_none_by_the_default_of_its_folder() {
    let server = open_site().start();
    let acl = FOR_ONE_USER.map(u16::to_le_bytes).concat();
    let set = || setxattr(server.path(""), "system.posix_acl_default", &acl, XattrFlags::empty());
    if set().is_err() {
        return super::rig::skip("this file system has no ACLs");
    }
    let name = "system.posix_acl_access";
    fs::write(server.path("file"), "old").unwrap();
    removexattr(server.path("file"), name).unwrap();
    fs::set_permissions(server.path("file"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("file", server.path("link")).unwrap();
    for (verb, path) in [("PUT", "file"), ("PATCH", "file"), ("PUT", "link")] {
        let mut client = server.connect();
        send(&mut client, verb, &format!("/{path}"), &["X-Update-Range: append"], b"new");
        assert_eq!(client.reply().status, 204, "{verb} {path}");
        let found = getxattr(server.path(path), name, &mut [0; 100][..]);
        assert_eq!(found, Err(Errno::NODATA), "{verb} {path}");
        assert_eq!(fs::metadata(server.path(path)).unwrap().mode() & 0o777, 0o640, "{path}");
    }
}

#[test]
fn a_body_that_is_too_long_is_refused_before_or_while_it_arrives() {
    let server = open_site().with_site(|site| site.changes.limit = Some(1000)).start();
    let reply = put(&server, "/file", &[], &[1; 1001]);
    assert_eq!(reply.status, 413);
    assert!(reply.field("Upload-Limit").unwrap().starts_with("max-size=1000, max-age="));
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Transfer-Encoding: chunked"]));
    client.send("3e8\r\n");
    client.send([1; 1000]);
    client.send("\r\n1\r\n1\r\n0\r\n\r\n");
    assert_eq!(client.reply().status, 413);
    assert_eq!(names(&server), [""; 0]);
    assert_eq!(put(&server, "/file", &[], &[1; 900]).status, 201);
    // The limit is that of the file, however little of it is left for the body.
    let rows = [
        ("PATCH", "/file", "X-Update-Range: append", 413, "files can have at most 1,000 bytes"),
        ("PUT", "/new", "Content-Range: bytes 0-99/200", 413, "not as long as its Content-Range"),
    ];
    for (verb, path, field, status, detail) in rows {
        let mut client = server.connect();
        client.send(request(verb, path, &["Transfer-Encoding: chunked", field]));
        client.send("65\r\n");
        client.send([1; 101]);
        client.send("\r\n0\r\n\r\n");
        let reply = client.reply();
        let text = reply.text();
        assert!(reply.status == status && text.contains(detail), "{verb}: {} {text}", reply.status);
    }
}

#[test]
fn a_client_that_sends_everything_first_gets_the_refusal() {
    let server = open_site().with_site(|site| site.changes.limit = Some(1000)).start();
    let bytes = pattern(20_000_000);
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 20000000"]));
    client.send(bytes);
    assert_eq!(client.reply().status, 413);
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn a_client_that_pauses_while_sending_gets_the_refusal() {
    let server = open_site().with_site(|site| site.changes.limit = Some(1000)).start();
    let mut client = server.connect();
    client.send(request("PUT", "/file", &["Content-Length: 3000000"]));
    for _ in 0..3 {
        client.send(pattern(1_000_000));
        std::thread::sleep(std::time::Duration::from_millis(700));
    }
    assert_eq!(client.reply().status, 413);
}

#[test]
fn uploads_larger_than_the_disk_are_refused_before_the_body() {
    let server = open_site().start();
    let mut client = server.connect();
    let fields = ["Expect: 100-continue", "Content-Length: 9000000000000000000"];
    client.send(request("PUT", "/file", &fields));
    assert_eq!(client.reply().status, 507);
    assert_eq!(names(&server), [""; 0]);
}

#[test]
fn only_users_with_the_right_may_write() {
    let closed = Site::new().start();
    let reply = put(&closed, "/file", &[], b"x");
    assert_eq!((reply.status, reply.field("Allow")), (405, Some("GET, HEAD, OPTIONS, PROPFIND")));
    let server = open_site().auth(&["me:secret@/:rw", "you:secret@/:ro"]).start();
    // "me:secret" and "you:secret" in base64.
    let me = "Authorization: Basic bWU6c2VjcmV0";
    let you = "Authorization: Basic eW91OnNlY3JldA==";
    assert_eq!(put(&server, "/file", &[], b"x").status, 401);
    assert_eq!(put(&server, "/file", &[you], b"x").status, 403);
    assert_eq!(put(&server, "/file", &[me], b"x").status, 201);
    assert_eq!(server.ask("GET", "/file", &[you]).body, b"x");
    let foreign = "Sec-Fetch-Site: cross-site";
    assert_eq!(put(&server, "/file", &[me, foreign], b"y").status, 403);
}

#[test]
fn a_single_served_file_is_read_only() {
    let mut site = open_site();
    site.write("file", b"x");
    site.settings.sites[0].root = Some(site.path("file"));
    let server = site.start();
    assert_eq!(put(&server, "/file", &[], b"y").status, 403);
    assert_eq!(put(&server, "/", &[], b"y").status, 403);
    assert_eq!(fs::read(server.path("file")).unwrap(), b"x");
}

#[test]
fn names_are_bytes_below_the_prefix() {
    let server = open_site().with_site(|site| site.path_prefix = "/files".to_owned()).start();
    assert_eq!(put(&server, "/files/%C3%A4%20%25.txt", &[], b"x").status, 201);
    assert_eq!(fs::read(server.path("ä %.txt")).unwrap(), b"x");
    assert_eq!(put(&server, "/other/file", &[], b"x").status, 404);
    let long = "x".repeat(300);
    assert_eq!(put(&server, &format!("/files/{long}"), &[], b"x").status, 400);
}
