//! What outlives the process, and what does not.

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::{Node, until_stored};
use crate::rig::{Running, folder, noise, underpass, until};
use crate::wicked::{Asked, Object, Origin};

const LEN: usize = 6 << 20;

/// The files beneath a folder of a cache that end in this.
fn files(cache: &Path, ending: &str) -> Vec<PathBuf> {
    let shards = fs::read_dir(cache.join("objects")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

#[test]
fn a_killed_node_goes_on_where_it_was() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let is_held = |asked: &Asked| asked.path == "/b" && asked.field("range").is_none();
    // The gate stays closed: the node that asks is gone before the rest can be sent.
    let (origin, _gate) = Origin::holding(object, LEN / 2, is_held);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").is(200, &bytes);
    until_stored(&node, LEN as u64);
    node.client("GET", "/b", &[]).read_body(LEN / 2);
    let before = origin.sent();
    let node = node.again(&origin.url(), &[]);
    let whole = node.get("/a");
    whole.is(200, &bytes);
    assert!(whole.cache().starts_with("underpass; hit"), "{}", whole.cache());
    assert_eq!(origin.sent(), before, "{:#?}", origin.asked());
    node.get("/b").is(200, &bytes);
    // What had come is not fetched again, but for what the journal did not note yet.
    let fetched = origin.sent() - before;
    assert!(fetched <= (LEN / 2 + (2 << 20)) as u64, "{fetched}");
}

#[test]
fn after_a_power_cut_only_what_is_on_the_disk_counts() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let mut node = Node::new(&origin.url(), &[]);
    node.get("/a").is(200, &bytes);
    until_stored(&node, LEN as u64);
    node.server.child.kill().unwrap();
    node.server.child.wait().unwrap();
    // As another boot finds it: the journal is ahead of the data, which is not there.
    let (journal, body) = (&files(node.cache.path(), ".json")[0], &files(node.cache.path(), "")[0]);
    let text = fs::read_to_string(journal).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let (head, rest) = text.split_once('\n').unwrap();
    let synced = head.replace(boot.trim(), "00000000-0000-0000-0000-000000000000");
    let start = synced.find("\"safe\":[").unwrap();
    let end = start + synced[start..].find("]}").unwrap();
    let unsafe_head = format!("{}\"safe\":[]{}", &synced[..start], &synced[end + 1..]);
    let unsafe_head = unsafe_head.replace("]]}", "]}");
    let padded = format!("{:<width$}", unsafe_head.trim_end(), width = head.len());
    fs::write(journal, format!("{padded}\n{rest}")).unwrap();
    let body = if body.extension().is_some_and(|it| it == "json") {
        files(node.cache.path(), "")
            .into_iter()
            .find(|it| it.extension().unwrap() != "json")
            .unwrap()
    } else {
        body.clone()
    };
    fs::write(body, vec![0; LEN]).unwrap();
    let node = Node::on(node.cache, &origin.url(), &[]);
    node.get("/a").is(200, &bytes);
}

#[test]
fn what_broken_processes_have_left_is_removed() {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    node.get("/a");
    until_stored(&node, LEN as u64);
    let journal = files(node.cache.path(), ".json").remove(0);
    fs::remove_file(journal).unwrap();
    let node = node.again(&origin.url(), &[]);
    until("an empty folder", || files(node.cache.path(), "").is_empty());
    assert_eq!(node.metric("objects"), 0);
}

#[test]
fn a_damaged_file_is_fetched_again() {
    let object = Object::new(noise(LEN), "a");
    let bytes = object.bytes.clone();
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").is(200, &bytes);
    until_stored(&node, LEN as u64);
    for path in files(node.cache.path(), "") {
        if path.extension().unwrap() != "json" {
            fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
        }
    }
    node.again(&origin.url(), &[]).get("/a").is(200, &bytes);
    assert_eq!(origin.asked().len(), 2);
}

#[test]
fn a_folder_is_for_one_process_and_for_nothing_else() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::new(move |asked, sending| object.send(asked, sending));
    let node = Node::new(&origin.url(), &[]);
    let start = |cache: &Path| {
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--origin", &origin.url(), "--cache"]).arg(cache);
        Running::start(command).finish()
    };
    start(node.cache.path()).failed(1, &["in use by another process"]);
    let other = folder();
    fs::write(other.path().join("thesis"), "x").unwrap();
    start(other.path()).failed(2, &["--cache", "is no folder of a cache"]);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    node.get("/a").is(200, b"hello");
}
