//! Validations: what they do not wait for, and which requests join them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::{Client, Node, until_stored};
use crate::rig::noise;
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
    paths.iter().for_each(|path| node.get(path).is(200, b"old"));
    node.get("/same").is(200, b"old");
    until_stored(&node, 17 * 3);
    is_changed.store(true, Ordering::Relaxed);
    let mut clients: Vec<_> = paths.iter().map(|path| node.client("GET", path, &[])).collect();
    clients.iter_mut().for_each(Client::read_head);
    let same = node.get("/same");
    same.is(200, b"old");
    assert!(same.cache().contains("fwd=stale; fwd-status=304"), "{}", same.cache());
    gate.open();
    clients.into_iter().for_each(|client| client.finish().is(200, &bytes));
}
