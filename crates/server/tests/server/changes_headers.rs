//! Bodies and fields of requests for changes: `Depth`, `If`, `Overwrite`, and an unambiguous
//! `Destination`.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;

use super::changes_delete::{open_site, statuses};
use super::rig::request;

#[test]
fn methods_without_a_body_refuse_one() {
    let site = open_site(&[("file", b"x"), ("folder/file", b"x")]).start();
    let to = "Destination: /new";
    for (verb, path) in [
        ("COPY", "/file"),
        ("MOVE", "/file"),
        ("COPY", "/folder"),
        ("MOVE", "/folder"),
        ("DELETE", "/file"),
        ("DELETE", "/folder"),
        ("MKCOL", "/made"),
    ] {
        for (field, body) in
            [("Content-Length: 5", "<xml>"), ("Transfer-Encoding: chunked", "1\r\nx\r\n0\r\n\r\n")]
        {
            let mut client = site.connect();
            client.send(request(verb, path, &[to, field]) + body);
            assert_eq!(client.reply().status, 415, "{verb} {path} {field}");
            // The next request follows, which is no part of the body.
            assert_eq!(client.get("/file").text(), "x", "{verb} {path}");
        }
    }
    assert!(!site.path("new").exists() && !site.path("made").exists());
    assert!(site.path("file").is_file() && site.path("folder/file").is_file());
    statuses(&site, &[("COPY", "/file", &[to, "Content-Length: 0"], 201)]);
}

#[test]
fn an_empty_body_counts_as_none() {
    let site = open_site(&[("file", b"x")]).start();
    let to = "Destination: /new";
    for (verb, path, status) in [
        ("MKCOL", "/made", 201),
        ("COPY", "/file", 201),
        ("MOVE", "/file", 204),
        ("DELETE", "/new", 204),
    ] {
        let mut client = site.connect();
        client.send(request(verb, path, &[to, "Transfer-Encoding: chunked"]) + "0\r\n\r\n");
        let reply = client.reply();
        assert_eq!(reply.status, status, "{verb}: {}", reply.text());
        assert_eq!(client.get("/made/").status, 200, "{verb}");
    }
}

#[test]
fn a_wrong_destination_is_refused_with_the_reason() {
    let site = open_site(&[("file", b"x")]).start();
    for (to, expected) in [
        ("/a/../../z", "the path leads above the root"),
        ("/a%2fb", "a file name cannot contain a slash"),
        ("/a%00b", "the path contains a NUL"),
        ("/%zz", "a % in the path is not followed by two hexadecimal digits"),
        ("/a#b", "a # in the path must be written %23"),
        ("new", "neither a URL nor a path that begins with a slash"),
    ] {
        let reply = site.ask("COPY", "/file", &[&format!("Destination: {to}")]);
        let text = reply.text();
        assert!(reply.status == 400 && text.contains(expected), "{to}: {} {text}", reply.status);
    }
    let put = |path: &str| {
        let reply = site.ask("PUT", path, &["Content-Length: 0"]);
        assert_eq!(reply.status, 405);
        reply.text()
    };
    assert!(put("/new/").contains("MKCOL"), "{}", put("/new/"));
    statuses(&site, &[("MKCOL", "/new/", &[], 201)]);
    assert!(put("/new/").contains("cannot replace a folder"), "{}", put("/new/"));
}

#[test]
fn depth_applies_to_folders_only() {
    let files: &[(&str, &[u8])] =
        &[("a", b"x"), ("b", b"x"), ("c", b"x"), ("folder/file", b"x"), ("other/file", b"x")];
    let site = open_site(files).start();
    symlink("folder", site.path("link")).unwrap();
    statuses(
        &site,
        &[
            ("DELETE", "/a", &["Depth: 0"], 204),
            ("DELETE", "/link", &["Depth: 0"], 204),
            ("MOVE", "/b", &["Depth: 0", "Destination: /d"], 201),
            ("COPY", "/c", &["Depth: 0", "Destination: /e"], 201),
            ("DELETE", "/folder", &["Depth: 0"], 400),
            ("DELETE", "/folder/", &["Depth: 0"], 400),
            ("MOVE", "/folder", &["Depth: 0", "Destination: /f"], 400),
            ("MOVE", "/folder", &["Depth: 1", "Destination: /f"], 400),
            ("COPY", "/folder", &["Depth: 1", "Destination: /f"], 400),
            ("DELETE", "/folder", &["Depth: 0", "Depth: infinity"], 400),
            ("MKCOL", "/new", &["Depth: 1"], 201), // it has no meaning there
            ("DELETE", "/folder", &["Depth: infinity"], 204),
            ("MOVE", "/other", &["Depth: infinity", "Destination: /f"], 201),
        ],
    );
    let mut left: Vec<_> =
        fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["c", "d", "e", "f", "new"]);
}

#[test]
fn nothing_is_changed_if_a_condition_cannot_be_checked() {
    let site = open_site(&[("file", b"x")]).start();
    let token = "If: (<urn:uuid:181d4fae-7d8c-11d0-a765-00a0c91e6bf2>)";
    let tag = "If: ([\"another\"])";
    statuses(
        &site,
        &[
            ("DELETE", "/file", &[token], 412),
            ("DELETE", "/file", &[tag], 412),
            ("MOVE", "/file", &[tag, "Destination: /new"], 412),
            ("COPY", "/file", &[tag, "Destination: /new"], 412),
            ("MKCOL", "/new", &[token], 412),
            ("PUT", "/file", &[tag, "Content-Length: 0"], 412),
            ("PATCH", "/file", &[tag, "X-Update-Range: append", "Content-Length: 0"], 412),
            ("GET", "/file", &[tag], 200),
        ],
    );
    assert_eq!(fs::read(site.path("file")).unwrap(), b"x");
    assert!(!site.path("new").exists());
}

#[test]
fn an_ambiguous_destination_is_refused() {
    let site = open_site(&[("file", b"x"), ("old", b"old")]).start();
    let to = "Destination: /new";
    statuses(
        &site,
        &[
            // A name with a question mark that is not written %3F.
            ("MOVE", "/file", &["Destination: /what?.txt"], 400),
            ("COPY", "/file", &["Destination: http://localhost/new?version=2"], 400),
            ("COPY", "/file", &["Destination: /new#part"], 400),
            ("COPY", "/file", &["Destination: http://a@b@localhost/new"], 502),
            ("COPY", "/file", &["Destination: http:///new"], 502),
            ("COPY", "/file", &["Destination: ftp://localhost/new"], 400),
            ("COPY", "/file", &[to, "Overwrite: T", "Overwrite: F"], 400),
            ("COPY", "/file/", &[to], 404),
            ("MOVE", "/file/", &[to], 404),
            ("COPY", "/file", &["Destination: /new/"], 409),
            ("COPY", "/file", &["Destination: /%66ile"], 403), // itself
            ("MOVE", "/file", &["Destination: /./file"], 403),
        ],
    );
    let mut left: Vec<_> =
        fs::read_dir(site.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["file", "old"]);
    statuses(&site, &[("MOVE", "/file", &["Destination: /what%3F.txt"], 201)]);
    assert!(site.path("what?.txt").is_file());
}

#[test]
fn of_two_changes_of_one_version_at_once_only_one_is_made() {
    let site = open_site(&[("source", b"source")]).start();
    let site = &site;
    let own: fn(&str) -> String = |tag| format!("If-Match: {tag}");
    let listed: fn(&str) -> String = |tag| format!("If: ([{tag}])");
    let tagged: fn(&str) -> String = |tag| format!("If: </file> ([{tag}])");
    for (verb, path, to, condition) in [
        ("DELETE", "/file", "/moved", own),
        ("MOVE", "/file", "/moved", own),
        ("DELETE", "/file", "/moved", listed),
        ("MOVE", "/file", "/moved", listed),
        ("COPY", "/source", "/file", tagged),
    ] {
        for round in 0..80 {
            let put = site.ask("PUT", "/file", &["Content-Length: 0"]);
            let same = condition(put.field("ETag").unwrap());
            let to = format!("Destination: {to}");
            let ready = Barrier::new(2);
            let both = [("PUT", "/file"), (verb, path)].map(|(verb, path)| {
                let (same, to, ready, mut client) = (&same, &to, &ready, site.connect());
                move || {
                    ready.wait();
                    client.ask(verb, path, &[same, to, "Content-Length: 0"]).status
                }
            });
            let statuses = std::thread::scope(|scope| {
                both.map(|ask| scope.spawn(ask)).map(|asked| asked.join().unwrap())
            });
            let made = statuses.iter().filter(|status| **status < 300).count();
            assert_eq!(made, 1, "round {round}: PUT, {verb} with {same}: {statuses:?}");
        }
    }
}

/// A request with a condition, a change before its body arrives, and the statuses of both.
type Interrupted<'a> = (&'a str, &'a str, (&'a str, &'a str), u16, u16);

#[test]
fn conditions_are_checked_again_after_the_body() {
    let site = open_site(&[("file", b"old"), ("other", b"y")]).start();
    let tag = |path| site.ask("HEAD", path, &[]).field("ETag").unwrap().to_owned();
    let properties = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><x/></D:prop></D:set>\
                      </D:propertyupdate>";
    let lock = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
                <D:locktype><D:write/></D:locktype></D:lockinfo>";
    let held = super::dav::send(&site, "LOCK", "/file", &[], lock);
    let token = held.field("Lock-Token").unwrap().to_owned();
    let (key, unlock) = (format!("If: </file> ({token})"), format!("Lock-Token: {token}"));
    // A locked file is changed with its token, as long as the lock lasts.
    let mut is_locked = true;
    let rows: &[Interrupted<'_>] = &[
        ("PUT", "If: (TOKEN [FILE])", ("PUT", "/file"), 204, 412),
        ("PUT", "If: </file> (TOKEN) </other> ([OTHER])", ("PUT", "/file"), 204, 204),
        ("PROPPATCH", "If: (TOKEN [FILE])", ("PUT", "/file"), 204, 412),
        ("PROPPATCH", "If: (TOKEN [FILE])", ("PUT", "/other"), 204, 207),
        ("PATCH", "If: (TOKEN [FILE])", ("PUT", "/file"), 204, 412),
        ("PUT", "If: (TOKEN [FILE])", ("UNLOCK", "/file"), 204, 204),
        ("PUT", "If: ([FILE]) (Not <DAV:no-lock>)", ("PUT", "/file"), 204, 204),
        ("PUT", "If: (Not [OTHER])", ("PUT", "/file"), 204, 204),
        ("PROPPATCH", "If-Match: FILE", ("PUT", "/file"), 204, 412),
        ("PUT", "If: </other> ([OTHER])", ("DELETE", "/other"), 204, 412),
    ];
    for (verb, condition, (between, path), first, second) in rows {
        let field = condition.replace("TOKEN", &token).replace("FILE", &tag("/file"));
        let field = field.replace("OTHER", &tag("/other"));
        let body = if *verb == "PROPPATCH" { properties } else { "new" };
        let (length, expect) = (format!("Content-Length: {}", body.len()), "Expect: 100-continue");
        let mut client = site.connect();
        let update = "X-Update-Range: append";
        client.send(request(verb, "/file", &[&field, &length, expect, update]));
        assert_eq!(client.head().unwrap().status, 100, "{verb} {field}");
        let own = if is_locked { &*key } else { "X: y" };
        is_locked &= *between != "UNLOCK";
        let other = site.ask(between, path, &[own, &unlock, "Content-Length: 0"]);
        assert_eq!(other.status, *first, "{between} {path}");
        client.send(body);
        assert_eq!(client.reply().status, *second, "{verb} with {field}, then {between} {path}");
    }
}

#[test]
fn a_posted_form_gets_an_error_that_explains_uploads() {
    let site = open_site(&[]).start();
    let reply = site.ask("POST", "/", &[]);
    assert_eq!(reply.status, 405);
    assert!(reply.text().contains("files are uploaded by PUT"), "{}", reply.text());
}
