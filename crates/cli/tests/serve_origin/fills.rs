//! One fill for all clients, which get what has come while it runs.

use std::thread;

use crate::node::{End, Node, until_stored};
use crate::rig::{noise, until};
use crate::wicked::{Gate, Object, Origin};

const LEN: usize = 3 << 20;

#[test]
fn the_second_client_gets_the_bytes_from_the_disk_and_both_from_the_kernel() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    let first = node.get("/a/b%20c?d=e");
    first.is(200, &bytes);
    assert!(
        first.cache().starts_with("underpass; fwd=uri-miss; fwd-status=200; ttl="),
        "{first:?}"
    );
    assert!(first.cache().ends_with("; stored"), "{}", first.cache());
    assert_eq!(first.field("etag"), Some("\"a\""));
    assert_eq!(first.field("content-type"), Some("text/plain"));
    assert_eq!(first.field("cache-control"), Some("max-age=1000"));
    until_stored(&node, LEN as u64);
    let second = node.get("/a/b%20c?d=e");
    second.is(200, &bytes);
    assert!(second.cache().starts_with("underpass; hit; ttl="), "{}", second.cache());
    assert!(second.field("age").is_some());
    let head = node.ask("HEAD", "/a/b%20c?d=e", &[]);
    assert_eq!(head.field("content-length"), Some(&*LEN.to_string()));
    node.ask("GET", "/a/b%20c?d=e", &["If-None-Match: \"a\""]).is(304, b"");
    node.range("/a/b%20c?d=e", "-5").is(206, &bytes[LEN - 5..]);
    let asked = origin.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].path, "/a/b%20c?d=e");
    assert_eq!(asked[0].field("accept-encoding"), Some("identity"));
    assert!(asked[0].field("cdn-loop").unwrap().starts_with("underpass-"));
    assert_eq!(asked[0].field("host"), Some(&*origin.address));
    let log = node.log();
    assert_eq!(log[0]["cache"], "miss");
    assert_eq!(log[0]["origin_bytes"], LEN as u64);
    assert_eq!(log[1]["cache"], "hit");
    assert_eq!(log[1]["origin_bytes"], 0);
    assert!(log.iter().take(2).all(|line| line["user_space_bytes"] == 0), "{log:?}");
}

#[test]
fn a_fill_is_spliced() {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    node.get("/a");
    until_stored(&node, LEN as u64);
    node.server.signal("TERM");
    let said = node.server.finish().stderr;
    let line = said.lines().find(|line| line.starts_with("filled /a: ")).unwrap();
    assert!(line.contains(" by splice in ") && line.ends_with(", 0 bytes in user space"), "{line}");
}

#[test]
fn clients_get_what_has_come_and_one_request_serves_them_all() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let (origin, gate) = Origin::holding(object, LEN / 2, |_| true);
    let node = Node::new(&origin.url(), &[]);
    let mut clients: Vec<_> = (0..16).map(|_| node.client("GET", "/a", &[])).collect();
    // The origin has sent a half, and each client gets it before the other one is sent.
    clients.iter_mut().for_each(|client| client.read_body(LEN / 2));
    gate.open();
    clients.into_iter().for_each(|client| client.finish().is(200, &bytes));
    assert_eq!(origin.asked().len(), 1);
    assert_eq!(origin.sent(), LEN as u64);
}

#[test]
fn neither_a_slow_client_nor_one_that_leaves_holds_up_a_fill() {
    let object = Object::new(noise(4 * LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    until_stored(&node, bytes.len() as u64);
    slow.finish().is(200, &bytes);
    drop(node.client("GET", "/b", &[]));
    until_stored(&node, 2 * bytes.len() as u64);
    node.get("/b").is(200, &bytes);
    assert_eq!(origin.asked().len(), 2);
}

#[test]
fn a_body_of_unknown_length_is_passed_on_as_it_comes() {
    let bytes = noise(LEN);
    let body = bytes.clone();
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |_, sending| {
        let line = "HTTP/1.1 200 OK\nETag: \"a\"\nCache-Control: max-age=1000";
        sending.head(&format!("{line}\nTransfer-Encoding: chunked"));
        for (index, part) in body.chunks(LEN / 3 + 1).enumerate() {
            if index == 1 {
                held.wait();
            }
            sending.body(format!("{:x}\r\n", part.len()).as_bytes());
            sending.body(part);
            sending.body(b"\r\n");
        }
        sending.body(b"0\r\n\r\n");
    });
    let node = Node::new(&origin.url(), &[]);
    let mut client = node.client("GET", "/a", &[]);
    client.read_body(LEN / 3);
    gate.open();
    client.finish().is(200, &bytes);
    // Now the length is known, and a range has an answer.
    until_stored(&node, LEN as u64);
    let again = node.get("/a");
    again.is(200, &bytes);
    assert_eq!(again.field("content-length"), Some(&*LEN.to_string()));
    node.range("/a", "5-9").is(206, &bytes[5..10]);
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn a_body_that_breaks_off_is_resumed_by_its_version() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| {
        let (head, body) = object.answer(asked);
        sending.head(&head);
        // At most a third for each request.
        sending.closes = body.len() > LEN / 3;
        sending.body(&body[..body.len().min(LEN / 3)]);
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").is(200, &bytes);
    let asked = origin.asked();
    assert!(asked.len() >= 3, "{asked:?}");
    assert!(asked[1..].iter().all(|asked| asked.field("if-range") == Some("\"a\"")), "{asked:?}");
    assert_eq!(origin.sent(), LEN as u64);
}

#[test]
fn a_client_is_reset_where_nothing_more_comes() {
    let origin = Origin::new(|asked, sending| {
        sending.closes = true;
        if asked.field("range").is_none() {
            sending.head("HTTP/1.1 200 OK\nETag: \"a\"\nContent-Length: 100000");
            sending.body(&[b'x'; 1000]);
        }
    });
    let node = Node::new(&origin.url(), &["--timeout", "2"]);
    let reply = node.get("/a");
    assert_eq!((reply.status, reply.end), (200, End::Reset), "{}", reply.head);
    assert_eq!(reply.body, [b'x'; 1000]);
    // Without a version, no other bytes are known to fit: nothing is kept.
    let origin = Origin::new(|_, sending| {
        sending.head("HTTP/1.1 200 OK\nContent-Length: 100000\nCache-Control: max-age=1000");
        sending.body(&[b'x'; 1000]);
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &[]);
    assert_eq!(node.get("/a").end, End::Reset);
    until("an empty cache", || node.metric("used_bytes") == 0);
}

#[test]
fn many_objects_are_filled_at_once() {
    let origin = Origin::new(|asked, sending| {
        Object::new(asked.path.repeat(100_000).into_bytes(), "a").send(asked, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    thread::scope(|scope| {
        for number in 0..40 {
            let node = &node;
            scope.spawn(move || {
                let path = format!("/{number}");
                node.get(&path).is(200, path.repeat(100_000).as_bytes());
            });
        }
    });
    assert_eq!(node.metric("objects"), 40);
}
