//! The room for objects.

use std::process::Command;

use crate::node::Node;
use crate::rig::{noise, until};
use crate::wicked::{Object, Origin};

const MIB: usize = 1 << 20;

/// The bytes that the folder takes, as du(1) counts them.
fn used(node: &Node) -> u64 {
    let output = Command::new("du").args(["-s", "-B1"]).arg(node.cache.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn old_objects_make_room_for_new_ones() {
    let object = Object::new(noise(MIB), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &["--cache-size", "8M"]);
    for number in 0..40 {
        node.get(&format!("/{number}")).is(200, &bytes);
        let used = used(&node);
        assert!(used < 9 * MIB as u64, "{used}");
    }
    assert!(node.metric("evicted_total") >= 32);
    until("room", || node.metric("reserved_bytes") == 0);
    assert!(node.metric("used_bytes") <= 8 * MIB as u64);
    // After a start it counts what it finds.
    let node = node.again(&origin.url(), &["--cache-size", "4M"]);
    until("a count of what is there", || node.metric("objects") >= 7);
    node.get("/new").is(200, &bytes);
    assert!(used(&node) < 5 * MIB as u64);
}

#[test]
fn what_is_used_often_stays_when_everything_is_asked_for_once() {
    let object = Object::new(noise(MIB / 4), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &["--cache-size", "10M"]);
    let hot = || (0..20).map(|number| format!("/hot/{number}"));
    for _ in 0..3 {
        hot().for_each(|path| node.get(&path).is(200, &bytes));
    }
    for number in 0..150 {
        node.get(&format!("/scan/{number}")).is(200, &bytes);
        if number % 10 == 0 {
            hot().for_each(|path| node.get(&path).is(200, &bytes));
        }
    }
    let asked = origin.asked();
    let again = asked.iter().filter(|asked| asked.path.starts_with("/hot/")).count();
    assert!(again <= 22, "{again} requests for 20 objects");
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_fetched() {
    let object = Object::new(noise(4 * MIB), "a");
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    let reply = node.get("/a");
    assert_eq!(reply.status, 507, "{}", reply.head);
    assert!(reply.cache().contains("detail=no-room"), "{}", reply.cache());
    assert!(used(&node) < MIB as u64);
}
