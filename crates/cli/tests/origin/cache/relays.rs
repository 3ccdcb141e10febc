//! Relays of what there is no room for: how many there are, and whose.

use crate::node::{Client, Node};
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

#[test]
fn a_client_without_a_relay_refuses_nobody_who_waits_with_it() {
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
