//! A node in front of a store.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::node::Node;
use crate::rig::{Running, folder, noise};
use crate::s3::store::{Store, bare, command};
use crate::scripted_origin::{Object, Origin, Request, Sending};

/// A node with the keys of a store, in front of this address.
pub fn node(mut command: std::process::Command, cache: tempfile::TempDir) -> Node {
    let args = ["--port", "0", "--cache-free", "0", "--cache"];
    command.args(args).arg(cache.path());
    let server = Running::listening(command);
    Node { cache, server }
}

pub const ADDRESS: &str = "s3://bucket/sub";

/// A node in front of a store of our own.
pub fn before(origin: &Origin, args: &[&str]) -> Node {
    let here = folder();
    let mut all = vec!["serve", "--origin", ADDRESS];
    all.extend(args);
    node(command(&origin.url(), here.path(), &all), folder())
}

#[test]
fn objects_of_a_store_are_kept_and_served() {
    let Some(store) = Store::new() else { return };
    let here = folder();
    let bytes = noise(5 << 20);
    fs::write(here.path().join("a b"), &bytes).unwrap();
    store.run(here.path(), &["put", "a b", "s3://bucket/sub/"]).succeeded();
    let node = node(store.command(here.path(), &["serve", "--origin", ADDRESS]), folder());
    for _ in 0..2 {
        node.get("/a%20b").assert_is(200, &bytes);
    }
    node.range("/a%20b", "1000-1999").assert_is(206, &bytes[1000..2000]);
    // A query would be another request to the store.
    node.get("/a%20b?acl").assert_is(200, &bytes);
    assert_eq!(node.metric("origin_bytes_total"), 5 << 20);
    // Nor is it the page of the store.
    assert!(!String::from_utf8_lossy(&node.get("/?list-type=2").body).contains("ListBucket"));
    for path in ["/none/", "/none"] {
        let reply = node.get(path);
        assert_eq!(reply.status, 404, "{path}");
        assert!(!String::from_utf8_lossy(&reply.body).contains('<'), "{path}");
    }
}

#[test]
fn keys_that_are_refused_are_replaced_once() {
    let object = Object::new(noise(1000), "one").with("Content-Type: text/plain");
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        let authorization = request.field("authorization").unwrap_or_default();
        let body = "<Error><Code>AccessDenied</Code><Message>of bucket</Message></Error>";
        if authorization.contains("Credential=new/") && request.path != "/bucket/sub/denied" {
            object.send(request, sending)
        } else {
            sending.answer("HTTP/1.1 403 No\nContent-Type: application/xml", body.as_bytes())
        }
    });
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let service = Origin::new(move |_: &Request, sending: &mut Sending| {
        let id = if counted.fetch_add(1, Ordering::Relaxed) == 0 { "old" } else { "new" };
        let keys = format!(r#"{{"AccessKeyId":"{id}","SecretAccessKey":"s"}}"#);
        sending.answer("HTTP/1.1 200 OK", keys.as_bytes());
    });
    let here = folder();
    let mut command = bare(here.path(), &["serve", "--origin", ADDRESS]);
    command.env("AWS_ENDPOINT_URL_S3", store.url());
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
    let node = node(command, folder());
    node.get("/x").assert_is(200, &noise(1000));
    assert_eq!(count.load(Ordering::Relaxed), 2);
    let reply = node.get("/denied");
    assert_eq!(reply.status, 502);
    assert!(!String::from_utf8_lossy(&reply.body).contains("bucket"));
    assert!(reply.field("cache-status").unwrap().contains("origin-denied"));
    assert!(count.load(Ordering::Relaxed) <= 3);
}

#[test]
fn a_store_that_refuses_for_certain_is_reported_at_the_start() {
    let here = folder();
    for (status, code, is_certain) in [
        ("404 Not Found", "NoSuchBucket", true),
        ("403 Forbidden", "InvalidAccessKeyId", true),
        ("403 Forbidden", "SignatureDoesNotMatch", true),
        // Keys that may read a file need not be keys that may list.
        ("403 Forbidden", "AccessDenied", false),
        ("503 Service Unavailable", "SlowDown", false),
    ] {
        let body = format!("<Error><Code>{code}</Code></Error>");
        let head = format!("HTTP/1.1 {status}\nContent-Type: application/xml");
        let store = Origin::new(move |_: &Request, sending: &mut Sending| {
            sending.answer(&head, body.as_bytes());
        });
        let cache = folder();
        let mut command = command(&store.url(), here.path(), &["serve", "--origin", ADDRESS]);
        if is_certain {
            command.args(["--port", "0", "--cache"]).arg(cache.path());
            let finished = Running::start(command).finish();
            finished.failed(1, &["--origin s3://bucket/sub", &format!("({code})")]);
        } else {
            assert_eq!(node(command, cache).get("/x").status / 100, 5);
        }
    }
}

#[test]
fn a_refused_signature_is_no_fault_of_a_client() {
    let store = Origin::new(move |request: &Request, sending: &mut Sending| {
        let code = request.path.rsplit(['/', '=']).next().unwrap().trim_end_matches("%2F");
        let code = code.trim_start_matches("sub%2F").to_owned();
        let status = if code == "RequestTimeTooSkewed" { 403 } else { 400 };
        let body = format!("<Error><Code>{code}</Code><Message>of bucket</Message></Error>");
        let head = format!("HTTP/1.1 {status} No\nContent-Type: application/xml");
        sending.answer(&head, body.as_bytes());
    });
    let node = before(&store, &[]);
    for (code, status) in [
        ("ExpiredToken", 502),
        ("InvalidToken", 502),
        ("AuthorizationHeaderMalformed", 502),
        ("RequestTimeTooSkewed", 502),
        ("KeyTooLongError", 400),
    ] {
        let reply = node.get(&format!("/{code}"));
        assert_eq!(reply.status, status, "{code}: {}", reply.head);
        assert_eq!(reply.cache().contains("origin-denied"), status == 502, "{code}");
        let folder = node.get(&format!("/{code}/"));
        assert_eq!(folder.cache().contains("origin-denied"), status == 502, "{}", folder.head);
        for reply in [reply, folder] {
            assert!(!String::from_utf8_lossy(&reply.body).contains("bucket"), "{code}");
        }
    }
}
