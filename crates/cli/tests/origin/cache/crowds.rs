//! Clients that wait for the same, and those that have too much in progress.

use std::thread::{self, sleep};
use std::time::Duration;

use crate::cache::operating::post;
use crate::node::{Client, Node, Reply};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin, Request};

const MIB: usize = 1 << 20;

/// The field of a request of one client.
const GREEDY: &str = "X-Forwarded-For: 192.0.2.1";

/// That of another one.
const OTHER: &str = "X-Forwarded-For: 192.0.2.2";

/// Returns whether so many paths were requested.
fn has_requested(node: &Node, number: usize) -> bool {
    let popular = node.get("/.underpass/popular").body;
    popular.split(|byte| *byte == b'\n').count() > number
}

/// What is open, those that are being filled first.
fn shown(node: &Node) -> serde_json::Value {
    serde_json::from_slice(&node.get("/.underpass/cache?json").body).unwrap()
}

#[test]
fn jobs_of_a_limited_client_do_not_hold_up_others() {
    let object = Object::new(noise(12 * MIB), "a");
    let bytes = object.bytes.clone();
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        if request.path.starts_with("/stalled/") {
            held.wait();
        }
        object.send(request, sending);
    });
    let node = Node::new(&origin.url(), &["--trusted-proxy", "127.0.0.1"]);
    node.range("/part", "0-0").assert_is(206, &bytes[..1]);
    let greedy = |path: &str| node.client("GET", path, &[GREEDY]);
    let stalled: Vec<_> = (0..40).map(|number| greedy(&format!("/stalled/{number}"))).collect();
    until("all that may run", || origin.requests().len() == 33);
    until("requests that wait", || has_requested(&node, 41));
    // Both a fetch and a fill wait for the end of another one of that client.
    let whole = greedy("/whole");
    until("a fetch that waits", || has_requested(&node, 42));
    let range = "Range: bytes=8388608-8389007";
    let part = node.client("GET", "/part", &[GREEDY, range]);
    until("a fill that waits", || shown(&node)[0]["readers"] == 1);
    node.ask("GET", "/part", &[OTHER, range]).assert_is(206, &bytes[8 * MIB..][..400]);
    node.ask("GET", "/whole", &[OTHER]).assert_is(200, &bytes);
    part.finish().assert_is(206, &bytes[8 * MIB..][..400]);
    whole.finish().assert_is(200, &bytes);
    assert_eq!(origin.requests().len(), 35, "none was sent twice");
    gate.open();
    stalled.into_iter().for_each(|client| client.finish().assert_is(200, &bytes));
}

/// An origin that sends what `is_slow` applies to byte by byte until the gate is open.
fn trickling(
    object: &Object,
    is_slow: impl Fn(&Request) -> bool + Send + Sync + 'static,
) -> (Origin, Gate) {
    let gate = Gate::default();
    let (object, held) = (object.clone(), gate.clone());
    let origin = Origin::new(move |request, sending| {
        let (head, body) = object.answer(request);
        sending.head(&head);
        let mut at = 0;
        while is_slow(request) && !held.is_open() && at < body.len() {
            sending.body(&body[at..=at]);
            at += 1;
            sleep(Duration::from_millis(100));
        }
        sending.body(&body[at..]);
    });
    (origin, gate)
}

fn assert_busy(reply: &Reply) {
    assert_eq!(reply.status, 503);
    assert!(reply.field("retry-after").is_some());
    assert!(reply.cache().contains("detail=busy"), "{}", reply.cache());
}

#[test]
fn no_client_waits_without_limit_for_slow_files_of_others() {
    let object = Object::new(noise(12 * MIB), "a");
    let bytes = &object.bytes;
    let (origin, gate) = trickling(&object, |request| request.path.starts_with("/slow/"));
    let node = Node::new(&origin.url(), &["--timeout", "4"]);
    node.range("/part", "0-0").assert_is(206, &bytes[..1]);
    let slow = |number| node.client("GET", &format!("/slow/{number}"), &[]);
    let mut clients: Vec<_> = (0..64).map(slow).collect();
    clients.iter_mut().for_each(Client::read_head);
    // A file that is not here, one that is asked for twice, and a part of one.
    let part = ["Range: bytes=8388608-8389007"];
    let waiting = [("/a", &[][..]), ("/b", &[]), ("/b", &[]), ("/part", &part)];
    let waiting = waiting.map(|(path, lines)| node.client("GET", path, lines));
    waiting.into_iter().for_each(|client| assert_busy(&client.finish()));
    assert_eq!(post(&node, "/.underpass/fill?path=/c", &[]), 503);
    gate.open();
    // All at once: a client that reads nothing for long is reset.
    thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || client.finish().assert_is(200, bytes));
        }
    });
    for path in ["/a", "/b", "/c", "/part"] {
        node.get(path).assert_is(200, bytes);
    }
}

#[test]
fn no_client_waits_without_limit_for_slow_parts_of_others() {
    let object = Object::new(noise(36 * MIB), "a");
    let bytes = &object.bytes;
    let is_first = |request: &Request| request.field("range") == Some("bytes=0-1048575");
    let (origin, gate) = trickling(&object, move |request| !is_first(request));
    let node = Node::new(&origin.url(), &["--timeout", "4"]);
    node.range("/a", "0-0").assert_is(206, &bytes[..1]);
    // From the end, so that none reads ahead into the next one.
    let starts = (3..35).rev().map(|mib| mib * MIB);
    let part = |start: usize| {
        let range = format!("Range: bytes={start}-{}", start + MIB - 1);
        let mut client = node.client("GET", "/a", &[&range]);
        client.read_head();
        (start, client)
    };
    let clients: Vec<_> = starts.map(part).collect();
    assert_busy(&node.range("/a", &format!("{MIB}-{}", MIB + 9)));
    gate.open();
    for (start, client) in clients {
        client.finish().assert_is(206, &bytes[start..start + MIB]);
    }
    node.get("/a").assert_is(200, bytes);
}
