//! explain and strace report the same number of calls and bytes for one program.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::explain::scene::{Scene, by_call, python};
use crate::rig::has;

const NAMES: [&str; 17] = [
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv2",
    "pwritev2",
    "recvfrom",
    "sendto",
    "recvmsg",
    "sendmsg",
    "sendfile",
    "splice",
    "tee",
    "copy_file_range",
    "vmsplice",
];

/// Bytes and calls by name, as strace saw them. Calls that were interrupted and made again are
/// none.
fn seen_by_strace(scene: &Scene, words: &[&str]) -> BTreeMap<String, (u64, u64)> {
    let log = scene.path("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o"]).arg(&log);
    command.args(["-e", "signal=none", "-e", &format!("trace={}", NAMES.join(","))]);
    command.args(words).current_dir(scene.folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "{words:?}");
    let mut seen = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let Some((before, result)) = line.rsplit_once(" = ") else { continue };
        // `123 read(3, ...` or, after another thread's line, `123 <... read resumed>...`.
        let call = before.split_once(' ').unwrap().1.trim_start();
        let call = call.strip_prefix("<... ").unwrap_or(call);
        let name = call.split(['(', ' ']).next().unwrap();
        if !NAMES.contains(&name) || result.starts_with('?') {
            continue;
        }
        let (bytes, calls): &mut (u64, u64) = seen.entry(name.to_owned()).or_default();
        // Errors are -1.
        *bytes += result.split(' ').next().unwrap().parse().unwrap_or(0);
        *calls += 1;
    }
    seen
}

/// What explain says of the same run.
fn seen_by_us(scene: &Scene, options: &[&str], words: &[&str]) -> Value {
    let mut command = scene.command(options, words);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "{words:?}");
    scene.receipt()
}

fn check(scene: &Scene, words: &[&str]) -> Value {
    let seen = seen_by_strace(scene, words);
    let all: u64 = seen.values().map(|(_, calls)| calls).sum();
    assert!(all > 0, "strace saw nothing of {words:?}");
    let (filtered, whole) =
        (seen_by_us(scene, &[], words), seen_by_us(scene, &["--every-call"], words));
    for name in NAMES {
        let by_strace = seen.get(name).copied().unwrap_or_default();
        assert_eq!(by_call(&filtered, name), by_strace, "{name} of {words:?}: {filtered}");
        assert_eq!(by_call(&whole, name), by_strace, "{name} of {words:?}, every call");
        let by_name = whole["calls_by_name"].as_array().unwrap();
        let counted = by_name.iter().find(|count| count["name"] == name);
        let counted = counted.map_or(0, |count| count["calls"].as_u64().unwrap());
        // Calls that were interrupted and made again count here.
        assert!(counted >= by_strace.1, "{name} of {words:?}: {counted}");
    }
    // In a container with a filter of its own all calls are looked at.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    assert_eq!(filtered["all_calls"].is_null(), status.contains("\nSeccomp:\t0\n"));
    assert!(whole["all_calls"].as_u64().unwrap() > all);
    filtered
}

#[test]
fn calls_and_bytes_are_those_that_strace_sees() {
    if !has("strace") {
        return;
    }
    let scene = Scene::new(1_000_003);
    let programs: [&[&str]; 6] = [
        &["cat", "source"],
        &["cp", "source", "target"],
        &["dd", "if=source", "of=target", "bs=10k", "status=none"],
        &["sh", "-c", "cat source > a; cat a > b; (cat b & wait)"],
        &["tail", "-c", "100000", "source"],
        &["sh", "-c", "sha256sum source; exec head -c 5000 source"],
    ];
    for words in programs {
        check(&scene, words);
    }
}

#[test]
fn threads_and_mechanisms_are_those_that_strace_sees() {
    if !has("strace") {
        return;
    }
    let Some(python) = python() else { return };
    let scene = Scene::new(300_000);
    let program = "import os, socket, threading
def work(number):
    source = os.open('source', os.O_RDONLY)
    sink = os.open('target%d' % number, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    near, far = os.pipe()
    if number % 2:
        os.copy_file_range(source, sink, 100000)
    while moved := os.splice(source, far, 50000):
        while moved: moved -= os.splice(near, sink, moved)
    os.pwritev(sink, [b'x' * 10, b'y' * 20], 0)
    os.preadv(sink, [bytearray(5), bytearray(6)], 0)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for thread in threads: thread.start(); thread.join()
a, b = socket.socketpair()
a.sendmsg([b'one', b'three'])
b.recvmsg(100)
";
    // Its caches are written in a first run.
    assert!(Command::new(python).arg("-c").arg("0").status().unwrap().success());
    let receipt = check(&scene, &[python, "-c", program]);
    assert_eq!(by_call(&receipt, "splice").0, 2 * (8 * 300_000 - 4 * 100_000));
}
