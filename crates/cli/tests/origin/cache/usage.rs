//! Wrong usage, rights, and what is not served.

use std::process::Stdio;

use serde_json::Value;

use crate::node::{Node, until_stored};
use crate::rig::{Running, folder, run, underpass};
use crate::scripted_origin::{Object, Origin};

fn refused(args: &[&str], words: &[&str]) {
    let cache = folder();
    let mut command = underpass();
    command.args(["serve", "--port", "0"]).args(args).current_dir(cache.path());
    command.stdin(Stdio::null());
    Running::start(command).finish().failed(2, words);
}

#[test]
fn wrong_usage_is_one_line() {
    refused(&["--origin", "http://localhost/"], &["--origin needs --cache"]);
    refused(&["--cache", "c"], &["--cache needs --origin"]);
    refused(&["--fresh", "1m"], &["--fresh needs --origin"]);
    let with = |url: &str, words: &[&str]| refused(&["--origin", url, "--cache", "c"], words);
    with("nowhere", &["--origin", "http://HOST/"]);
    with("ftp://user:secret@localhost/", &["ftp is not supported"]);
    with("http://localhost/?a", &["no ?"]);
    for option in ["--allow-upload", "-A", "--render-spa"] {
        let args = ["--origin", "http://localhost/", "--cache", "c", option];
        refused(&args, &["cannot be combined with --origin"]);
    }
    refused(&["--origin", "http://localhost/", "--cache", "c", "--fresh", "1w"], &["--fresh"]);
    for (option, value) in [
        ("--cache-free", "1G"),
        ("--stale-if-error", "1d"),
        ("--vary-on", "X-Kind"),
        ("--s3-endpoint", "https://store.example/"),
        ("--s3-region", "eu"),
        ("--s3-style", "path"),
    ] {
        refused(&[option, value], &[&format!("{option} needs --origin")]);
    }
    refused(&["--s3-unsigned"], &["--s3-unsigned needs --origin"]);
    for name in ["Range", "Authorization", "Content-Length", "a b", "*"] {
        let args = ["--origin", "http://localhost/", "--cache", "c", "--vary-on", name];
        refused(&args, &["--vary-on", name]);
    }
}

#[test]
fn rules_hold_before_anything_is_looked_up() {
    let object = Object::new(b"hello".to_vec(), "a");
    let object = object.with("Cache-Control: max-age=1000\nContent-Type: Text/HTML");
    let origin = Origin::of(&object);
    let args = ["--auth", "a:b@/:rw", "--auth", "r:r@/", "--auth", "@/open"];
    let node = Node::new(&origin.url(), &args);
    for path in ["/a", "/open/../a", "/open/%2e%2e/a", "//a"] {
        assert_eq!(node.get(path).status, 401, "{path}");
    }
    assert!(origin.requests().is_empty());
    let open = node.get("/open/a");
    open.assert_is(200, b"hello");
    assert_eq!(open.field("content-security-policy"), Some("sandbox"));
    // Not a field of the client reaches the origin.
    let name = "Authorization: Basic YTpi"; // a:b
    node.ask("GET", "/a", &[name, "Cookie: x", "X-Forwarded-Host: y"]).assert_is(200, b"hello");
    let requests = origin.requests();
    for name in ["authorization", "cookie", "x-forwarded-host"] {
        assert_eq!(requests[1].field(name), None, "{name}");
    }
    let reader = "Authorization: Basic cjpy"; // r:r
    assert_eq!(node.ask("PURGE", "/a", &[reader]).status, 403);
    assert_eq!(node.ask("PURGE", "/a", &[]).status, 401);
    assert_eq!(node.ask("PURGE", "/a", &[name]).status, 200);
    assert_eq!(node.ask("PURGE", "/a", &[name]).status, 404);
    assert_eq!(node.ask("PUT", "/a", &[name, "Content-Length: 0"]).status, 405);
}

#[test]
fn the_listed_methods_are_the_allowed_ones() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let open = Node::new(&origin.url(), &[]);
    let with_users = Node::new(&origin.url(), &["--auth", "a:b@/:rw", "--auth", "@/"]);
    let far = "X-Forwarded-For: 192.0.2.1";
    for (node, lines, allowed) in [
        (&open, &[][..], "GET, HEAD, OPTIONS, PURGE"),
        // Without users, only this machine may.
        (&open, &[far], "GET, HEAD, OPTIONS"),
        (&with_users, &[far], "GET, HEAD, OPTIONS, PURGE"),
    ] {
        let options = node.ask("OPTIONS", "/a", lines);
        assert_eq!((options.status, options.field("allow")), (204, Some(allowed)));
        let refused = node.ask("PUT", "/a", &[lines, &["Content-Length: 0"]].concat());
        let allow = if refused.status == 405 { refused.field("allow") } else { Some(allowed) };
        assert_eq!(allow, Some(allowed), "{}", refused.head);
    }
}

#[test]
fn a_purged_object_is_fetched_again() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    node.get("/a").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(node.ask("PURGE", "/a", &["X-Forwarded-For: 1.2.3.4"]).status, 403);
    assert_eq!(node.ask("PURGE", "/a", &[]).status, 200);
    node.get("/a").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn the_folder_of_the_cache_itself_is_not_served() {
    let origin = Origin::new(|_, sending| sending.answer("HTTP/1.1 404 No", b""));
    let node = Node::new(&origin.url(), &[]);
    for path in ["/format", "/objects/", "/lock", "/"] {
        assert_eq!(node.get(path).status, 404, "{path}");
    }
    assert_eq!(origin.requests().len(), 4);
}

#[test]
fn the_doctor_tells_how_good_an_origin_is() {
    let object = Object::new(b"hello".to_vec(), "a");
    let private = object.clone().with("Cache-Control: private, max-age=60");
    let varies = object.clone().with("Vary: Accept-Encoding, X-Kind");
    let always = object.clone().with("Vary: *");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/always" => always.send(request, sending),
        "/good" => object.send(request, sending),
        "/plain" => sending.answer("HTTP/1.1 200 OK", b"hello"),
        "/private" => private.send(request, sending),
        "/varies" => varies.send(request, sending),
        _ => sending.answer("HTTP/1.1 404 No", b""),
    });
    let here = folder();
    let examine = |path: &str| {
        let (url, cache) = (format!("{}{path}", origin.url()), here.path().to_str().unwrap());
        let words = ["doctor", "--origin", &url, "--cache", cache, "--json"];
        let finished = run(words);
        let record: Value = serde_json::from_str(finished.text().trim()).unwrap();
        let states = record["findings"].as_array().unwrap().iter();
        let of = |it: &Value| format!("{} {}", it["name"], it["state"]).replace('"', "");
        (finished.code(), states.map(of).collect::<Vec<_>>())
    };
    let (code, states) = examine("good");
    assert_eq!(code, Some(0), "{states:?}");
    assert_eq!(states[..2], ["origin best", "origin-tls limited"]);
    assert_eq!(states[2..4], ["ranges best", "version best"]);
    assert!(states[4].starts_with("cache-disk "), "{states:?}");
    let (code, states) = examine("plain");
    assert_eq!(code, Some(3), "{states:?}");
    assert_eq!(states[2..4], ["ranges limited", "version closed"]);
    for path in ["private", "varies"] {
        let (code, states) = examine(path);
        assert_eq!((code, states[4].as_str()), (Some(3), "caching closed"), "{states:?}");
    }
    // A field of this name cannot be passed on.
    let found = run(["doctor", "--origin", &format!("{}always", origin.url())]).failed(3, &[]);
    assert!(found.text().contains("let the origin send no Vary: *"), "{}", found.text());
    let (_, states) = examine("none");
    assert_eq!(states[2], "file closed");
    origin.end();
    let (_, states) = examine("good");
    assert_eq!(states[0], "origin closed");
    run(["doctor", "--origin", "nowhere"]).failed(2, &["--origin", "https://HOST/"]);
    assert_eq!(underpass_testkit::names(here.path()), [""; 0]);
}

#[test]
fn a_quota_beyond_the_disk_is_reported() {
    let origin = Origin::new(|_, _| {});
    for (quota, is_reported) in [("900000T", true), ("1M", false)] {
        let node = Node::new(&origin.url(), &["--cache-size", quota]);
        let printed = node.server.end().stderr;
        let note = "--cache-size 878.91 PiB is more than the file system of";
        assert_eq!(printed.contains(note), is_reported, "{printed}");
    }
}
