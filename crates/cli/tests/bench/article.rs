//! The articles' programs are built, move complete and correct files, are counted in a separate
//! pass, and are named if they are missing.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::rig::{
    Running, bench, folder, has, interrupt_bench, names, one_bench_at_a_time, run, skip, underpass,
    until,
};
use serde_json::Value;

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list<'r>(record: &'r Value, name: &str) -> &'r [Value] {
    record[name].as_array().map_or(&[], Vec::as_slice)
}

/// Each cell as `way step`.
fn cells(record: &Value) -> Vec<String> {
    let cells = list(record, "cells").iter();
    cells.map(|cell| format!("{} {}", text(&cell["way"]), text(&cell["step"]))).collect()
}

/// How often a side of a cell made a system call in the counted pass; `None` if it was not counted.
fn calls(record: &Value, cell: &str, role: &str, name: &str) -> Option<u64> {
    let index = cells(record).iter().position(|found| found == cell).unwrap();
    let counted = list(record, "counted").iter();
    let of_side = counted.clone().find(|side| side["cell"] == index && side["role"] == role)?;
    let call = list(of_side, "calls").iter().find(|call| call["name"] == name);
    Some(call.map_or(0, |call| call["calls"].as_u64().unwrap()))
}

/// Whether all these programs, which a test machine may lack, are installed.
fn has_all(programs: &[&str]) -> bool {
    programs.iter().all(|program| has(program))
}

/// All samples are of the receiver's clock and of two processes; all digests are the source's.
#[track_caller]
fn check(record: &Value, runs: usize) {
    let cells = list(record, "cells");
    assert_eq!(list(record, "samples").len(), cells.len() * runs);
    for cell in cells {
        assert_eq!(cell["sha256"], cells[0]["sha256"], "{cell}");
    }
    for sample in list(record, "samples") {
        assert_eq!(sample["measured"]["role"], "sender");
        assert_eq!(sample["peer"]["role"], "receiver");
        assert_eq!(sample["wall_s"], sample["peer"]["elapsed_s"]);
        for side in ["measured", "peer"] {
            assert!(sample[side]["process"]["cpu_s"].as_f64().unwrap() > 0.0, "{sample}");
        }
    }
}

#[test]
fn the_table_compares_both_java_programs_and_the_c_program_with_ours() {
    if !has_all(&["javac", "cc", "strace"]) {
        return;
    }
    let folder = folder();
    let (finished, record) =
        bench(folder.path(), &["article-table", "--sizes", "300K", "--runs", "2"]);
    let expected = [
        "java_stream 4K",
        "java_transfer_to whole",
        "c_read_write 4K",
        "c_sendfile whole",
        "auto default",
    ];
    assert_eq!(cells(&record), expected);
    assert_eq!(record["baseline"]["way"], "java_stream");
    check(&record, 2);
    assert!(list(&record, "missing").is_empty());
    let programs = list(&record["environment"], "programs");
    assert!(programs.iter().any(|line| text(line).contains("jdk")), "{programs:?}");
    // 75 pages each, besides the calls of the start of a program.
    for (cell, name) in [("java_stream 4K", "write"), ("c_read_write 4K", "write")] {
        assert!(calls(&record, cell, "sender", name).unwrap() >= 75, "{cell}");
    }
    for cell in ["java_transfer_to whole", "c_sendfile whole", "auto default"] {
        let found = calls(&record, cell, "sender", "sendfile").unwrap();
        assert!((1..75).contains(&found), "{cell}: {found}");
        assert!(calls(&record, cell, "receiver", "splice").unwrap() > 0, "{cell}");
    }
    assert!(finished.text().contains("java_transfer_to"), "{}", finished.text());
}

#[test]
fn chunks_have_the_requested_size_with_every_program() {
    if !has_all(&["python3", "cc", "strace"]) {
        return;
    }
    let folder = folder();
    let args = ["article-chunks", "--sizes", "200K", "--runs", "1", "--warmup", "0"];
    let (_, record) = bench(folder.path(), &[&args[..], &["--step", "4096,65535,whole"]].concat());
    check(&record, 1);
    let found = cells(&record);
    for way in ["python_sendall", "c_read_write"] {
        assert!(!found.contains(&format!("{way} whole")), "a buffer as large as the file");
    }
    for (cell, name, least, most) in [
        ("python_sendall 4K", "sendto", 50, 50),
        ("python_sendfile 4K", "sendfile", 50, 50),
        ("python_sendfile 65535", "sendfile", 4, 4),
        ("c_read_write 65535", "write", 4, 6),
        ("c_mmap 4K", "write", 50, 51),
        ("c_mmap_lease 65535", "write", 4, 5),
        ("c_sendfile 4K", "sendfile", 50, 50),
        ("c_sendfile whole", "sendfile", 1, 3),
        ("sendfile 4K", "sendfile", 50, 60),
    ] {
        let calls = calls(&record, cell, "sender", name).unwrap();
        assert!((least..=most).contains(&calls), "{cell}: {calls}");
    }
    // A lease is requested, and released again.
    let fcntl = |cell| calls(&record, cell, "sender", "fcntl").unwrap();
    assert_eq!((fcntl("c_mmap 4K"), fcntl("c_mmap_lease 4K")), (0, 3));
}

#[test]
fn the_copy_through_a_small_buffer_is_counted_call_by_call() {
    if !has_all(&["cc", "strace"]) {
        return;
    }
    let folder = folder();
    let args = ["article-copy", "--sizes", "1M", "--runs", "1", "--warmup", "0"];
    let (_, record) = bench(folder.path(), &args);
    let expected = [
        "c_read_write 4K",
        "c_sendfile 4K",
        "auto default",
        "sendfile 4K",
        "read_write 4K",
        "cp default",
    ];
    assert_eq!(cells(&record), expected);
    for sample in list(&record, "samples") {
        assert_eq!(sample["measured"]["role"], "copier");
        assert_eq!(sample["wall_s"], sample["measured"]["process"]["wall_s"]);
    }
    let count = |cell, name| calls(&record, cell, "copier", name).unwrap();
    assert!(count("c_read_write 4K", "read") > 256 && count("c_read_write 4K", "write") >= 256);
    assert_eq!((count("c_sendfile 4K", "sendfile"), count("sendfile 4K", "sendfile")), (256, 256));
    for side in list(&record, "counted") {
        for call in list(side, "calls") {
            assert!(call["calls"].as_u64() >= call["errors"].as_u64(), "{call}");
            assert!(call["seconds"].as_f64().unwrap() >= 0.0, "{call}");
        }
    }
}

#[test]
fn the_limit_compares_a_bare_loop_and_a_memory_copy() {
    if !has_all(&["cc", "iperf3", "nc"]) {
        return;
    }
    let folder = folder();
    // iperf3 does not count bytes in flight when it stops, which may be all of a small file.
    let args = ["limit", "--sizes", "64M", "--runs", "1", "--warmup", "0", "--step", "1M"];
    let (_, record) = bench(folder.path(), &[&args[..], &["--no-count"]].concat());
    let expected = [
        "bare_sendfile 1M",
        "c_sendfile 1M",
        "iperf3 default",
        "nc default",
        "memory_copy default",
        "auto default",
    ];
    assert_eq!(cells(&record), expected);
    assert_eq!(record["baseline"]["way"], "bare_sendfile");
    assert!(list(&record, "counted").is_empty());
    for sample in list(&record, "samples") {
        let way = text(&record["cells"][sample["cell"].as_u64().unwrap() as usize]["way"]);
        let is_thread = ["bare_sendfile", "memory_copy"].contains(&way);
        assert_eq!(sample["measured"]["process"].is_null(), is_thread, "{way}");
        assert_eq!(sample["peer"].is_null(), way == "memory_copy");
        assert!(sample["wall_s"].as_f64().unwrap() > 0.0, "{sample}");
    }
    let digests = list(&record, "cells").iter().map(|cell| &cell["sha256"]);
    let unknown: Vec<_> = digests.map(Value::is_null).collect();
    assert_eq!(unknown, [false, false, true, false, true, false], "bytes of their own");
}

#[test]
fn a_pair_of_network_namespaces_is_made_and_removed_again() {
    if !has_all(&["cc", "strace", "unshare", "ip"]) {
        return;
    }
    let is_root = Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    let args = ["article-table", "--over", "veth", "--sizes", "300K", "--runs", "1"];
    let folder = folder();
    if !is_root {
        let place = ["--dir", folder.path().to_str().unwrap()];
        let failed = run(["bench"].iter().chain(&args).chain(&place)).failed(2, &["root"]);
        assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
        skip("network namespaces take root");
        return;
    }
    let before = namespaces();
    let more = ["--peer", "c_sendfile,c_read_write,bare_sendfile", "--warmup", "0"];
    let own = ["--receivers", "own"];
    let (finished, record) = bench(folder.path(), &[&args[..], &more, &own].concat());
    assert_eq!(record["arguments"]["over"], "veth");
    assert_eq!(record["arguments"]["receivers"], "own");
    assert_eq!(cells(&record).len(), 4);
    assert!(finished.text().contains("veth"), "{}", finished.text());
    assert!(calls(&record, "c_sendfile whole", "receiver", "read").unwrap() >= 2, "its own");
    let net = ["net", "--over", "veth", "--sizes", "300K", "--runs", "1", "--step", "1M"];
    let (_, record) = bench(folder.path(), &net);
    assert_eq!(record["arguments"]["over"], "veth");
    until("the end of the namespaces", || namespaces() == before);

    for signal in ["INT", "TERM", "KILL"] {
        let mut command = underpass();
        command.args(["bench", "net", "--over", "veth", "--sizes", "64M", "--dir"]);
        let running = Running::start({
            command.arg(folder.path());
            command
        });
        until("the namespaces", || namespaces() == before + 2);
        running.signal(signal);
        running.finish();
        until("the end of the namespaces", || namespaces() == before);
    }
}

/// The number of network namespaces, other than its own, that this test's holders have.
fn namespaces() -> usize {
    let own = fs::read_link("/proc/self/ns/net").unwrap();
    let mut found: Vec<_> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| is_a_holder(&entry.path()))
        .filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok())
        .filter(|network| *network != own)
        .collect();
    found.sort();
    found.dedup();
    found.len()
}

/// Whether a process only holds a namespace.
fn is_a_holder(process: &Path) -> bool {
    fs::read_to_string(process.join("comm")).is_ok_and(|name| name == "cat\n")
}

#[test]
fn programs_that_are_missing_are_recorded_and_the_others_measured() {
    let folder = folder();
    let empty = folder.path().join("programs");
    fs::create_dir(&empty).unwrap();
    // A compiler that cannot compile.
    symlink("/bin/false", empty.join("cc")).unwrap();
    let place = folder.path().to_str().unwrap();
    let _alone = one_bench_at_a_time();
    let mut command = underpass();
    command.env("PATH", &empty).args(["bench", "article-table", "--sizes", "64K"]);
    command.args(["--runs", "1", "--warmup", "0", "--dir", place, "--json", "-"]);
    let record = Running::start(command).finish().succeeded().receipt();
    let missing: Vec<_> = list(&record, "missing")
        .iter()
        .map(|one| format!("{}: {}", text(&one["name"]), text(&one["why"])))
        .collect();
    let expected = [
        "strace: not installed, so no system calls were counted",
        "java_stream: javac is not installed",
        "java_transfer_to: javac is not installed",
        "c_read_write: cc could not build it: ",
        "c_sendfile: cc could not build it: ",
    ];
    assert_eq!(missing, expected);
    assert_eq!(cells(&record), ["auto default"]);
    assert_eq!(list(&record, "samples").len(), 1);
    assert!(list(&record, "counted").is_empty());

    let mut command = underpass();
    command.env("PATH", &empty).args(["bench", "limit", "--dir", place, "--sizes", "64K"]);
    command.args(["--runs", "1", "--json", "-"]);
    let record = Running::start(command).finish().succeeded().receipt();
    assert_eq!(record["baseline"]["way"], "bare_sendfile", "needs no compiler");

    let mut command = underpass();
    command.env("PATH", &empty).args(["bench", "article-chunks", "--dir", place, "--no-count"]);
    command.args(["--sizes", "64K", "--runs", "1", "--warmup", "0", "--json", "-"]);
    let record = Running::start(command).finish().succeeded().receipt();
    let missing: Vec<_> = list(&record, "missing").iter().map(|one| text(&one["name"])).collect();
    let others = ["c_read_write", "c_mmap", "c_mmap_lease", "c_sendfile"];
    let expected = [&["python_sendall", "python_sendfile"][..], &others].concat();
    assert_eq!(missing, expected, "each once, at however many steps");
    assert_eq!(names(folder.path()), ["programs"]);
}

#[test]
fn a_signal_ends_what_is_being_measured_and_counted() {
    if !has_all(&["cc", "strace"]) {
        return;
    }
    // The summary of a counted copy.
    let has_calls = |folder: &Path| {
        names(folder).first().is_some_and(|name| folder.join(name).join("copier.calls").exists())
    };
    interrupt_bench(&["article-copy", "--sizes", "16M", "--runs", "1"], has_calls, (0, "TERM"));
}

#[test]
fn wrong_arguments_are_one_line_each() {
    let folder = folder();
    let here = folder.path().to_str().unwrap();
    for (args, words) in [
        (&["article-table", "--peer", "teleport"][..], &["teleport", "java_stream"][..]),
        (&["article-table", "--over", "pigeons"], &["pigeons", "veth"]),
        (&["article-chunks", "--step", "hole"], &["hole", "whole"]),
        (&["article-copy", "--mechanism", "teleport"], &["teleport", "reflink"]),
        (&["limit", "--receivers", "theirs"], &["theirs", "own"]),
        (&["scale", "--connections", "0"], &["--connections"]),
        (&["limit", "--sizes", "64K", "--congestion", "none"], &["'none'", "auto"]),
    ] {
        let place = ["--dir", here];
        let finished = run(["bench"].iter().chain(args).chain(&place)).failed(2, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    assert!(names(folder.path()).is_empty());
}
