//! Restarts: the objects and times that outlive the process, and those that do not.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use underpass_testkit::edit_journal;
use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::node::{End, Node, until_stored};
use crate::rig::{Running, folder, has, noise, skip, underpass, until};
use crate::scripted_origin::{Object, Origin, Request};

const LEN: usize = 6 << 20;

const MIB: usize = 1 << 20;

/// The files beneath a folder of a cache that end in this.
pub fn files(cache: &Path, ending: &str) -> Vec<PathBuf> {
    let shards = fs::read_dir(cache.join("objects")).unwrap();
    let files = shards.flat_map(|shard| fs::read_dir(shard.unwrap().path()).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    paths.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

#[test]
fn a_killed_node_goes_on_where_it_was() {
    let object = Object::new(noise(LEN), "a");
    let is_held = |request: &Request| request.path == "/b" && request.field("range").is_none();
    // The gate stays closed: the node that asks is gone before the rest can be sent.
    let (origin, _gate) = Origin::holding(&object, LEN / 2, is_held);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, &object.bytes);
    until_stored(&node, LEN as u64);
    node.client("GET", "/b", &[]).read_body(LEN / 2);
    let before = origin.sent();
    let node = node.again(&origin.url(), &[]);
    let whole = node.get("/a");
    whole.assert_is(200, &object.bytes);
    assert!(whole.cache().starts_with("underpass; hit"), "{}", whole.cache());
    assert_eq!(origin.sent(), before, "{:#?}", origin.requests());
    node.get("/b").assert_is(200, &object.bytes);
    // What had come is not fetched again, but for what the journal did not note yet.
    let fetched = origin.sent() - before;
    assert!(fetched <= (LEN / 2 + (2 << 20)) as u64, "{fetched}");
}

/// An origin, a node that has stored `/a` of this length, and the bytes of that.
fn stored(len: usize) -> (Origin, Node, Arc<Vec<u8>>) {
    let object = Object::new(noise(len), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, &object.bytes);
    until_stored(&node, len as u64);
    (origin, node, object.bytes)
}

/// An origin, a node that was killed after it had stored `/a`, and the bytes of that.
fn stored_and_killed() -> (Origin, Node, Arc<Vec<u8>>) {
    let (origin, mut node, bytes) = stored(LEN);
    node.server.child.kill().unwrap();
    node.server.child.wait().unwrap();
    (origin, node, bytes)
}

#[test]
fn after_a_power_cut_only_what_is_on_the_disk_counts() {
    let (origin, node, bytes) = stored_and_killed();
    // As another boot finds it: the journal is ahead of the data, which is not there.
    let (journal, body) = (&files(node.cache.path(), ".json")[0], &files(node.cache.path(), "")[0]);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    edit_journal(journal, |line| {
        match line.replace(boot.trim(), "another").split_once("\"safe\":") {
            Some((head, _)) => format!("{head}\"safe\":[]}}"),
            None => line.to_owned(),
        }
    });
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
    node.get("/a").assert_is(200, &bytes);
}

#[test]
fn files_of_an_origin_that_is_no_longer_given_are_not_used() {
    let origin_of = |byte| {
        let object = Object::new(vec![byte; LEN], "a").with("Cache-Control: max-age=1000");
        Origin::of(&object)
    };
    let (one, other) = (origin_of(1), origin_of(2));
    let node = Node::new(&one.url(), &[]);
    node.get("/whole").assert_is(200, &[1; LEN]);
    node.range("/part", "0-9").assert_is(206, &[1; 10]);
    until_stored(&node, (LEN + MIB) as u64);
    // Both have the same version, as two servers with times as their tags can have.
    let node = node.again(&other.url(), &[]);
    for path in ["/whole", "/part"] {
        node.get(path).assert_is(200, &[2; LEN]);
    }
    until_stored(&node, 2 * LEN as u64);
    // Further origins have the same files, in whatever order they are given.
    let requests = (one.requests().len(), other.requests().len());
    let node = node.again(&one.url(), &["--origin", &other.url()]);
    for path in ["/whole", "/part"] {
        node.get(path).assert_is(200, &[2; LEN]);
    }
    assert_eq!((one.requests().len(), other.requests().len()), requests);
}

#[test]
fn files_without_a_journal_are_removed_at_the_start() {
    let (origin, node, _) = stored(LEN);
    let journal = files(node.cache.path(), ".json").remove(0);
    fs::remove_file(&journal).unwrap();
    // One was made while the clock was ahead.
    fs::write(journal.with_extension("7fffffffffffffff"), "x").unwrap();
    let node = node.again(&origin.url(), &[]);
    until("an empty folder", || files(node.cache.path(), "").is_empty());
    assert_eq!(node.metric("objects"), 0);
}

/// A file system without checksums, or memory that fails, gives back other bytes.
#[test]
fn no_hole_counts_as_data_because_a_journal_is_damaged() {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    // The line of a piece, and what is known to be on the disk.
    for is_synced in [false, true] {
        let mut node = Node::new(&origin.url(), &[]);
        node.range("/a", "0-9").assert_is(206, &object.bytes[..10]);
        until_stored(&node, MIB as u64);
        let journal = files(node.cache.path(), ".json").remove(0);
        until("a sync", || {
            !is_synced || fs::read_to_string(&journal).unwrap().contains("[[0,1048576]]")
        });
        node.server.child.kill().unwrap();
        node.server.child.wait().unwrap();
        let text = fs::read_to_string(&journal).unwrap();
        let damaged = text.replace("1048576", "5048576");
        assert_ne!(text, damaged);
        fs::write(&journal, damaged).unwrap();
        let node = Node::on(node.cache, &origin.url(), &[]);
        node.get("/a").assert_is(200, &object.bytes);
        // What the damaged journal was of is gone.
        until("one body", || files(node.cache.path(), "").len() == 2);
    }
}

#[test]
fn answers_without_bytes_leave_nothing_in_a_journal() {
    let object = Object::new(noise(LEN), "a");
    let is_first = AtomicBool::new(true);
    let sent = object.clone();
    let origin = Origin::new(move |request, sending| {
        let (head, body) = sent.answer(request);
        sending.head(&head);
        sending.body(if is_first.swap(false, Ordering::Relaxed) { &body[..MIB] } else { &[] });
        sending.closes = true;
    });
    let node = Node::new(&origin.url(), &[]);
    let reply = node.get("/a");
    assert_eq!(reply.end, End::Reset);
    assert!(origin.requests().len() > 3);
    let journal = files(node.cache.path(), ".json").remove(0);
    assert_eq!(fs::read_to_string(journal).unwrap().lines().count(), 2);
}

#[test]
fn a_damaged_file_is_fetched_again() {
    let (origin, node, bytes) = stored(LEN);
    for path in files(node.cache.path(), "") {
        if path.extension().unwrap() != "json" {
            fs::File::options().write(true).open(path).unwrap().set_len(1000).unwrap();
        }
    }
    node.again(&origin.url(), &[]).get("/a").assert_is(200, &bytes);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_file_that_is_truncated_while_it_is_open_is_fetched_again() {
    for (len, rest) in [(LEN, 1000), (LEN, 0), (5000, 1000), (5000, 0)] {
        let (origin, node, bytes) = stored(len);
        node.get("/a").assert_is(200, &bytes);
        for path in files(node.cache.path(), "") {
            if path.extension().unwrap() != "json" {
                fs::File::options().write(true).open(path).unwrap().set_len(rest).unwrap();
            }
        }
        let reply = node.get("/a");
        assert!(
            bytes.starts_with(&reply.body) && (reply.end == End::Reset || reply.body == *bytes)
        );
        node.get("/a").assert_is(200, &bytes);
        node.get("/a").assert_is(200, &bytes);
        assert_eq!((node.metric("damaged_total"), origin.requests().len()), (1, 2), "{len} {rest}");
    }
}

#[test]
fn a_folder_is_for_one_process_and_for_nothing_else() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let start = |cache: &Path| {
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--origin", &origin.url(), "--cache"]).arg(cache);
        Running::start(command).finish()
    };
    start(node.cache.path()).failed(1, &["in use by another process"]);
    // Whoever removes the lock lets nobody in.
    fs::remove_file(node.cache.path().join("lock")).unwrap();
    start(node.cache.path()).failed(1, &["in use by another process"]);
    let other = folder();
    fs::write(other.path().join("thesis"), "x").unwrap();
    start(other.path()).failed(2, &["--cache", "is not a cache folder"]);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    fs::write(other.path().join("format"), "").unwrap();
    start(other.path()).failed(2, &["--cache", "is not a cache folder"]);
    node.get("/a").assert_is(200, b"hello");
}

/// So it was found after a power cut when the format was not synced before the objects.
#[test]
fn a_cache_whose_format_is_empty_keeps_its_objects() {
    let (origin, node, bytes) = stored(LEN);
    let format = node.cache.path().join("format");
    fs::write(&format, "").unwrap();
    let node = node.again(&origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    assert_eq!(origin.requests().len(), 1);
    assert!(fs::read_to_string(format).unwrap().starts_with("underpass cache"));
}

#[test]
fn stored_objects_are_read_without_writing() {
    let (origin, node, bytes) = stored_and_killed();
    let journal = files(node.cache.path(), ".json").remove(0);
    let before = fs::metadata(&journal).unwrap().ino();
    let node = Node::on(node.cache, &origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    assert_eq!((fs::metadata(&journal).unwrap().ino(), origin.requests().len()), (before, 1));
}

#[test]
fn objects_with_times_in_the_future_are_validated() {
    let (origin, node, bytes) = stored_and_killed();
    // The clock has been set back by a day since it was stored.
    let journal = &files(node.cache.path(), ".json")[0];
    edit_journal(journal, |line| {
        let mut text = line.to_owned();
        for name in ["\"requested\":", "\"received\":"] {
            let Some(at) = text.find(name).map(|at| at + name.len()) else { continue };
            let time: u64 = text[at..at + 13].parse().unwrap();
            text.replace_range(at..at + 13, &(time + 86_400_000).to_string());
        }
        text
    });
    let node = Node::on(node.cache, &origin.url(), &[]);
    let reply = node.get("/a");
    reply.assert_is(200, &bytes);
    assert!(reply.cache().starts_with("underpass; fwd=stale; fwd-status=304"), "{}", reply.cache());
    assert!(reply.field("age").unwrap().parse::<u64>().unwrap() < 1000, "{}", reply.head);
    assert_eq!(origin.sent(), LEN as u64);
}

/// Objects of which each path has its own bytes.
fn bytes_of<'b>(all: &'b [u8], path: &str) -> &'b [u8] {
    let number: usize = path.trim_start_matches('/').parse().unwrap();
    let start = number % 512 * 4096;
    &all[start..start + LEN]
}

#[test]
fn nodes_killed_in_the_middle_of_fills_keep_no_wrong_byte() {
    let kills: u32 = std::env::var("UNDERPASS_KILLS").map_or(4, |text| text.parse().unwrap());
    let all = Arc::new(noise(LEN + 512 * 4096));
    let of_origin = Arc::clone(&all);
    let origin = Origin::new(move |request, sending| {
        let object = Object::new(bytes_of(&of_origin, &request.path).to_vec(), &request.path);
        let (head, body) = object.answer(request);
        sending.head(&head);
        for part in body.chunks(128 << 10) {
            sending.body(part);
            thread::sleep(Duration::from_micros(300));
        }
    });
    let mut node = Node::new(&origin.url(), &[]);
    let mut seed = u64::from(std::process::id());
    let (mut broken, mut whole) = (0, 0);
    for kill in 0..kills {
        // Each object is in the middle of its fill at two kills.
        let paths = [format!("/{kill}"), format!("/{}", kill + 1), format!("/{kill}")];
        let clients: Vec<_> = [0, 1, 2]
            .into_iter()
            .map(|index| {
                let (path, start) = (paths[index].as_str(), index * MIB);
                (path, start, node.client("GET", path, &[&format!("Range: bytes={start}-")]))
            })
            .collect();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((seed >> 33) % 60_000));
        node.server.child.kill().unwrap();
        for (path, start, client) in clients {
            let reply = client.finish();
            let expected = &bytes_of(&all, path)[start..];
            assert!(expected.starts_with(&reply.body), "kill {kill}: {path}");
            *(if reply.body.len() == expected.len() { &mut whole } else { &mut broken }) += 1;
        }
        node = node.again(&origin.url(), &[]);
    }
    for path in (0..=kills).map(|number| format!("/{number}")) {
        node.get(&path).assert_is(200, bytes_of(&all, &path));
    }
    let (sent, all) = (origin.sent() >> 20, (u64::from(kills) + 1) * (LEN as u64 >> 20));
    println!("{kills} kills: {broken} bodies cut, {whole} whole; {sent} MiB sent for {all} MiB");
    until("fills that have ended", || node.metric("reserved_bytes") == 0);
}

/// What the disk cannot read is fetched again: at once if nothing was sent, else for the next one.
#[test]
fn unreadable_extents_are_fetched_again() {
    if !has("strace") {
        return;
    }
    // The second comes from a file system in user space that has ended.
    ["EIO", "ENOTCONN"].into_iter().for_each(is_fetched_again);
}

fn is_fetched_again(errno: &str) {
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let inject = format!("inject=sendfile:error={errno}:when=2..4");
    let strace = ["-e", "trace=sendfile", "-e", &inject];
    let args = ["--step", "1M", "--workers", "1"];
    let node = Node::traced_on(folder(), &strace, &origin.url(), &args);
    let first = node.get("/a");
    assert_eq!(first.end, End::Reset);
    assert!(object.bytes.starts_with(&first.body));
    until("a damaged object", || node.metric("damaged_total") == 1);
    // It fails twice more, and then nothing is stored for an hour.
    until("an alarm", || {
        let reply = node.get("/a");
        assert!(object.bytes.starts_with(&reply.body));
        assert!(reply.end == End::Reset || reply.body.len() == LEN);
        node.metric("read_only") == 1
    });
    let relayed = node.get("/a");
    relayed.assert_is(200, &object.bytes);
    assert!(relayed.cache().ends_with("; stored=?0; detail=disk"), "{}", relayed.cache());
    assert_eq!(node.metric("damaged_total"), 3);
}

#[test]
fn extents_that_could_not_be_synced_are_fetched_again() {
    if !has("strace") {
        return;
    }
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let strace = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"];
    let node = Node::traced_on(folder(), &strace, &origin.url(), &[]);
    node.get("/a").assert_is(200, &object.bytes);
    let sent = origin.requests().len();
    until("a sync that fails", || node.metric("damaged_total") == 1);
    node.get("/a").assert_is(200, &object.bytes);
    assert!(origin.requests().len() > sent, "it may have lost its bytes");
    until_stored(&node, LEN as u64);
    node.get("/a").assert_is(200, &object.bytes);
}

#[test]
fn extents_that_were_not_written_back_are_fetched_again() {
    if !has("strace") {
        return;
    }
    let (origin, node, bytes) = stored_and_killed();
    let sent = origin.requests().len();
    let strace = ["-e", "trace=sync_file_range", "-e", "inject=sync_file_range:error=EIO"];
    let node = Node::traced_on(node.cache, &strace, &origin.url(), &[]);
    node.get("/a").assert_is(200, &bytes);
    assert!(origin.requests().len() > sent, "it may have lost its bytes");
}

/// Removes a file from the page cache.
pub fn drop_pages(file: &Path) {
    let script = "sync -d \"$1\" && dd if=\"$1\" iflag=nocache count=0";
    let dropped = Command::new("sh").args(["-c", script, "sh"]).arg(file).output().unwrap();
    assert!(dropped.status.success(), "{dropped:?}");
}

#[test]
fn a_client_that_has_nothing_yet_notices_no_failing_disk() {
    if !has("strace") {
        return;
    }
    let (origin, node, bytes) = stored(LEN);
    drop(node.server);
    let mut files = files(node.cache.path(), "").into_iter();
    let body = files.find(|path| path.extension().unwrap() != "json").unwrap();
    drop_pages(&body);
    let body = body.to_str().unwrap();
    let strace = ["-P", body, "-e", "trace=sendfile", "-e", "inject=sendfile:error=EIO"];
    let node = Node::traced_on(node.cache, &strace, &origin.url(), &[]);
    let reply = node.get("/a");
    if reply.end == End::Reset {
        return skip("this file system keeps its files in memory");
    }
    reply.assert_is(200, &bytes);
    assert_eq!((node.metric("damaged_total"), origin.requests().len()), (1, 2));
    until_stored(&node, LEN as u64);
    node.get("/a").assert_is(200, &bytes);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_folder_whose_contents_are_removed_is_used_again() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    for entry in fs::read_dir(node.cache.path()).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap()
        } else {
            fs::remove_file(entry.path()).unwrap()
        }
    }
    node.get("/b").assert_is(200, b"hello");
    until_stored(&node, 5);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 10);
    assert!(node.get("/a").cache().starts_with("underpass; hit"));
    // It is locked again, and found again.
    let mut other = underpass();
    other.args(["serve", "--port", "0", "--origin", &origin.url(), "--cache"]);
    other.arg(node.cache.path());
    Running::start(other).finish().failed(1, &["another process"]);
    let requests = origin.requests().len();
    let node = node.again(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    node.get("/b").assert_is(200, b"hello");
    assert_eq!(origin.requests().len(), requests);
}

#[test]
fn a_disk_that_has_become_read_only_is_reported_once() {
    let Some(disk) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let object = Object::new(b"hello".to_vec(), "a");
    let object = object.with("Cache-Control: max-age=1000");
    let origin = Origin::of(&object);
    let node = Node::on(tempfile::tempdir_in(disk.root()).unwrap(), &origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    // As the kernel does after an error of the disk.
    let aborted = Command::new("mount").args(["-o", "remount,abort"]).arg(disk.root()).status();
    if !aborted.unwrap().success() || fs::write(disk.root().join("x"), "x").is_ok() {
        return skip("this kernel does not make a file system read-only that is in use");
    }
    for path in ["/a", "/b", "/c", "/d"] {
        node.get(path).assert_is(200, b"hello");
    }
    assert!(node.get("/a").cache().starts_with("underpass; hit"));
    let said = node.server.end().stderr;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("ead-only")).collect();
    assert!(matches!(lines[..], [line] if line.contains("nothing new is stored")), "{said}");
}

#[test]
fn complete_objects_are_served_from_a_full_disk() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    let object = Object::new(noise(LEN), "a");
    let origin = Origin::of(&object);
    let cache = tempfile::tempdir_in(disk.root()).unwrap();
    let node = Node::on(cache, &origin.url(), &[]);
    node.get("/a").assert_is(200, &object.bytes);
    until_stored(&node, LEN as u64);
    let mut filler = fs::File::create(disk.root().join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    origin.end();
    let reply = node.again(&origin.url(), &[]).get("/a");
    reply.assert_is(200, &object.bytes);
    assert!(reply.cache().starts_with("underpass; hit"), "{}", reply.cache());
}

#[test]
fn a_folder_that_is_removed_is_reported_once() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    fs::remove_dir_all(node.cache.path()).unwrap();
    for path in ["/b", "/c", "/d"] {
        node.get(path).assert_is(200, b"hello");
    }
    let said = node.server.end().stderr;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("was removed")).collect();
    assert!(matches!(lines[..], [line] if line.contains("restarted")), "{said}");
}

#[test]
fn what_is_confirmed_is_not_said_to_be_stored_without_its_folder() {
    let object = Object::new(b"hello".to_vec(), "a").with("Cache-Control: max-age=0");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    let confirmed = |is_stored| {
        let reply = node.get("/a");
        reply.assert_is(200, b"hello");
        let cache = format!("{};", reply.cache());
        assert!(cache.contains("; fwd-status=304;"), "{cache}");
        assert_eq!(cache.contains("; stored;"), is_stored, "{cache}");
    };
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    confirmed(true);
    fs::remove_dir_all(node.cache.path()).unwrap();
    confirmed(false);
    assert_eq!(node.metric("objects"), 0);
    let filled = node.ask("POST", "/.underpass/fill?path=/a", &["Content-Length: 0"]);
    assert_eq!(filled.status, 503, "{filled:?}");
}

#[test]
fn a_fill_notices_that_the_folder_was_removed() {
    let object = Object::new(b"hello".to_vec(), "a");
    let private = Object::new(b"private".to_vec(), "b").with("Cache-Control: no-store");
    let origin = Origin::new(move |request, sending| {
        let is_private = request.path.starts_with("/private");
        let object = if is_private { &private } else { &object };
        object.send(request, sending);
    });
    let node = Node::new(&origin.url(), &[]);
    let fill = |path: &str| {
        node.ask("POST", &format!("/.underpass/fill?path={path}"), &["Content-Length: 0"]).status
    };
    node.get("/a").assert_is(200, b"hello");
    until_stored(&node, 5);
    assert_eq!(fill("/private"), 409);
    let objects = node.cache.path().join("objects");
    fs::remove_dir_all(&objects).unwrap();
    assert_eq!((fill("/a"), objects.is_dir()), (200, true));
    fs::remove_dir_all(node.cache.path()).unwrap();
    assert_eq!((fill("/a"), node.metric("objects")), (503, 0));
    // What the origin forbids stays so once the disk is there again.
    assert_eq!(fill("/private"), 409);
}

#[test]
fn what_a_disk_does_not_take_is_not_said_to_lack_room() {
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &[]);
    fs::remove_dir_all(node.cache.path()).unwrap();
    let relayed = node.get("/a");
    relayed.assert_is(200, b"hello");
    assert!(relayed.cache().ends_with("; stored=?0; detail=disk"), "{}", relayed.cache());
    for path in ["/a", "/b"] {
        let target = format!("/.underpass/fill?path={path}");
        let filled = node.ask("POST", &target, &["Content-Length: 0"]);
        assert_eq!((filled.status, filled.text().contains("the disk")), (503, true), "{filled:?}");
    }
}

#[test]
fn an_expiry_while_a_file_is_opened_does_not_block_others() {
    if !has("strace") {
        return;
    }
    let (origin, node, bytes) = stored_and_killed();
    let strace = ["-e", "trace=flock", "-e", "inject=flock:delay_enter=2000000"];
    let node = Node::traced_on(node.cache, &strace, &origin.url(), &[]);
    let before = node.client("GET", "/a", &[]);
    thread::sleep(Duration::from_millis(500));
    let expired = node.ask("POST", "/.underpass/expire?prefix=/", &["Content-Length: 0"]);
    assert_eq!(expired.status, 200);
    // It joins no request from before, and the file is opened only once.
    let after = node.client("GET", "/a", &[]);
    before.finish().assert_is(200, &bytes);
    after.finish().assert_is(200, &bytes);
    node.get("/a").assert_is(200, &bytes);
}
