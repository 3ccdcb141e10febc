//! Objects larger than the cache: parts of them are evicted for others.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use underpass_testkit::edit_journal;
use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::cache::budget::used;
use crate::cache::restarts::files;
use crate::node::Node;
use crate::rig::{noise, until};
use crate::scripted_origin::{Gate, Object, Origin};

const MIB: usize = 1 << 20;

/// The bytes of an object, no two MiB of which are alike.
fn bytes(mebibytes: usize) -> Vec<u8> {
    let mut bytes = noise(MIB).repeat(mebibytes);
    for (number, mebibyte) in bytes.chunks_mut(MIB).enumerate() {
        mebibyte[..8].copy_from_slice(&number.to_le_bytes());
        mebibyte[MIB - 8..].copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn check(node: &Node, bytes: &[u8], range: Range<usize>) -> bool {
    let reply = node.range("/a", &format!("{}-{}", range.start, range.end - 1));
    reply.assert_is(206, &bytes[range]);
    reply.cache().starts_with("underpass; hit")
}

#[test]
fn parts_of_a_large_object_are_evicted_for_others_of_it() {
    const SIZE: &str = "140M";
    let object = Object::new(bytes(260), "a");
    let bytes = Arc::clone(&object.bytes);
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", SIZE]);
    check(&node, &bytes, 0..64 * MIB);
    check(&node, &bytes, 64 * MIB..128 * MIB);
    // Then others become hot.
    for start in [130, 150, 180, 190, 200, 258] {
        for _ in 0..2 {
            check(&node, &bytes, start * MIB..(start + 2) * MIB - 5);
        }
    }
    until("room", || node.metric("reserved_bytes") == 0);
    assert!(node.metric("evicted_total") >= 1);
    let requests = origin.requests().len();
    for start in [130, 150, 180, 190, 200, 258] {
        assert!(check(&node, &bytes, start * MIB..(start + 2) * MIB - 5));
    }
    assert_eq!(origin.requests().len(), requests);
    assert_eq!((node.metric("objects"), node.metric("relayed_bytes_total")), (1, 0));
    let room = 141 * MIB as u64;
    assert!(used(&node) < room, "{}", used(&node));
    // Evicted extents come again, also after a kill: no hole is read.
    let node = node.again(&origin.url(), &["--cache-size", SIZE]);
    for start in (0..256).step_by(16) {
        check(&node, &bytes, start * MIB..(start + 1) * MIB + 7);
    }
    assert!(used(&node) < room, "{}", used(&node));
}

#[test]
fn readers_get_right_bytes_while_extents_are_evicted() {
    let object = Object::new(bytes(256), "a");
    let bytes = Arc::clone(&object.bytes);
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "140M"]);
    thread::scope(|scope| {
        for number in 1..4_usize {
            let (node, bytes) = (&node, &bytes);
            scope.spawn(move || {
                let mut at = number * 7919 * 4099;
                for _ in 0..60 {
                    at = (at * 31 + 70_001 * number) % (255 * MIB);
                    check(node, bytes, at..at + 1 + at % MIB);
                    // Most of an extent, so that there is something to remove.
                    let extent = at / (64 * MIB) * 64 * MIB;
                    if at % 5 == 0 {
                        check(node, bytes, extent..extent + 50 * MIB);
                    }
                }
            });
        }
    });
    assert!(node.metric("evicted_total") >= 2, "{}", node.metric("evicted_total"));
    assert!(used(&node) < 141 * MIB as u64, "{}", used(&node));
}

#[test]
fn extents_that_a_slow_client_needs_are_not_evicted() {
    let object = Object::new(bytes(200), "a");
    let bytes = Arc::clone(&object.bytes);
    let origin = Origin::of(&object);
    let node = Node::new(&origin.url(), &["--cache-size", "70M"]);
    let read = 5 * MIB..6 * MIB;
    check(&node, &bytes, read.clone());
    // More than sockets take at once, all of which is in memory.
    let line = format!("Range: bytes={}-{}", read.start, read.end - 1);
    let clients: Vec<_> = (0..4).map(|_| node.client("GET", "/a", &[&line])).collect();
    let mut clients = clients.into_iter();
    let mut first = clients.next().unwrap();
    first.read_head();
    for start in [64, 128, 64, 128] {
        check(&node, &bytes, start * MIB..(start + 60) * MIB);
    }
    assert!(node.metric("evicted_total") >= 3);
    for client in clients.chain([first]) {
        client.finish().assert_is(206, &bytes[read.clone()]);
    }
}

/// Changes the journals as if they were of another run of the machine: only what was synced counts.
fn another_boot(cache: &Path) {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    for path in files(cache, ".json") {
        edit_journal(&path, |line| line.replace(boot.trim(), "another"));
    }
}

#[test]
fn room_that_no_journal_lists_is_given_back() {
    let args = ["--cache-size", "140M"];
    let object = Object::new(bytes(230), "a");
    let bytes = Arc::clone(&object.bytes);
    let origin = Origin::of(&object);
    for is_asked_for in [false, true] {
        let mut node = Node::new(&origin.url(), &args);
        check(&node, &bytes, 0..100 * MIB);
        until("bytes on the disk", || used(&node) >= 99 * MIB as u64);
        node.server.child.kill().unwrap();
        node.server.child.wait().unwrap();
        another_boot(node.cache.path());
        let node = Node::on(node.cache, &origin.url(), &args);
        if is_asked_for {
            check(&node, &bytes, 110 * MIB..229 * MIB);
        }
        until("room", || used(&node) < if is_asked_for { 141 } else { 101 } * MIB as u64);
        check(&node, &bytes, 0..10 * MIB);
        check(&node, &bytes, 60 * MIB..130 * MIB);
        until("room", || used(&node) < 141 * MIB as u64);
    }
}

#[test]
fn nodes_killed_while_parts_leave_keep_no_wrong_byte() {
    let kills: usize = std::env::var("UNDERPASS_KILLS").map_or(3, |text| text.parse().unwrap());
    let args = ["--cache-size", "140M"];
    let object = Object::new(bytes(256), "a");
    let bytes = Arc::clone(&object.bytes);
    let origin = Origin::of(&object);
    let mut node = Node::new(&origin.url(), &args);
    let (mut evicted, mut moment) = (0, u64::from(std::process::id()));
    for kill in 0..kills {
        // Held while a client connects, so that the node is there.
        let is_over = Mutex::new(false);
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for part in [0, 2, 1, 3].into_iter().cycle() {
                    let (start, end) = (part * 64 * MIB, (part * 64 + 60) * MIB);
                    let client = match *is_over.lock().unwrap() {
                        true => return,
                        false => {
                            let range = format!("Range: bytes={start}-{}", end - 1);
                            node.client("GET", "/a", &[&range])
                        }
                    };
                    let reply = client.finish();
                    assert!(bytes[start..end].starts_with(&reply.body), "kill {kill}: {part}");
                }
            });
            until("an eviction", || node.metric("evicted_total") > 0);
            thread::sleep(Duration::from_millis((moment >> 33) % 500));
            evicted += node.metric("evicted_total");
            *is_over.lock().unwrap() = true;
            let id = node.server.child.id().to_string();
            assert!(Command::new("kill").args(["-9", &id]).status().unwrap().success());
            reader.join().unwrap();
        });
        node = node.again(&origin.url(), &args);
        until("room", || used(&node) < 142 * MIB as u64);
        for start in (0..256).step_by(8) {
            check(&node, &bytes, start * MIB..(start + 1) * MIB + 7);
        }
    }
    println!("{kills} kills, {evicted} extents evicted before them");
    until("fills that have ended", || node.metric("reserved_bytes") == 0);
    assert!(used(&node) < 142 * MIB as u64, "{}", used(&node));
}

/// So a client that leaves at once costs the others little.
#[test]
fn room_is_made_as_bytes_come_and_none_for_what_is_not_stored() {
    let large = Object::new(bytes(260), "a");
    let small = Object::new(noise(MIB), "b");
    let small_bytes = small.bytes.clone();
    let gate = Gate::default();
    let held = gate.clone();
    let origin = Origin::new(move |request, sending| {
        let object = match request.path.as_str() {
            "/public" | "/other" => large.clone(),
            "/private" => large.clone().with("Cache-Control: no-store"),
            _ => small.clone(),
        };
        let (head, body) = object.answer(request);
        sending.head(&head);
        sending.body(&body[..body.len().min(MIB)]);
        if body.len() > MIB {
            held.wait();
            sending.closes = true;
        }
    });
    let mut nodes = Vec::new();
    for (path, is_begun) in [("/public", false), ("/public", true), ("/private", false)] {
        let node = Node::new(&origin.url(), &["--cache-size", "300M"]);
        let others = || (0..100).map(|number| format!("/{number}"));
        others().for_each(|path| node.get(&path).assert_is(200, &small_bytes));
        if is_begun {
            assert_eq!(node.range(path, "0-9").status, 206);
        }
        let mut client = node.client("GET", path, &[]);
        client.read_body(MIB + usize::from(is_begun));
        // There would be no room for this one besides the first.
        let mut other = node.client("GET", "/other", &[]);
        other.read_body(MIB);
        assert_eq!(node.metric("evicted_total"), 0, "{path}");
        nodes.push((node, client, other));
    }
    gate.open();
}

#[test]
fn an_object_larger_than_the_room_takes_that_of_no_other() {
    let object = Object::new(bytes(100), "a");
    let bytes = Arc::clone(&object.bytes);
    let small = Object::new(noise(MIB), "b");
    let small_bytes = small.bytes.clone();
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/a" => object.send(request, sending),
        _ => small.send(request, sending),
    });
    for (size, is_kept) in [("80M", false), ("125M", true)] {
        let node = Node::new(&origin.url(), &["--cache-size", size]);
        let others = || (0..10).map(|number| format!("/{number}"));
        others().for_each(|path| node.get(&path).assert_is(200, &small_bytes));
        let before = origin.requests().len();
        for _ in 0..3 {
            node.get("/a").assert_is(200, &bytes);
        }
        assert_eq!(origin.requests().len() - before, if is_kept { 1 } else { 3 });
        others().for_each(|path| {
            let reply = node.get(&path);
            assert!(reply.cache().starts_with("underpass; hit"), "{size}: {}", reply.cache());
        });
        assert!(used(&node) < (size[..size.len() - 1].parse::<u64>().unwrap() + 1) << 20);
    }
}

#[test]
fn bytes_of_a_fill_count_once_against_the_disk() {
    // The disk has room for the whole, but not for another half of it.
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 300) else { return };
    let object = Object::new(bytes(200), "a");
    let all = Arc::clone(&object.bytes);
    let origin = Origin::new(move |request, sending| object.send(request, sending));
    let node = Node::on(tempfile::tempdir_in(disk.root()).unwrap(), &origin.url(), &[]);
    node.get("/a").assert_is(200, &all);
    until("all of it", || node.metric("used_bytes") == 200 * MIB as u64);
}

#[test]
fn a_part_of_a_large_object_leaves_a_disk_without_any_room() {
    let Some(disk) = Mounted::new(FileSystem::Tmpfs, 300) else { return };
    let (large, small) = (Object::new(bytes(200), "a"), Object::new(noise(MIB), "b"));
    let (large_bytes, small_bytes) = (Arc::clone(&large.bytes), Arc::clone(&small.bytes));
    let origin = Origin::new(move |request, sending| match request.path.as_str() {
        "/b" => small.send(request, sending),
        _ => large.send(request, sending),
    });
    let node = Node::on(tempfile::tempdir_in(disk.root()).unwrap(), &origin.url(), &[]);
    node.get("/a").assert_is(200, &large_bytes);
    until("all of it", || node.metric("used_bytes") == 200 * MIB as u64);
    // Another program takes the rest, to the last page.
    let mut other = fs::File::create(disk.root().join("other")).unwrap();
    io::copy(&mut io::repeat(1), &mut other).unwrap_err();
    node.get("/b").assert_is(200, &small_bytes);
    let used = node.metric("used_bytes");
    assert!(used >= 128 * MIB as u64, "{used}");
    for start in [0, 70 * MIB, 140 * MIB] {
        check(&node, &large_bytes, start..start + MIB);
    }
}
