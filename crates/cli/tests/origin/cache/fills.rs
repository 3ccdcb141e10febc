//! One fill for all clients, which receive its bytes while it runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::node::{End, Node, until_stored};
use crate::rig::{folder, noise, noise_file, serve, until};
use crate::scripted_origin::{Gate, Object, Origin};
use underpass_testkit::tls::certificate;

const LEN: usize = 3 << 20;

#[test]
fn the_second_client_gets_the_bytes_from_the_disk_and_both_from_the_kernel() {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let first = node.get("/a/b%20c?d=e");
    first.assert_is(200, &object.bytes);
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
    second.assert_is(200, &object.bytes);
    assert!(second.cache().starts_with("underpass; hit; ttl="), "{}", second.cache());
    assert!(second.field("age").is_some());
    let head = node.ask("HEAD", "/a/b%20c?d=e", &[]);
    assert_eq!(head.field("content-length"), Some(&*LEN.to_string()));
    node.ask("GET", "/a/b%20c?d=e", &["If-None-Match: \"a\""]).assert_is(304, b"");
    node.range("/a/b%20c?d=e", "-5").assert_is(206, &object.bytes[LEN - 5..]);
    let requests = origin.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!(requests[0].path, "/a/b%20c?d=e");
    assert_eq!(requests[0].field("accept-encoding"), Some("identity"));
    assert!(requests[0].field("cdn-loop").unwrap().starts_with("underpass-"));
    assert_eq!(requests[0].field("host"), Some(&*origin.address));
    let log = node.log();
    assert_eq!(log[0]["cache"], "miss");
    assert_eq!(log[0]["origin_bytes"], LEN as u64);
    assert_eq!(log[1]["cache"], "hit");
    assert_eq!(log[1]["origin_bytes"], 0);
    assert!(log.iter().take(2).all(|line| line["user_space_bytes"] == 0), "{log:?}");
}

/// Also if no more of it than a small file has come when its response begins.
#[test]
fn no_piece_of_a_large_file_is_copied() {
    let object = Object::new(noise(LEN), "a");
    let gate = Gate::default();
    let (held, bytes) = (gate.clone(), object.bytes.clone());
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        sending.head(&head);
        sending.body(&body[..100]);
        held.wait();
        sending.body(&body[100..]);
    });
    let node = Node::new(&origin.url(), &[]);
    let mut client = node.client("GET", "/a", &[]);
    client.read_body(100);
    gate.open();
    client.finish().assert_is(200, &bytes);
    assert_eq!(node.log()[0]["user_space_bytes"], 0);
}

#[test]
fn a_fill_uses_splice() {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a");
    until_stored(&node, LEN as u64);
    let said = node.server.end().stderr;
    let line = said.lines().find(|line| line.starts_with("filled /a: ")).unwrap();
    assert!(line.contains(" by splice in ") && line.ends_with(", 0 bytes in user space"), "{line}");
}

/// An origin that answers for anything but `/a` only once the gate is open.
fn stalling(object: Object) -> (Origin, Gate) {
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        if request.path != "/a" {
            held.wait();
        }
        object.send(request, sending);
    });
    (origin, gate)
}

#[test]
fn a_client_that_leaves_is_no_failure_of_the_origin() {
    let (origin, gate) = stalling(Object::new(noise(LEN), "a"));
    let node = Node::new(&origin.url(), &[]);
    let client = node.client("GET", "/stalled", &[]);
    until("a request", || !origin.requests().is_empty());
    drop(client);
    let counted = || {
        let metrics = node.get("/.underpass/metrics").body;
        String::from_utf8(metrics).unwrap().contains("code=\"408\"} 1\n")
    };
    until("the end of the response", counted);
    gate.open();
    assert_eq!(node.log()[0]["status"], 408);
}

#[test]
fn a_client_without_a_place_resets_no_other_one() {
    let object = Object::new(noise(24 << 20), "a");
    let bytes = object.bytes.clone();
    let (origin, gate) = stalling(object);
    let node = Node::new(&origin.url(), &["--trusted-proxy", "127.0.0.1"]);
    let (greedy, other) = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2");
    // Something in the middle, so that the whole has two holes.
    node.range("/a", "4194304-4194304").assert_is(206, &bytes[4 << 20..=4 << 20]);
    let stalled = |number: usize| node.client("GET", &format!("/stalled/{number}"), &[greedy]);
    let _stalled: Vec<_> = (0..80).map(stalled).collect();
    let popular = || node.get("/.underpass/popular").body;
    until("requests that wait", || popular().split(|byte| *byte == b'\n').count() > 81);
    let reader = node.client("GET", "/a", &[other]);
    until("a fill that waits", || {
        let shown = node.get("/.underpass/cache?json").body;
        serde_json::from_slice::<serde_json::Value>(&shown).unwrap()[0]["readers"] == 1
    });
    let refused = node.ask("GET", "/a", &[greedy, "Range: bytes=16777216-16777216"]);
    assert_eq!(refused.status, 503);
    gate.open();
    reader.finish().assert_is(200, &bytes);
}

#[test]
fn a_download_waits_for_a_place_in_the_middle() {
    let object = Object::new(noise(24 << 20), "a");
    let bytes = object.bytes.clone();
    let (origin, gate) = stalling(object);
    let node = Node::new(&origin.url(), &["--trusted-proxy", "127.0.0.1"]);
    // More than sockets take at once: the client comes to what is missing when it reads on.
    let begin = 20 << 20;
    node.range("/a", &format!("0-{}", begin - 1)).assert_is(206, &bytes[..begin]);
    let client = |path: &str| node.client("GET", path, &["X-Forwarded-For: 192.0.2.1"]);
    let mut reader = client("/a");
    reader.read_body(1);
    let _stalled: Vec<_> = (0..80).map(|number| client(&format!("/stalled/{number}"))).collect();
    let popular = || node.get("/.underpass/popular").body;
    until("requests that wait", || popular().split(|byte| *byte == b'\n').count() > 81);
    reader.read_body(begin);
    assert_eq!(client("/other").finish().status, 503);
    gate.open();
    reader.finish().assert_is(200, &bytes);
}

#[test]
fn clients_get_what_has_come_and_one_request_serves_them_all() {
    let object = Object::new(noise(LEN), "a");
    let (origin, gate) = Origin::holding(&object, LEN / 2, |_| true);
    let node = Node::new(&origin.url(), &[]);
    let mut clients: Vec<_> = (0..16).map(|_| node.client("GET", "/a", &[])).collect();
    // The origin has sent a half, and each client gets it before the other one is sent.
    clients.iter_mut().for_each(|client| client.read_body(LEN / 2));
    gate.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &object.bytes));
    assert_eq!(origin.requests().len(), 1);
    assert_eq!(origin.sent(), LEN as u64);
}

#[test]
fn neither_a_slow_client_nor_one_that_leaves_holds_up_a_fill() {
    let object = Object::new(noise(4 * LEN), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    until_stored(&node, object.bytes.len() as u64);
    slow.finish().assert_is(200, &object.bytes);
    drop(node.client("GET", "/b", &[]));
    until_stored(&node, 2 * object.bytes.len() as u64);
    node.get("/b").assert_is(200, &object.bytes);
    assert_eq!(origin.requests().len(), 2);
}

/// An origin that gives each connection little makes fills last for long.
#[test]
fn slow_fills_without_readers_do_not_block_others() {
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let small = Object::new(b"small".to_vec(), "a").with("Cache-Control: max-age=0");
    let origin = Origin::new(move |request, sending| {
        if !request.path.starts_with("/slow/") {
            return small.send(request, sending);
        }
        sending.head("HTTP/1.1 200 OK\nETag: \"a\"\nContent-Length: 60000000");
        while !ends.load(Ordering::Relaxed) {
            sending.body(b"x");
            thread::sleep(Duration::from_millis(20));
        }
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/small").assert_is(200, b"small");
    until_stored(&node, 5);
    let slow = |number| node.client("GET", &format!("/slow/{number}"), &[]);
    let mut readers: Vec<_> = (0..64).map(slow).collect();
    readers.iter_mut().for_each(|reader| reader.read_body(1));
    // While they are read, what is here is validated all the same.
    assert!(node.get("/small").cache().contains("fwd-status=304"));
    drop(readers);
    node.get("/new").assert_is(200, b"small");
    is_over.store(true, Ordering::Relaxed);
}

#[test]
fn a_client_that_leaves_is_noticed_while_the_origin_is_silent() {
    for line in ["Range: bytes=5-9", ""] {
        let gate = Gate::default();
        let held = gate.clone();
        let origin = Origin::new(move |_, sending| {
            let line = "HTTP/1.1 200 OK\nETag: \"a\"\nCache-Control: max-age=1000";
            sending.head(&format!("{line}\nTransfer-Encoding: chunked"));
            sending.body(b"1\r\na\r\n");
            held.wait();
        });
        let node = Node::new(&origin.url(), &[]);
        let lines: &[&str] = if line.is_empty() { &[] } else { &[line] };
        let mut client = node.client("GET", "/a", lines);
        until("a request", || origin.requests().len() == 1);
        if lines.is_empty() {
            client.read_body(1);
        }
        client.half_close();
        let reply = client.finish();
        assert!(reply.status != 200 || reply.end == End::Reset, "{line}: {reply:?}");
        gate.open();
    }
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
    // Its length is not needed for its head, nor by a client that does not know chunks.
    let head = node.ask("HEAD", "/a", &[]);
    head.assert_is(200, b"");
    assert_eq!((head.field("etag"), head.field("content-length")), (Some("\"a\""), None));
    let mut old = node.old_client("/a");
    old.read_body(LEN / 3);
    gate.open();
    client.finish().assert_is(200, &bytes);
    let old = old.finish();
    old.assert_is(200, &bytes);
    assert_eq!(old.field("transfer-encoding"), None);
    // Now the length is known, and a range can be served.
    until_stored(&node, LEN as u64);
    let again = node.get("/a");
    again.assert_is(200, &bytes);
    assert_eq!(again.field("content-length"), Some(&*LEN.to_string()));
    node.range("/a", "5-9").assert_is(206, &bytes[5..10]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_body_that_breaks_off_is_resumed_by_its_version() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        sending.head(&head);
        // At most a third for each request.
        sending.closes = body.len() > LEN / 3;
        sending.body(&body[..body.len().min(LEN / 3)]);
    });
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    let requests = origin.requests();
    assert!(requests.len() >= 3, "{requests:?}");
    assert!(
        requests[1..].iter().all(|request| request.field("if-range") == Some("\"a\"")),
        "{requests:?}"
    );
    assert_eq!(origin.sent(), LEN as u64);
}

#[test]
fn a_coded_body_that_breaks_off_is_resumed_too() {
    let lines = "Content-Encoding: gzip\nCache-Control: max-age=1000";
    let object = Object::new(noise(LEN), "a").with(lines);
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        sending.head(&head);
        sending.closes = request.field("range").is_none();
        sending.body(if sending.closes { &body[..LEN / 2] } else { body });
    });
    let node = Node::new(&origin.url(), &[]);
    for _ in 0..2 {
        let reply = node.get("/a");
        reply.assert_is(200, &bytes);
        assert_eq!(reply.field("content-encoding"), Some("gzip"));
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_client_is_reset_if_no_more_bytes_arrive() {
    let origin = Origin::new(|request, sending| {
        sending.closes = true;
        if request.field("range").is_none() {
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
    let origin = Origin::new(|request, sending| {
        Object::new(request.path.repeat(100_000).into_bytes(), "a").send(request, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    thread::scope(|scope| {
        for number in 0..40 {
            let node = &node;
            scope.spawn(move || {
                let path = format!("/{number}");
                node.get(&path).assert_is(200, path.repeat(100_000).as_bytes());
            });
        }
    });
    // A client has the last byte before the metrics know it.
    until("all objects are in the cache", || node.metric("objects") == 40);
}

#[test]
fn a_fill_over_tls_is_checked_and_every_byte_arrives() {
    let (files, keys) = (folder(), folder());
    noise_file(files.path(), "a", LEN);
    let (certificate, key) = certificate(keys.path(), "cert", &["127.0.0.1"]);
    let origin = serve(&files, &["--tls-cert", &certificate, "--tls-key", &key]);
    let node = Node::new(&origin.address, &["--origin-cacert", &certificate]);
    node.get("/a").assert_is(200, &noise(LEN));
    node.range("/a", "-99").assert_is(206, &noise(LEN)[LEN - 99..]);
    let said = node.server.end().stderr;
    let line = said.lines().find(|line| line.starts_with("filled /a: ")).unwrap();
    // Where the kernel decrypts, the bytes stay in it.
    assert!(line.contains(" by splice in ") || line.contains(" by read_write in "), "{line}");
    let doubting = Node::new(&origin.address, &[]);
    let refused = doubting.get("/a");
    assert_eq!(refused.status, 502, "{}", refused.head);
    assert_eq!(doubting.metric("objects"), 0);
}

#[test]
fn a_node_can_be_the_origin_of_another() {
    let object = Object::new(noise(8 * LEN), "a");
    let (origin, gate) = Origin::holding(&object, LEN, |_| true);
    let parent = Node::new(&origin.url(), &[]);
    let nodes: Vec<_> = (0..3).map(|_| Node::new(&parent.url(), &[])).collect();
    let mut clients: Vec<_> = nodes.iter().map(|node| node.client("GET", "/a", &[])).collect();
    // What has come has come through both, before the rest is sent.
    clients.iter_mut().for_each(|client| client.read_body(LEN));
    gate.open();
    for client in clients {
        let reply = client.finish();
        reply.assert_is(200, &object.bytes);
        assert_eq!(reply.field("etag"), Some("\"a\""));
        assert!(reply.field("age").is_some());
    }
    nodes[0].range("/a", "5-99").assert_is(206, &object.bytes[5..100]);
    assert_eq!((origin.requests().len(), origin.sent()), (1, object.bytes.len() as u64));
    assert!(origin.requests()[0].field("cdn-loop").unwrap().split(", ").count() == 2);
    // A parent that is gone is no reason to forget; another one goes on where the first was.
    drop(parent);
    nodes[1].get("/a").assert_is(200, &object.bytes);
}

#[test]
fn a_fill_continues_with_another_parent_after_one_dies() {
    let object = Object::new(noise(4 * LEN), "a");
    let (origin, gate) = Origin::holding(&object, LEN, |_| true);
    let (one, other) = (Node::new(&origin.url(), &[]), Node::new(&origin.url(), &[]));
    let node = Node::new(&one.url(), &["--origin", &other.url()]);
    let mut client = node.client("GET", "/a", &[]);
    client.read_body(LEN);
    drop(one);
    gate.open();
    client.finish().assert_is(200, &object.bytes);
}

#[test]
fn nodes_in_a_circle_are_an_error() {
    let port = underpass_testkit::free_port();
    let node = Node::new(&format!("http://127.0.0.1:{port}/"), &[]);
    let port = port.to_string();
    let other = Node::new(&node.url(), &["--port", &port]);
    let reply = other.get("/a");
    assert!(matches!(reply.status, 502 | 508), "{}", reply.head);
    // The request fails at once, without a storm of requests.
    assert!(node.metric("requests_total") <= 4);
}

/// An object of 160 MiB, slow enough that clients leave in the middle.
#[test]
fn a_fill_without_clients_ends_at_a_boundary_unless_most_is_stored() {
    const PIECE: usize = 1 << 20;
    let piece = noise(PIECE);
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        let Range { start, end } = request.range(160 * PIECE).unwrap_or(0..160 * PIECE);
        let head = match request.field("range") {
            Some(_) => format!(
                "HTTP/1.1 206 Partial\nContent-Range: bytes {start}-{}/{}",
                end - 1,
                160 * PIECE
            ),
            None => "HTTP/1.1 200 OK".to_owned(),
        };
        let lines = if request.path == "/none" { "X-Any: 1" } else { "ETag: \"a\"" };
        let lines = format!("{lines}\nCache-Control: max-age=1000");
        sending.head(&format!("{head}\n{lines}\nContent-Length: {}", end - start));
        let border = if request.path == "/most" { 100 * PIECE } else { 4 * PIECE };
        let mut at = start;
        while at < end {
            let next = ((at / PIECE + 1) * PIECE).min(end);
            if at == border {
                held.wait();
            }
            sending.body(&piece[at % PIECE..at % PIECE + (next - at)]);
            if request.path != "/most" {
                thread::sleep(Duration::from_millis(10));
            }
            at = next;
        }
    });
    let node = Node::new(&origin.url(), &[]);
    let mut few = node.client("GET", "/few", &[]);
    let mut most = node.client("GET", "/most", &[]);
    let mut none = node.client("GET", "/none", &[]);
    few.read_body(2 * PIECE);
    most.read_body(96 * PIECE);
    none.read_body(2 * PIECE);
    drop((few, most, none));
    // The node notices it when it sends.
    thread::sleep(Duration::from_millis(500));
    gate.open();
    until("fills that have ended", || node.metric("reserved_bytes") == 0);
    // No rest would be known to fit to a part without a version.
    let used = node.metric("used_bytes");
    assert_eq!(used, (64 + 160) * PIECE as u64);
    let range = node.range("/few", &format!("{}-{}", 63 * PIECE, 66 * PIECE - 1));
    assert_eq!((range.status, range.body.len()), (206, 3 * PIECE));
}
