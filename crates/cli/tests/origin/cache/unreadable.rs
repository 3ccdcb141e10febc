//! Stored files that cannot be opened or read for now, as with too many open files.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::restarts::files;
use crate::node::{Node, until_stored};
use crate::rig::{has, noise, until};
use crate::scripted_origin::{Object, Origin};

const LEN: usize = 3 << 20;

/// Starts a node, and stores an object under each of these paths.
fn node_with(paths: &[&str], object: &Object, origin: &Origin) -> Node {
    let node = Node::new(&origin.url(), &[]);
    for path in paths {
        node.get(path).assert_is(200, &object.bytes);
    }
    until_stored(&node, (paths.len() * LEN) as u64);
    node
}

/// The file with the bytes of the only object, and its journal.
fn body_and_journal(node: &Node) -> (PathBuf, PathBuf) {
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
    let (journals, bodies): (Vec<_>, Vec<_>) =
        files(node.cache.path(), "").into_iter().partition(is_journal);
    (bodies[0].clone(), journals[0].clone())
}

/// Stops the node, and starts another one on its folder, for which a call with a file fails.
fn again_with(mut node: Node, file: &Path, inject: &str, origin: &Origin) -> Node {
    node.server.child.kill().unwrap();
    node.server.child.wait().unwrap();
    let (name, inject) = (file.file_name().unwrap(), format!("inject={inject}"));
    let paths = ["-P", file.to_str().unwrap(), "-P", name.to_str().unwrap()];
    let strace: Vec<_> = paths.into_iter().chain(["-e", &inject]).collect();
    Node::traced_on(node.cache, &strace, &origin.url(), &[])
}

#[test]
fn a_file_stays_while_it_cannot_be_opened() {
    if !has("strace") {
        return;
    }
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let mut node = node_with(&["/a"], &object, &origin);
    let (body, journal) = body_and_journal(&node);
    for (file, inject) in
        [(&body, "openat:error=EMFILE:when=1"), (&journal, "openat:error=ENFILE:when=1..4")]
    {
        node = again_with(node, file, inject, &origin);
        let refused = || {
            let reply = node.get("/a");
            assert!([200, 503].contains(&reply.status), "{reply:?}");
            reply.status == 200
        };
        until("a descriptor", refused);
        let reply = node.get("/a");
        reply.assert_is(200, &object.bytes);
        assert!(reply.cache().starts_with("underpass; hit"), "{}", reply.cache());
        assert_eq!(origin.requests().len(), 1, "{inject}");
        assert!(body.exists(), "{inject}");
        until("the scan", || node.metric("used_bytes") >= LEN as u64);
    }
}

#[test]
fn the_scan_at_the_start_removes_no_file_whose_journal_cannot_be_read() {
    if !has("strace") {
        return;
    }
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let node = node_with(&["/a", "/b"], &object, &origin);
    let (body, journal) = body_and_journal(&node);
    let node = again_with(node, &journal, "openat:error=EMFILE:when=1", &origin);
    until_stored(&node, 2 * LEN as u64);
    assert!(body.exists());
    for path in ["/a", "/b"] {
        // It fails once for each thread.
        until("a descriptor", || node.get(path).status == 200);
        let reply = node.get(path);
        reply.assert_is(200, &object.bytes);
        assert!(reply.cache().starts_with("underpass; hit"), "{}", reply.cache());
    }
    let node = again_with(node, &journal, "read:error=EIO", &origin);
    // The other one is found.
    until_stored(&node, LEN as u64);
    thread::sleep(Duration::from_millis(300));
    assert!(body.exists());
    assert_eq!(node.metric("objects"), 1);
    assert_eq!(origin.requests().len(), 2);
}

/// The journal that cannot be read does not say which file has the bytes.
#[test]
fn a_file_whose_journal_the_disk_cannot_read_is_replaced() {
    if !has("strace") {
        return;
    }
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let node = node_with(&["/a"], &object, &origin);
    let (_, journal) = body_and_journal(&node);
    let node = again_with(node, &journal, "read:error=EIO", &origin);
    node.get("/a").assert_is(200, &object.bytes);
    assert_eq!(origin.requests().len(), 2);
    until("one file and its journal", || files(node.cache.path(), "").len() == 2);
    until_stored(&node, LEN as u64);
    let purged = node.ask("PURGE", "/a", &["Content-Length: 0"]);
    assert!([200, 204].contains(&purged.status), "{purged:?}");
    assert!(files(node.cache.path(), "").is_empty());
}
