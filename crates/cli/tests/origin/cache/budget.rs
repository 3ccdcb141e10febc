//! The room for objects.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::node::{Client, End, Node, until_stored};
use crate::rig::{noise, skip, until};
use crate::scripted_origin::{Gate, Object, Origin, Sending};

const MIB: usize = 1 << 20;

/// The bytes that the folder takes, as du(1) counts them.
pub fn used(node: &Node) -> u64 {
    let output = Command::new("du").args(["-s", "-B1"]).arg(node.cache.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn old_objects_make_room_for_new_ones() {
    let object = Object::new(noise(MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "8M"]);
    for number in 0..40 {
        node.get(&format!("/{number}")).assert_is(200, &object.bytes);
        let used = used(&node);
        assert!(used < 9 * MIB as u64, "{used}");
    }
    assert!(node.metric("evicted_total") >= 32);
    until("room", || node.metric("reserved_bytes") == 0);
    assert!(node.metric("used_bytes") <= 8 * MIB as u64);
    // After a start it counts what it finds, and has less room.
    let node = node.again(&origin.url(), &["--cache-size", "4M"]);
    until("a count of what is there", || matches!(node.metric("objects"), 1..=3));
    node.get("/new").assert_is(200, &object.bytes);
    assert!(used(&node) < 5 * MIB as u64);
}

/// The bytes of files without a name that a node has open.
fn unnamed(node: &Node) -> u64 {
    let open = fs::read_dir(format!("/proc/{}/fd", node.server.child.id())).unwrap();
    let in_cache = |target: &Path| target.starts_with(node.cache.path());
    let files =
        open.flatten().filter(|file| fs::read_link(file.path()).is_ok_and(|it| in_cache(&it)));
    let facts = files.filter_map(|file| fs::metadata(file.path()).ok());
    facts.filter(|it| it.nlink() == 0).map(|it| it.blocks() * 512).sum()
}

#[test]
fn versions_that_are_used_again_have_no_more_than_the_room_of_the_cache() {
    let old = Object::new(noise(MIB), "old").with("Cache-Control: max-age=0, stale-if-error=1000");
    let (bytes, breaks) = (Arc::clone(&old.bytes), Arc::new(AtomicBool::new(false)));
    let breaks_now = Arc::clone(&breaks);
    let origin = Origin::new(move |request, sending| {
        sending.closes = true;
        if !breaks_now.load(Ordering::Relaxed) {
            return old.send(request, sending);
        }
        sending.head("HTTP/1.1 200 OK\nETag: \"new\"\nTransfer-Encoding: chunked");
        sending.body(b"3\r\nnew\r\n");
    });
    let node = Node::new(&origin.url(), &["--cache-size", "4M", "--timeout", "2"]);
    let mut most = 0;
    for number in 0..8 {
        let path = format!("/{number}");
        breaks.store(false, Ordering::Relaxed);
        node.get(&path).assert_is(200, &bytes);
        until_stored(&node, MIB as u64);
        breaks.store(true, Ordering::Relaxed);
        // The new version breaks off, and the old one takes its place again.
        node.get(&path);
        if number == 0 {
            until("the old version", || node.get(&path).body == *bytes);
            until("its room", || node.metric("reserved_bytes") >= MIB as u64);
            // It is the same room each time.
            std::thread::sleep(Duration::from_millis(1100));
            until("the old version", || node.get(&path).body == *bytes);
            until("its room", || matches!(node.metric("reserved_bytes") / MIB as u64, 1));
        }
        most = most.max(unnamed(&node));
        assert!(most <= 5 * MIB as u64, "{most} bytes after {number}");
    }
    assert!(most >= 3 * MIB as u64, "{most}");
}

#[test]
fn long_fields_count_as_room() {
    let lines = format!("Cache-Control: max-age=1000{}", "\nX-Long: 0123456789".repeat(50));
    let object = Object::new(b"hello".to_vec(), "a").with(&lines.replace("789", &"9".repeat(1000)));
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "8M"]);
    (0..300).for_each(|number| node.get(&format!("/{number}")).assert_is(200, b"hello"));
    let folders = 2 * MIB as u64;
    assert!(used(&node) < 8 * MIB as u64 + folders, "{}", used(&node));
    let node = node.again(&origin.url(), &["--cache-size", "4M"]);
    until("room", || used(&node) < 4 * MIB as u64 + folders);
}

#[test]
fn a_smaller_budget_holds_from_the_start_on() {
    let object = Object::new(noise(MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "40M"]);
    (0..30).for_each(|number| node.get(&format!("/{number}")).assert_is(200, &object.bytes));
    until("all of them", || node.metric("used_bytes") >= 30 * MIB as u64);
    let node = node.again(&origin.url(), &["--cache-size", "8M"]);
    // Without a request.
    until("room", || used(&node) < 9 * MIB as u64);
    let requests = origin.requests().len();
    assert_eq!(requests, 30);
    (0..30).for_each(|number| node.get(&format!("/{number}")).assert_is(200, &object.bytes));
    assert!(used(&node) < 9 * MIB as u64, "{}", used(&node));
}

#[test]
fn a_scan_does_not_evict_frequently_used_objects() {
    let object = Object::new(noise(MIB / 4), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "10M"]);
    let hot = || (0..20).map(|number| format!("/hot/{number}"));
    for _ in 0..3 {
        hot().for_each(|path| node.get(&path).assert_is(200, &object.bytes));
    }
    for number in 0..150 {
        node.get(&format!("/scan/{number}")).assert_is(200, &object.bytes);
        if number % 10 == 0 {
            hot().for_each(|path| node.get(&path).assert_is(200, &object.bytes));
        }
    }
    let requests = origin.requests();
    let again = requests.iter().filter(|request| request.path.starts_with("/hot/")).count();
    assert!(again <= 22, "{again} requests for 20 objects");
}

#[test]
fn objects_larger_than_the_cache_are_relayed() {
    let object = Object::new(noise(4 * MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    let whole = node.get("/a");
    whole.assert_is(200, &object.bytes);
    assert!(whole.cache().starts_with("underpass; fwd=uri-miss; fwd-status=200; "), "{whole:?}");
    assert!(whole.cache().ends_with("; stored=?0; detail=no-room"), "{}", whole.cache());
    assert_eq!(origin.sent(), 4 * MIB as u64);
    // A part for which there is room is kept, and the rest of the whole is not.
    node.range("/b", "5-99").assert_is(206, &object.bytes[5..100]);
    until("a part in the cache", || node.metric("used_bytes") == MIB as u64);
    let part = node.range("/b", &format!("{}-{}", 2 * MIB + 5, 3 * MIB));
    part.assert_is(206, &object.bytes[2 * MIB + 5..=3 * MIB]);
    assert!(part.cache().contains("; fwd=partial; "), "{}", part.cache());
    assert!(part.cache().ends_with("; stored=?0; detail=no-room"), "{}", part.cache());
    node.get("/b").assert_is(200, &object.bytes);
    let several = node.range("/c", &format!("0-9,{}-{}", MIB, 2 * MIB));
    assert_eq!((several.status, several.end), (206, End::Closed));
    assert!(used(&node) < 2 * MIB as u64);
    assert!(node.metric("relayed_bytes_total") >= 8 * MIB as u64);
    let log = node.log();
    // Some hundred bytes are copied because that is faster.
    let large = log.iter().filter(|line| line["bytes"].as_u64().unwrap() > MIB as u64 / 2);
    let copied: Vec<_> = large.map(|line| line["user_space_bytes"].as_u64().unwrap()).collect();
    assert_eq!((copied.len(), copied.iter().max() < Some(&100)), (4, true), "{copied:?}");
    assert_eq!((&log[0]["cache"], copied[0]), (&"miss".into(), 0));
}

#[test]
fn a_fill_for_which_there_is_no_room_says_so() {
    let object = Object::new(noise(4 * MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    // One object is new to the node, and of the other a part is here.
    node.range("/known", "5-99").assert_is(206, &object.bytes[5..100]);
    for path in ["/new", "/known"] {
        let reply = node.ask("POST", &format!("/.underpass/fill?path={path}"), &[]);
        let text = String::from_utf8_lossy(&reply.body);
        assert_eq!((reply.status, text.contains("no room")), (507, true), "{path}: {text}");
    }
}

#[test]
fn one_network_does_not_take_all_relays() {
    let object = Object::new(noise(4 * MIB), "a");
    let (origin, gate) = Origin::holding(&object, MIB, |_| true);
    let node = Node::new(&origin.url(), &["--cache-size", "1M", "--trusted-proxy", "127.0.0.1"]);
    let client = |network: &str, number: usize| {
        let from = format!("X-Forwarded-For: 2001:db8:0:{network}::{number}");
        node.client("GET", &format!("/{network}/{number}"), &[&from])
    };
    let mut clients: Vec<_> = (0..16).map(|number| client("1", number)).collect();
    clients.iter_mut().for_each(Client::read_head);
    assert_eq!(client("1", 16).finish().status, 503);
    clients.push(client("2", 0));
    clients[16].read_head();
    gate.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &object.bytes));
}

#[test]
fn objects_without_version_or_length_are_relayed() {
    let bytes = noise(2 * MIB);
    let body = bytes.clone();
    let origin = Origin::new(move |request, sending| {
        if request.path == "/plain" {
            return sending.answer("HTTP/1.1 200 OK", &body);
        }
        sending.head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked");
        for part in body.chunks(300_000) {
            sending.body(format!("{:x}\r\n", part.len()).as_bytes());
            sending.body(part);
            sending.body(b"\r\n");
        }
        sending.body(b"0\r\n\r\n");
    });
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 1) else { return };
    let node = Node::on(tempfile::tempdir_in(disk.root()).unwrap(), &origin.url(), &[]);
    node.get("/plain").assert_is(200, &bytes);
    fs::write(disk.root().join("other"), vec![1; MIB / 2]).unwrap();
    let node = node.again(&origin.url(), &["--cache-free", "99%"]);
    node.get("/chunks").assert_is(200, &bytes);
    assert_eq!(node.range("/chunks", "0-9").status, 507);
    assert_eq!(node.metric("relayed_bytes_total"), 2 * MIB as u64);
    drop(node);
}

/// Sends a body in chunks of 64 KiB, as far as the connection lasts.
fn send_chunks(sending: &mut Sending, number: usize) {
    send_chunks_with(sending, "Cache-Control: max-age=1000", number);
}

/// Sends such a body with these lines in its head.
fn send_chunks_with(sending: &mut Sending, lines: &str, number: usize) {
    sending.head(&format!("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n{lines}"));
    for _ in 0..number {
        sending.body(format!("10000\r\n{}\r\n", "x".repeat(64 << 10)).as_bytes());
    }
    sending.body(b"0\r\n\r\n");
}

#[test]
fn a_body_without_a_length_has_the_room_of_others_and_is_passed_on_beyond_it() {
    let origin = Origin::new(|_, sending| send_chunks(sending, 128));
    let node = Node::new(&origin.url(), &["--cache-size", "2M"]);
    assert_eq!(node.get("/a").end, End::Reset);
    assert!(used(&node) < 3 * MIB as u64, "{}", used(&node));
    until("room", || node.metric("reserved_bytes") == 0);
    let whole = node.get("/a");
    whole.assert_is(200, &vec![b'x'; 8 * MIB]);
    assert!(whole.cache().ends_with("; stored=?0; detail=no-room"), "{}", whole.cache());
    assert_eq!(node.metric("objects"), 0);
}

#[test]
fn a_body_without_a_length_has_all_of_the_disk() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 32) else { return };
    let object = Object::new(noise(MIB), "a");
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/chunks" => send_chunks(sending, 20 << 4),
        _ => object.send(request, sending),
    });
    let node = Node::on(tempfile::tempdir_in(disk.root()).unwrap(), &origin.url(), &[]);
    (0..5).for_each(|number| assert_eq!(node.get(&format!("/{number}")).status, 200));
    node.get("/chunks").assert_is(200, &vec![b'x'; 20 * MIB]);
    until_stored(&node, 25 * MIB as u64);
    assert_eq!(node.metric("evicted_total"), 0);
    drop(node);
}

#[test]
fn unstored_bodies_without_a_length_evict_nothing() {
    let object = Object::new(noise(MIB), "a");
    let small_bytes = object.bytes.clone();
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/private" => send_chunks_with(sending, "Cache-Control: no-store", 16 << 4),
        _ => object.send(request, sending),
    });
    let node = Node::new(&origin.url(), &["--cache-size", "24M"]);
    (0..20).for_each(|number| node.get(&format!("/{number}")).assert_is(200, &small_bytes));
    node.get("/private").assert_is(200, &vec![b'x'; 16 * MIB]);
    assert_eq!(node.metric("evicted_total"), 0);
    until("room", || node.metric("reserved_bytes") == 0);
}

#[test]
fn bodies_that_are_not_kept_take_no_more_than_the_room_of_the_cache() {
    let object = Object::new(noise(16 * MIB), "a").with("Cache-Control: no-store");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "40M"]);
    // None of them reads on, so that the files without names stay.
    let clients = [0, 1, 2].map(|_| {
        let mut client = node.client("GET", "/a", &[]);
        client.read_body(1);
        client
    });
    for (number, client) in clients.into_iter().enumerate() {
        let reply = client.finish();
        reply.assert_is(200, &object.bytes);
        assert_eq!(reply.cache().ends_with("detail=no-room"), number == 2, "{}", reply.cache());
    }
    until("room", || node.metric("reserved_bytes") == 0);
}

#[test]
fn unstored_ranges_evict_nothing() {
    let private = Object::new(noise(16 * MIB), "a").with("Cache-Control: no-store");
    let small = Object::new(noise(MIB), "b");
    let (bytes, small_bytes) = (private.bytes.clone(), small.bytes.clone());
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/private" => private.send(request, sending),
        _ => small.send(request, sending),
    });
    let node = Node::new(&origin.url(), &["--cache-size", "24M"]);
    (0..20).for_each(|number| node.get(&format!("/{number}")).assert_is(200, &small_bytes));
    let clients = [0, 1, 2].map(|_| {
        let mut client = node.client("GET", "/private", &[&format!("Range: bytes={MIB}-")]);
        client.read_body(2 * MIB);
        client
    });
    assert!(node.metric("reserved_bytes") <= 24 * MIB as u64);
    clients.into_iter().for_each(|client| client.finish().assert_is(206, &bytes[MIB..]));
    assert_eq!(node.metric("evicted_total"), 0);
    until("room", || node.metric("reserved_bytes") == 0);
}

#[test]
fn old_objects_make_room_where_there_are_no_inodes() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    let remounted =
        Command::new("mount").args(["-o", "remount,nr_inodes=60"]).arg(disk.root()).status();
    assert!(remounted.unwrap().success());
    let object = Object::new(b"hello".to_vec(), "a");
    let origin = Origin::of(&object);
    let cache = tempfile::tempdir_in(disk.root()).unwrap();
    let node = Node::on(cache, &origin.url(), &["--cache-free", "1M"]);
    for number in 0..40 {
        node.get(&format!("/{number}")).assert_is(200, b"hello");
    }
    let requests = origin.requests().len();
    node.get("/39").assert_is(200, b"hello");
    assert_eq!((origin.requests().len(), node.metric("evicted_total") > 0), (requests, true));
}

#[test]
fn a_body_without_a_length_ends_when_its_reader_is_gone() {
    // More than any machine would take in this time, and no test could wait for.
    let origin = Origin::new(|_, sending| send_chunks(sending, 4 << 10));
    let node = Node::new(&origin.url(), &[]);
    let mut client = node.client("GET", "/a", &[]);
    client.read_body(1);
    drop(client);
    until("the end of the fill", || node.get("/.underpass/cache?json").body == b"[]");
    until("nothing is kept", || used(&node) < MIB as u64);
    until("room", || node.metric("reserved_bytes") == 0);
    assert_eq!(node.metric("fills_failed_total"), 0);
    assert!(node.metric("origin_bytes_total") < 140 * MIB as u64);
    assert_eq!(node.metric("objects"), 0);
}

#[test]
fn a_head_request_of_an_unstored_object_transfers_little() {
    let bytes = vec![b'x'; 160 * MIB];
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/plain" => sending.answer("HTTP/1.1 200 OK\nCache-Control: max-age=1000", &bytes),
        _ => send_chunks_with(sending, "Cache-Control: no-store", 160 << 4),
    });
    let node = Node::new(&origin.url(), &[]);
    for path in ["/plain", "/chunks"] {
        assert_eq!(node.ask("HEAD", path, &[]).status, 200);
        until("the end of the fill", || node.metric("reserved_bytes") == 0);
    }
    let received = node.metric("origin_bytes_total");
    // What the kernel has received before the end is read.
    assert!(received < 32 * MIB as u64, "{received}");
    // Those who read it get all of it.
    assert_eq!(node.get("/plain").body.len(), 160 * MIB);
    until_stored(&node, 160 * MIB as u64);
}

#[test]
fn objects_without_bytes_take_room_too() {
    let empty = Object::new(Vec::new(), "a");
    let origin = Origin::new(move |request, sending| empty.send(request, sending));
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    for number in 0..300 {
        node.get(&format!("/a?{number}")).assert_is(200, b"");
    }
    let objects = node.metric("objects");
    assert!((100..=129).contains(&objects), "{objects}");
    assert!(used(&node) < 2 * MIB as u64, "{}", used(&node));
}

#[test]
fn a_slow_relay_does_not_slow_down_others() {
    let object = Object::new(noise(24 * MIB), "a");
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "1M", "--timeout", "60"]);
    let mut slow = node.client("GET", "/a", &[]);
    slow.read_body(1);
    for _ in 0..3 {
        node.get("/a").assert_is(200, &object.bytes);
    }
    // A client that leaves ends its relay.
    let mut left = node.client("GET", "/a", &[]);
    left.read_body(1);
    drop(left);
    slow.finish().assert_is(200, &object.bytes);
}

#[test]
fn relays_are_a_bounded_number() {
    let object = Object::new(noise(2 * MIB), "a");
    let (origin, gate) = Origin::holding(&object, 1000, |_| true);
    let node = Node::new(&origin.url(), &["--cache-size", "1M"]);
    let mut clients: Vec<_> = (0..64).map(|_| node.client("GET", "/a", &[])).collect();
    clients.iter_mut().for_each(|client| client.read_body(1000));
    let refused = node.get("/a");
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert_eq!(refused.field("retry-after"), Some("1"));
    gate.open();
    clients.into_iter().for_each(|client| client.finish().assert_is(200, &object.bytes));
}

/// A disk of 8 MiB that others fill up, and an object of 6 MiB of which 2 MiB have arrived.
#[test]
fn objects_stay_where_they_would_not_make_room() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 16) else { return };
    let object = Object::new(noise(MIB), "a");
    let origin = Origin::of(&object);
    let cache = tempfile::tempdir_in(disk.root()).unwrap();
    let node = Node::on(cache, &origin.url(), &["--cache-free", "6M"]);
    for path in ["/1", "/2"] {
        node.get(path).assert_is(200, &object.bytes);
    }
    until_stored(&node, 2 * MIB as u64);
    // Removing both of them frees less than the new one needs.
    let other = disk.root().join("other");
    fs::write(&other, vec![1; 12 * MIB]).unwrap();
    node.get("/3").assert_is(200, &object.bytes);
    assert_eq!((node.metric("evicted_total"), node.metric("objects")), (0, 2));
    let requests = origin.requests().len();
    node.get("/1").assert_is(200, &object.bytes);
    assert_eq!(origin.requests().len(), requests);
    // One of them is enough now.
    fs::write(&other, vec![1; 15 * MIB / 2]).unwrap();
    node.get("/4").assert_is(200, &object.bytes);
    until("another object", || node.metric("evicted_total") == 1);
    drop(node);
}

#[test]
fn objects_on_a_disk_that_fills_up_are_evicted_or_the_new_one_is_relayed() {
    // A stale version that may be used if the origin fails is no reason to cut the new one.
    for (has_another, has_before) in [(true, false), (false, false), (false, true)] {
        let Some(disk) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
        let object = Object::new(noise(6 * MIB), "a");
        let small = Object::new(noise(MIB), "b");
        let before = small.clone().with("Cache-Control: max-age=0");
        let bytes = object.bytes.clone();
        let gate = Gate::default();
        let held = gate.clone();
        let is_first = AtomicBool::new(has_before);
        let origin = Origin::new(move |request, sending| {
            if request.path == "/small" {
                return small.send(request, sending);
            }
            if is_first.swap(false, Ordering::Relaxed) {
                return before.send(request, sending);
            }
            let (head, body) = object.answer(request);
            sending.head(&head);
            let now = body.len().min(2 * MIB);
            sending.body(&body[..now]);
            held.wait();
            sending.body(&body[now..]);
        });
        let cache = tempfile::tempdir_in(disk.root()).unwrap();
        let node = Node::on(cache, &origin.url(), &["--stale-if-error", "1d"]);
        if has_another || has_before {
            assert_eq!(node.get(if has_another { "/small" } else { "/a" }).status, 200);
            until_stored(&node, MIB as u64);
        }
        let mut client = node.client("GET", "/a", &[]);
        client.read_body(2 * MIB);
        // The free space is less than the missing bytes: by a quarter of a MiB, or by much.
        let filled = if has_another { 5 * MIB / 4 } else { 4 * MIB };
        fs::write(disk.root().join("other"), vec![1; filled]).unwrap();
        gate.open();
        client.finish().assert_is(200, &bytes);
        assert_eq!(node.metric("evicted_total"), u64::from(has_another));
        assert_eq!(node.metric("relayed_bytes_total") > 0, !has_another);
        // The stored bytes are still served.
        node.get("/a").assert_is(200, &bytes);
        let log = node.log();
        let log: Vec<_> = log.iter().filter(|line| line["target"] == "/a").collect();
        assert!(log.iter().all(|line| line["user_space_bytes"] == 0), "{log:?}");
        fs::remove_file(disk.root().join("other")).unwrap();
    }
}

#[test]
fn objects_that_cannot_be_removed_from_a_disk_are_served() {
    stay_on_a_read_only_disk("8M", (7, MIB), 6 * MIB);
}

#[test]
fn an_extent_that_cannot_be_removed_from_a_disk_is_served() {
    stay_on_a_read_only_disk("80M", (1, 70 * MIB), 16 * MIB);
}

/// Stores some objects of a length on a disk that then becomes read-only, and requests another one
/// for which there is no room: those that are there are served without the origin.
fn stay_on_a_read_only_disk(cache_size: &str, (number, len): (usize, usize), other_len: usize) {
    let Some(disk) = Mounted::new(FileSystem::Ext4, 150) else { return };
    let (kept, other) = (Object::new(noise(len), "a"), Object::new(noise(other_len), "b"));
    let (kept_bytes, other_bytes) = (kept.bytes.clone(), other.bytes.clone());
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/other" => other.send(request, sending),
        _ => kept.send(request, sending),
    });
    let cache = tempfile::tempdir_in(disk.root()).unwrap();
    let node = Node::on(cache, &origin.url(), &["--cache-size", cache_size]);
    let paths = || (0..number).map(|number| format!("/{number}"));
    paths().for_each(|path| node.get(&path).assert_is(200, &kept_bytes));
    until_stored(&node, (number * len) as u64);
    // As the kernel does after an error of the disk.
    let aborted = Command::new("mount").args(["-o", "remount,abort"]).arg(disk.root()).status();
    if !aborted.unwrap().success() || fs::write(disk.root().join("x"), "x").is_ok() {
        return skip("this kernel does not make a file system read-only that is in use");
    }
    node.get("/other").assert_is(200, &other_bytes);
    origin.end();
    paths().for_each(|path| node.get(&path).assert_is(200, &kept_bytes));
    let said = node.server.end().stderr;
    assert!(said.contains("nothing new is stored"), "{said}");
}
