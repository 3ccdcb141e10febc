//! Validations: independence of slow fills, and which requests join them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use underpass_protocol::response::validator::push_date;

use crate::node::{Client, Node, until_stored};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

#[test]
fn new_versions_that_come_slowly_hold_up_no_validation() {
    let old = Object::new(b"old".to_vec(), "a").with("Cache-Control: max-age=0");
    let new = Object::new(noise(MIB), "b");
    let bytes = Arc::clone(&new.bytes);
    let (gate, is_changed) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let (held, changed) = (gate.clone(), Arc::clone(&is_changed));
    let origin = Origin::new(move |request, sending| {
        if request.path == "/same" || !changed.load(Ordering::Relaxed) {
            return old.send(request, sending);
        }
        let (head, body) = new.answer(request);
        sending.head(&head);
        sending.body(&body[..1000]);
        held.wait();
        sending.body(&body[1000..]);
    });
    let node = Node::new(&origin.url(), &[]);
    let paths: Vec<_> = (0..16).map(|number| format!("/{number}")).collect();
    paths.iter().for_each(|path| node.get(path).assert_is(200, b"old"));
    node.get("/same").assert_is(200, b"old");
    until_stored(&node, 17 * 3);
    is_changed.store(true, Ordering::Relaxed);
    let mut clients: Vec<_> = paths.iter().map(|path| node.client("GET", path, &[])).collect();
    clients.iter_mut().for_each(Client::read_head);
    let same = node.get("/same");
    same.assert_is(200, b"old");
    assert!(same.cache().contains("fwd=stale; fwd-status=304"), "{}", same.cache());
    gate.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &bytes));
}

#[test]
fn a_request_after_an_expiry_does_not_join_a_validation_before_it() {
    let (old, new) = (Object::new(b"old".to_vec(), "a"), Object::new(b"new".to_vec(), "b"));
    let old = old.with("Cache-Control: max-age=0");
    let (gate, number) = (Gate::default(), AtomicUsize::new(0));
    let held = gate.clone();
    let origin =
        Origin::new(move |request, sending| match number.fetch_add(1, Ordering::Relaxed) {
            0 => old.send(request, sending),
            1 => {
                held.wait();
                old.send(request, sending);
            }
            _ => new.send(request, sending),
        });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"old");
    until_stored(&node, 3);
    let before = node.client("GET", "/a", &[]);
    until("a validation", || origin.requests().len() == 2);
    let expired = node.ask("POST", "/.underpass/expire?prefix=/", &["Content-Length: 0"]);
    assert_eq!(expired.status, 200);
    let after = node.client("GET", "/a", &[]);
    until("a request that waits", || {
        origin.requests().len() == 3 || node.metric("collapsed_total") == 1
    });
    gate.open();
    after.finish().assert_is(200, b"new");
    before.finish().assert_is(200, b"old");
    let kept = node.get("/a");
    kept.assert_is(200, b"new");
    assert!(kept.cache().contains("hit"), "{}", kept.cache());
}

/// A length that becomes known while a validation is under way is kept, so the file is not lost.
#[test]
fn a_validation_forgets_no_length() {
    let bytes = noise(MIB);
    let body = bytes.clone();
    let (rest, answer) = (Gate::default(), Gate::default());
    let (held, validated) = (rest.clone(), answer.clone());
    let origin = Origin::new(move |request, sending| {
        let lines = "ETag: \"a\"\nCache-Control: max-age=0";
        if request.field("if-none-match").is_some() {
            validated.wait();
            return sending.head(&format!("HTTP/1.1 304 Not Modified\n{lines}"));
        }
        sending.head(&format!("HTTP/1.1 200 OK\n{lines}\nTransfer-Encoding: chunked"));
        for part in body.chunks(MIB / 2) {
            sending.body(format!("{:x}\r\n", part.len()).as_bytes());
            sending.body(part);
            sending.body(b"\r\n");
            held.wait();
        }
        sending.body(b"0\r\n\r\n");
    });
    let node = Node::new(&origin.url(), &[]);
    let mut first = node.client("GET", "/a", &[]);
    first.read_body(MIB / 2);
    let second = node.client("GET", "/a", &[]);
    until("a validation", || origin.requests().len() == 2);
    rest.open();
    first.finish().assert_is(200, &bytes);
    until("the end of the fill", || node.metric("reserved_bytes") == 0);
    answer.open();
    second.finish().assert_is(200, &bytes);
    let head = node.ask("HEAD", "/a", &[]);
    assert_eq!(head.field("content-length"), Some(&*MIB.to_string()));
    let node = node.again(&origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    let asked = origin.requests();
    let fetched = asked.iter().filter(|it| it.field("if-none-match").is_none());
    assert_eq!(fetched.count(), 1, "{asked:?}");
}

#[test]
fn a_future_date_does_not_make_a_new_version_with_each_response() {
    let lines = "Cache-Control: max-age=1000\nLast-Modified: Fri, 31 Dec 9999 23:59:59 GMT";
    let origin = Origin::of(&Object::new(b"hello".to_vec(), "a").with(lines));
    let node = Node::new(&origin.url(), &[]);
    let reply = node.get("/a");
    reply.assert_is(200, b"hello");
    assert_eq!(reply.field("last-modified"), None);
}

#[test]
fn a_file_that_is_written_after_the_request_keeps_its_date() {
    let origin = Origin::new(|_, sending| {
        thread::sleep(Duration::from_millis(1100));
        let mut date = Vec::new();
        push_date(&mut date, SystemTime::now());
        let date = String::from_utf8(date).unwrap();
        sending.answer(&format!("HTTP/1.1 200 OK\nETag: \"a\"\nLast-Modified: {date}"), b"hello");
    });
    let reply = Node::new(&origin.url(), &[]).get("/a");
    reply.assert_is(200, b"hello");
    assert!(reply.field("last-modified").is_some(), "{}", reply.head);
}

#[test]
fn an_answer_from_before_a_purge_removes_nothing() {
    let object = Object::new(b"hello".to_vec(), "a");
    let (gate, number) = (Gate::default(), AtomicUsize::new(0));
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        if number.fetch_add(1, Ordering::Relaxed) == 0 {
            held.wait();
            return sending.answer("HTTP/1.1 404 Not Found", b"");
        }
        object.send(request, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    let before = node.client("GET", "/a", &[]);
    until("a request", || origin.requests().len() == 1);
    node.ask("PURGE", "/a", &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    gate.open();
    assert_eq!(before.finish().status, 404);
    node.get("/a").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_version_that_may_be_used_stale_stays_until_another_one_is_whole() {
    let old = Object::new(b"old".to_vec(), "a").with("Cache-Control: max-age=0");
    let new = Object::new(vec![b'x'; 160 * MIB], "b");
    let bytes = Arc::clone(&new.bytes);
    let number = AtomicUsize::new(0);
    let origin =
        Origin::new(move |request, sending| match number.fetch_add(1, Ordering::Relaxed) {
            0 => old.send(request, sending),
            1 => new.send(request, sending),
            _ => sending.closes = true,
        });
    let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
    node.get("/a").assert_is(200, b"old");
    until_stored(&node, 3);
    // No client reads it.
    assert_eq!(node.ask("HEAD", "/a", &[]).field("etag"), Some("\"b\""));
    until("the end of the fill", || node.metric("reserved_bytes") == 0);
    node.get("/a").assert_is(200, &bytes);
}

#[test]
fn a_client_gets_the_old_version_if_the_new_one_fails() {
    let old = Object::new(b"hello".to_vec(), "old").with("Cache-Control: max-age=0");
    let count = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            return old.send(request, sending);
        }
        sending.head("HTTP/1.1 200 OK\nETag: \"new\"\nContent-Length: 100");
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &["--stale-if-error", "1d"]);
    node.get("/a").assert_is(200, b"hello");
    until("a fill that has ended", || node.metric("reserved_bytes") == 0);
    let stale = node.get("/a");
    stale.assert_is(200, b"hello");
    assert!(stale.cache().contains("detail=origin-cut-off"), "{}", stale.cache());
}

#[test]
fn a_stale_version_that_has_changed_was_stale() {
    let count = AtomicUsize::new(0);
    let origin = Origin::new(move |request, sending| {
        let tag = count.fetch_add(1, Ordering::Relaxed).to_string();
        let object = Object::new(b"hello".to_vec(), &tag).with("Cache-Control: max-age=0");
        match tag.as_str() {
            "0" | "1" => object.send(request, sending),
            _ => sending.answer("HTTP/1.1 404 No", b""),
        }
    });
    let node = Node::new(&origin.url(), &[]);
    for (status, expected) in [(200, "fwd=uri-miss"), (200, "fwd=stale"), (404, "fwd=stale")] {
        let reply = node.get("/a");
        assert_eq!(reply.status, status);
        let expected = format!("underpass; {expected}; fwd-status={status};");
        assert!(format!("{};", reply.cache()).starts_with(&expected), "{}", reply.cache());
        until("a fill that has ended", || node.metric("reserved_bytes") == 0);
    }
    let log = node.log();
    let [_, changed, _] = log.as_slice() else { panic!("{log:?}") };
    assert_eq!((&changed["cache"], &changed["origin_bytes"]), (&"stale".into(), &5.into()));
}
