//! Disks that take long to sync.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::node::{End, Node, until_stored};
use crate::rig::{folder, has, noise, skip, until};
use crate::scripted_origin::{Gate, Object, Origin};

const LEN: usize = 3 << 20;

/// The first sync lasts until the node is killed.
const ENDLESS: &str = "inject=fdatasync:delay_enter=1000000000";

/// Ends the tracer of a node: a process whose tracer delays it does not end.
fn end_tracer(node: &Node) {
    let status = fs::read_to_string(format!("/proc/{}/status", node.server.child.id())).unwrap();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:")).unwrap().trim();
    assert!(Command::new("kill").args(["-s", "KILL", tracer]).status().unwrap().success());
}

#[test]
fn requests_do_not_wait_for_a_slow_sync() {
    if !has("strace") {
        return;
    }
    let old = Object::new(noise(LEN), "old").with("Cache-Control: no-cache");
    let new = Object::new(noise(LEN / 2), "new");
    let (old_bytes, new_bytes) = (old.bytes.clone(), new.bytes.clone());
    let (gate, is_changed) = (Gate::default(), Arc::new(AtomicBool::new(false)));
    let (held, changed) = (gate.clone(), Arc::clone(&is_changed));
    let origin = Origin::new(move |request, sending| {
        if changed.load(Ordering::Relaxed) {
            return new.send(request, sending);
        }
        let (head, body) = old.answer(request);
        sending.head(&head);
        sending.body(&body[..LEN / 2]);
        held.wait();
        sending.body(&body[LEN / 2..]);
    });
    let traces = folder();
    let trace = traces.path().join("trace");
    let strace = ["-o", trace.to_str().unwrap(), "-e", "trace=fdatasync", "-e", ENDLESS];
    let node = Node::traced_on(folder(), &strace, &origin.url(), &[]);
    let mut client = node.client("GET", "/a", &[]);
    client.read_body(LEN / 2);
    until("a sync", || fs::read_to_string(&trace).unwrap().contains("fdatasync"));
    gate.open();
    client.finish().assert_is(200, &old_bytes);
    is_changed.store(true, Ordering::Relaxed);
    node.get("/a").assert_is(200, &new_bytes);
    until_stored(&node, LEN as u64 / 2);
    end_tracer(&node);
    let node = node.again(&origin.url(), &[]);
    let kept = node.get("/a");
    kept.assert_is(200, &new_bytes);
    assert!(kept.cache().starts_with("underpass; hit"), "{}", kept.cache());
}

#[test]
fn neither_new_objects_nor_stored_ones_wait_for_those_that_leave_memory() {
    if !has("strace") {
        return;
    }
    let origin = Origin::of(&Object::new(b"hello".to_vec(), "a"));
    let node = Node::new(&origin.url(), &[]);
    node.get("/kept").assert_is(200, b"hello");
    until_stored(&node, 5);
    // With 1024 descriptors, 64 objects are in memory.
    let few = r#"ulimit -n 1024 && exec "$0" "$@""#;
    let strace = ["-e", "trace=fdatasync", "-e", ENDLESS, "sh", "-c", few];
    let Node { cache, mut server } = node;
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let node = Node::traced_on(cache, &strace, &origin.url(), &[]);
    // Once more, also those that are being synced.
    for number in (0..200).chain(0..200) {
        node.get(&format!("/{number}")).assert_is(200, b"hello");
    }
    let kept = node.get("/kept");
    kept.assert_is(200, b"hello");
    assert!(kept.cache().starts_with("underpass; hit"), "{}", kept.cache());
    end_tracer(&node);
}

#[test]
fn a_validation_does_not_wait_for_a_disk_that_syncs() {
    if !has("strace") {
        return;
    }
    let origin = Origin::of(&Object::new(b"hello".to_vec(), "a").with("Cache-Control: no-cache"));
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    let Node { cache, mut server } = node;
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let strace = ["-e", "trace=fdatasync", "-e", ENDLESS];
    let node = Node::traced_on(cache, &strace, &origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    let validations =
        origin.requests().iter().filter(|request| request.field("if-none-match").is_some()).count();
    assert_eq!(validations, 1);
    end_tracer(&node);
}

/// More than sockets take at once: most of it would be sent after the sync that has failed.
#[test]
fn a_response_of_what_could_not_be_synced_is_reset() {
    if !has("strace") {
        return;
    }
    let object = Object::new(noise(24 << 20), "a");
    let origin = Origin::of(&object);
    let strace = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"];
    let node = Node::traced_on(folder(), &strace, &origin.url(), &[]);
    node.get("/a").assert_is(200, &object.bytes);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    if node.metric("damaged_total") > 0 {
        return skip("this machine is so slow that the file was synced before");
    }
    until("a sync that fails", || node.metric("damaged_total") == 1);
    let reply = slow.finish();
    assert_eq!(reply.end, End::Reset);
    assert!(object.bytes.starts_with(&reply.body));
    node.get("/a").assert_is(200, &object.bytes);
}
