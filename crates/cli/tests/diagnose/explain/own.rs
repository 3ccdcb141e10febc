//! underpass itself: explain agrees with its own receipt.

use std::fs;

use serde_json::Value;

use crate::explain::scene::{Scene, end, moved};
use crate::rig::{Running, bytes_by, noise, receiver};

const LEN: usize = 5_000_000;

const UNDERPASS: &str = env!("CARGO_BIN_EXE_underpass");

/// Bytes and calls of a mechanism in a receipt of ours.
fn by(receipt: &Value, name: &str) -> (u64, u64) {
    let moved = receipt["mechanisms"].as_array().unwrap().iter().find(|each| each["name"] == name);
    moved.map_or((0, 0), |each| (each["bytes"].as_u64().unwrap(), each["calls"].as_u64().unwrap()))
}

#[test]
fn the_receipt_of_cp_agrees_with_explain() {
    for mechanism in ["copy_file_range", "sendfile", "splice"] {
        let scene = Scene::new(LEN);
        let words = [UNDERPASS, "cp", "--json", "--mechanism", mechanism, "source", "target"];
        let (finished, seen) = scene.explain(&words);
        let receipt = finished.succeeded().receipt();
        assert_eq!(by(&receipt, mechanism), moved(&seen, mechanism, "file", "file"), "{seen}");
        assert_eq!(by(&receipt, mechanism).0, LEN as u64);
        assert_eq!(receipt["user_space_bytes"], 0);
        assert_eq!(end(&seen, "/source")["read"]["bytes"], 0, "{seen}");
        assert_eq!((&receipt["from"], &receipt["to"]), (&"file".into(), &"file".into()));
    }
}

#[test]
fn cp_through_user_space_is_seen_there() {
    let scene = Scene::new(LEN);
    let (finished, seen) =
        scene.explain(&[UNDERPASS, "cp", "--json", "--no-zero-copy", "source", "target"]);
    let receipt = finished.succeeded().receipt();
    let source = end(&seen, "/source");
    assert_eq!(source["read"]["bytes"], LEN, "{seen}");
    assert_eq!(bytes_by(&receipt, "read_write"), LEN as u64);
    assert_eq!(receipt["user_space_bytes"], 2 * LEN);
    assert_eq!(seen["moves"].as_array().unwrap().len(), 0);
}

/// Sends to a receiver, both explained.
fn send(mechanism: &str) -> (Value, Value, Value, Value) {
    let (near, far) = (Scene::new(LEN), Scene::new(1));
    let words = [UNDERPASS, "recv", "--json", "--listen", "127.0.0.1:0", "target"];
    let receiving = Running::listening(far.command(&[], &words));
    let address = receiving.address.clone();
    let words = [UNDERPASS, "send", "--json", "--mechanism", mechanism, "source", &address];
    let (sent, seen) = near.explain(&words);
    let (sent, received) = (sent.succeeded().receipt(), receiving.finish().succeeded().receipt());
    assert!(fs::read(far.path("target")).unwrap() == noise(LEN));
    (sent, seen, received, far.receipt())
}

#[test]
fn the_receipts_of_send_and_recv_agree_with_explain() {
    let (sent, seen, received, seen_there) = send("sendfile");
    assert_eq!(by(&sent, "sendfile").0, LEN as u64);
    assert_eq!(by(&sent, "sendfile"), moved(&seen, "sendfile", "file", "socket"), "{seen}");
    assert_eq!((&sent["from"], &sent["to"]), (&"file".into(), &"socket".into()));
    assert_eq!(by(&received, "splice").0, LEN as u64);
    assert_eq!(by(&received, "splice"), moved(&seen_there, "splice", "socket", "file"));
    assert_eq!((&received["from"], &received["to"]), (&"socket".into(), &"file".into()));
}

#[test]
fn a_write_from_a_mapped_file_is_distinguished_from_one_of_a_buffer() {
    let (sent, seen, ..) = send("mmap");
    let out = crate::explain::scene::crossed(&seen, "out", "socket", "mmap");
    assert_eq!(by(&sent, "mmap").0, LEN as u64);
    assert_eq!(out, by(&sent, "mmap"), "{seen}");
    assert!(seen["mapped_bytes"].as_u64().unwrap() >= LEN as u64);
}

#[test]
fn the_figure_shows_what_was_measured() {
    let far = Scene::new(1);
    let near = Scene::new(LEN);
    let receiving = receiver(&[], &far.path("target"));
    let mut command = crate::rig::underpass();
    command.args(["send", "--explain"]).arg(near.path("source")).arg(&receiving.address);
    command.env("LC_ALL", "C.UTF-8");
    let sent = Running::start(command).finish().succeeded();
    receiving.finish().succeeded();
    let drawn = sent.stderr.lines().find(|line| line.contains("disk▸page cache ─"));
    let drawn = drawn.unwrap_or_else(|| panic!("{}", sent.stderr));
    assert!(drawn.contains("sendfile 4.77 MiB in "), "{drawn}");
    assert!(drawn.contains("▶ socket▸card"), "{drawn}");
    assert!(!sent.stderr.contains("buffer"), "nothing went through one: {}", sent.stderr);
}

#[test]
fn a_refusal_is_reported_with_its_meaning() {
    let scene = Scene::new(LEN);
    let mut command = crate::rig::underpass();
    command.args(["cp", "--prefer", "reflink", "--explain", "/proc/version"]);
    command.arg(scene.path("target")).env("LC_ALL", "C");
    let stderr = Running::start(command).finish().succeeded().stderr;
    let declined = stderr.lines().find(|line| line.contains("declined")).unwrap_or_default();
    assert!(declined.contains("reflink (unsuitable_ends) ") && declined.contains(": "), "{stderr}");
    assert!(stderr.is_ascii(), "{stderr}");
}
