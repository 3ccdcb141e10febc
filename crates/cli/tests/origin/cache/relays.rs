//! Relays of objects for which there is no room: their number, in total and per client.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::{Client, Node};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

#[test]
fn a_client_without_a_relay_does_not_fail_others_that_wait_with_it() {
    let object = Object::new(noise(4 * MIB), "a");
    let bytes = object.bytes.clone();
    let (gate, heads) = (Gate::default(), Gate::default());
    let (held, held_head) = (gate.clone(), heads.clone());
    let origin = Origin::new(move |request, sending| {
        if request.path == "/both" {
            held_head.wait();
        }
        let (head, body) = object.answer(request);
        sending.head(&head);
        sending.body(&body[..MIB]);
        held.wait();
        sending.body(&body[MIB..]);
    });
    let node = Node::new(&origin.url(), &["--cache-size", "1M", "--trusted-proxy", "127.0.0.1"]);
    let (greedy, other) = ("X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 192.0.2.2");
    let client = |path: &str, from: &str| node.client("GET", path, &[from]);
    let mut clients: Vec<_> = (0..16).map(|it| client(&format!("/{it}"), greedy)).collect();
    clients.iter_mut().for_each(Client::read_head);
    let refused = client("/both", greedy);
    until("a request", || origin.requests().len() == 17);
    let joined = client("/both", other);
    until("a request that waits", || node.metric("collapsed_total") == 1);
    heads.open();
    assert_eq!(refused.finish().status, 503);
    gate.open();
    joined.finish().assert_is(200, &bytes);
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &bytes));
}

#[test]
fn a_download_waits_for_a_relay_in_the_middle() {
    let (object, other) = (Object::new(noise(24 * MIB), "a"), Object::new(noise(5 * MIB), "b"));
    let (bytes, other_bytes) = (object.bytes.clone(), other.bytes.clone());
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        if request.path == "/a" {
            return object.send(request, sending);
        }
        let (head, body) = other.answer(request);
        sending.head(&head);
        sending.body(&body[..1000]);
        held.wait();
        sending.body(&body[1000..]);
    });
    // There is no room for more of it, nor for the others.
    let node = Node::new(&origin.url(), &["--cache-size", "24M"]);
    // More than sockets take at once: the client comes to what is missing when it reads on.
    let begin = 20 * MIB;
    node.range("/a", &format!("0-{}", begin - 1)).assert_is(206, &bytes[..begin]);
    let mut reader = node.client("GET", "/a", &[]);
    reader.read_body(1);
    let relayed = |it| node.client("GET", &format!("/relayed/{it}"), &[]);
    let mut clients: Vec<_> = (0..64).map(relayed).collect();
    clients.iter_mut().for_each(Client::read_head);
    reader.read_body(begin);
    until("a fill without room", || node.metric("fills_failed_total") > 0);
    assert_eq!(node.get("/relayed/64").status, 503);
    gate.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &other_bytes));
    reader.finish().assert_is(200, &bytes);
}

#[test]
fn a_crowd_for_a_stale_file_gets_an_answer_that_is_neither_stored_nor_shared() {
    const CLIENTS: usize = 30;
    let object = Object::new(b"hello".to_vec(), "a").with("Cache-Control: max-age=0");
    let (page, heads) = (noise(2 * MIB), Gate::default());
    let (sent, held, first) = (page.clone(), heads.clone(), AtomicBool::new(true));
    let origin = Origin::new(move |request, sending| {
        if first.swap(false, Ordering::Relaxed) {
            return object.send(request, sending);
        }
        held.wait();
        // A page of a proxy has no version, and there is no room for it.
        sending.answer("HTTP/1.1 200 OK", &sent);
    });
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    node.get("/a").assert_is(200, b"hello");
    let clients: Vec<_> = (0..CLIENTS).map(|_| node.client("GET", "/a", &[])).collect();
    until("all to wait", || node.metric("collapsed_total") == CLIENTS as u64 - 1);
    heads.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &page));
}
