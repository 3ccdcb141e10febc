//! The bench measures what it announces, records all of it, and names what it could not measure.

use std::path::Path;

use crate::rig::{bench, folder, has, interrupt_bench, names, run};
use serde_json::Value;

/// Each cell as `way step`.
fn cells(record: &Value) -> Vec<String> {
    let cells = record["cells"].as_array().unwrap().iter();
    cells.map(|cell| format!("{} {}", text(&cell["way"]), text(&cell["step"]))).collect()
}

/// Round and cell of a sample.
fn turn(sample: &Value) -> (u64, usize) {
    let number = |name: &str| sample[name].as_u64().unwrap();
    (number("round"), usize::try_from(number("cell")).unwrap())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn net_measures_each_required_mechanism_and_verifies_what_arrives() {
    let folder = folder();
    let args = ["net", "--sizes", "256K", "--runs", "2", "--step", "64K"];
    let (finished, record) = bench(folder.path(), &args);
    let expected = [
        "read_write 4K",
        "auto default",
        "sendfile 64K",
        "splice 64K",
        "mmap 64K",
        "read_write 64K",
    ];
    assert_eq!(cells(&record), expected);
    let samples = record["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2 * expected.len(), "the round to warm up does not count");
    let mut turns: Vec<_> = samples.iter().map(turn).collect();
    turns.sort_unstable();
    let each: Vec<_> = (1..=2).flat_map(|round| (0..6).map(move |cell| (round, cell))).collect();
    assert_eq!(turns, each, "each takes its turn once in a round");
    for sample in samples {
        let sender = &sample["measured"];
        assert_eq!(sender["role"], "sender");
        assert_eq!(sample["peer"]["role"], "receiver");
        let required = expected[turn(sample).1].split(' ').next().unwrap();
        if required != "auto" {
            let moved = sender["thread"]["mechanisms"].as_array().unwrap();
            assert_eq!(moved.len(), 1, "{moved:?}");
            assert_eq!((text(&moved[0]["name"]), &moved[0]["bytes"]), (required, &262_144.into()));
        }
        assert!(sample["wall_s"].as_f64() >= sender["elapsed_s"].as_f64());
        assert!(sender["process"]["cpu_s"].as_f64().unwrap() > 0.0, "{sender}");
    }
    let digests: Vec<_> =
        expected.iter().enumerate().map(|(n, _)| &record["cells"][n]["sha256"]).collect();
    assert!(digests.iter().all(|digest| *digest == digests[0] && text(digest).len() == 64));
    assert_eq!(record["schema"], 1);
    if has("strace") {
        // At least as many calls as there are steps of 64 KiB, or of 4 for the baseline.
        for (cell, role, name, least) in [
            (0, "sender", "sendto", 64),
            (2, "sender", "sendfile", 4),
            (3, "sender", "splice", 8),
            (5, "receiver", "splice", 1),
        ] {
            let of = |one: &&Value| one["cell"] == cell && one["role"] == role;
            let counted = record["counted"].as_array().unwrap().iter().find(of).unwrap();
            let mut calls = counted["calls"].as_array().unwrap().iter();
            let call = calls.find(|call| call["name"] == name);
            assert!(call.is_some_and(|call| call["calls"].as_u64() >= Some(least)), "{counted}");
        }
    }
    assert!(record["environment"]["congestion"].is_string(), "{}", record["environment"]);
    for words in ["traditional", "sendfile", "256K", "fewer than 3 rounds"] {
        assert!(finished.text().contains(words), "{words}");
    }
}

#[test]
fn net_varies_the_receiver_on_request() {
    let folder = folder();
    let args = ["net", "--sizes", "1M", "--runs", "1", "--warmup", "0", "--side", "receiver"];
    let args = [&args[..], &["--sink", "file", "--step", "whole"]].concat();
    let (_, record) = bench(folder.path(), &args);
    let expected = ["read_write 64K", "auto default", "splice whole", "read_write whole"];
    assert_eq!(cells(&record), expected);
    let samples = record["samples"].as_array().unwrap();
    assert!(samples.iter().all(|sample| sample["measured"]["role"] == "receiver"));
    let of = |cell: usize| samples.iter().find(|sample| turn(sample).1 == cell).unwrap();
    let user_space = |cell: usize| &of(cell)["measured"]["thread"]["user_space_bytes"];
    assert_eq!((user_space(0), user_space(2)), (&(2 << 20).into(), &0.into()));
    assert!(record["environment"]["target_file_system"].is_string());
}

#[test]
fn a_mechanism_that_the_kernel_declines_is_named_and_not_measured() {
    let folder = folder();
    let args = ["net", "--sizes", "64K", "--runs", "1", "--mechanism", "copy_file_range,auto"];
    let (finished, record) = bench(folder.path(), &[&args[..], &["--step", "1M"]].concat());
    assert_eq!(cells(&record), ["read_write 4K", "copy_file_range 1M", "auto default"]);
    assert_eq!(record["cells"][1]["declined"], "unsuitable_ends");
    let samples = record["samples"].as_array().unwrap();
    let measured: Vec<_> = samples.iter().map(|sample| &sample["cell"]).collect();
    assert_eq!(measured, [2, 0]);
    assert!(finished.text().contains("declined"), "{}", finished.text());
}

#[test]
fn copy_compares_itself_with_the_cp_of_the_system() {
    let folder = folder();
    let args = ["copy", "--sizes", "1M", "--runs", "1", "--step", "256K", "--cold"];
    let (finished, record) = bench(folder.path(), &args);
    let found = cells(&record);
    for cell in
        ["read_write 4K", "auto default", "copy_file_range 256K", "splice 256K", "mmap 256K"]
    {
        assert!(found.iter().any(|found| found == cell), "{cell}: {found:?}");
    }
    for (index, cell) in found.iter().enumerate() {
        let of_cell = |sample: &&Value| sample["cell"] == index;
        let samples = record["samples"].as_array().unwrap();
        match samples.iter().find(of_cell) {
            Some(sample) => assert_eq!(sample["wall_s"], sample["measured"]["process"]["wall_s"]),
            None => assert!(record["cells"][index]["declined"].is_string(), "{cell}"),
        }
    }
    let has_cp = found.last().is_some_and(|cell| cell == "cp default");
    assert_eq!(record["environment"]["cp"].is_string(), has_cp);
    assert_eq!(finished.text().contains("cp is not installed"), !has_cp);
}

#[test]
fn chain_forces_both_mechanisms_and_names_a_crossover() {
    let folder = folder();
    let args = ["chain", "--sizes", "1K,64K", "--runs", "1", "--responses", "50"];
    let (finished, record) = bench(folder.path(), &args);
    let ways = ["one_buffer default", "sendfile default"];
    assert_eq!(cells(&record), [ways, ways].concat());
    for sample in record["samples"].as_array().unwrap() {
        let cell = &record["cells"][turn(sample).1];
        let name = if cell["way"] == "sendfile" { "sendfile" } else { "read_write" };
        let moved = &sample["measured"]["thread"]["mechanisms"][0];
        assert_eq!(moved["name"], name);
        assert_eq!(moved["bytes"].as_u64(), cell["size"].as_u64().map(|size| size * 50));
    }
    assert!(finished.text().contains("One buffer"), "{}", finished.text());
}

#[test]
fn a_record_can_go_to_standard_output_instead_of_the_table() {
    let folder = folder();
    let place = folder.path().to_str().unwrap();
    let args = ["bench", "chain", "--sizes", "1K", "--runs", "1", "--responses", "5"];
    let finished = run(args.iter().chain(&["--dir", place, "--json", "-"])).succeeded();
    assert_eq!(finished.receipt()["scenario"], "chain");
}

#[test]
fn wrong_arguments_are_one_line_each_and_nothing_is_measured() {
    let folder = folder();
    let here = folder.path().to_str().unwrap();
    for (args, code, words) in [
        (&["net", "--mechanism", "teleport"][..], 2, &["teleport", "copy_file_range"][..]),
        (&["net", "--mechanism", "cp"], 2, &["cp", "possible values"]),
        (&["net", "--sizes", "0"], 2, &["0 bytes"]),
        (&["net", "--sizes", "7M,many"], 2, &["many", "64K"]),
        (&["net", "--step", "hole"], 2, &["hole", "whole"]),
        (&["net", "--runs", "0"], 2, &["--runs"]),
        (&["net", "--sink", "hole"], 2, &["drop", "file"]),
        (&["net", "--sizes", "64K", "--congestion", "none"], 2, &["'none'", "auto"]),
        (&["chain", "--sizes", "64K", "--congestion", "none"], 2, &["'none'", "auto"]),
        (&["net", "--sizes", "9999999G"], 1, &["free"]),
        (&["net", "--to", "/nowhere"], 1, &["/nowhere", "No such file"]),
        (&["serve", "--seconds", "0"], 2, &["0.01"]),
        (&["serve", "--server", "teleport"], 2, &["nginx", "underpass"]),
        (&["serve", "--congestion", "none"], 2, &["'none'", "auto"]),
        (&["get", "--client", "teleport"], 2, &["teleport", "aria2c"]),
        (&["get", "--from", "teleport"], 2, &["teleport", "nginx"]),
        (&["get", "--sizes", "9999999G", "--client", "underpass"], 1, &["free"]),
        (&["put", "--way", "curl-to-dufs", "--dufs", "/nowhere"], 2, &["dufs is not installed"]),
        (&["tree", "--files", "0"], 2, &["--files"]),
        (&["net", "--json", "/nowhere/record"], 1, &["/nowhere/record", "No such file"]),
        (&["origin", "--large", "64K"], 2, &["--large", "at least 1M"]),
        (&["origin", "--budget", "64K"], 2, &["--budget", "at least 512K"]),
        (&["everything"], 2, &["everything"]),
        (&[], 2, &["subcommand"]),
    ] {
        let dir: &[&str] =
            if words.contains(&"subcommand") || args.len() < 2 { &[] } else { &["--dir", here] };
        let finished = run(["bench"].iter().chain(args).chain(dir)).failed(code, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert!(finished.stdout.is_empty(), "{args:?}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_record_that_is_damaged_or_missing_is_one_clear_line() {
    let folder = folder();
    let damaged = crate::rig::noise_file(folder.path(), "damaged", 100);
    run(["bench", "show", damaged.to_str().unwrap()]).failed(1, &["damaged", "not a record"]);
    let missing = folder.path().join("missing");
    run(["bench", "show", missing.to_str().unwrap()]).failed(1, &["missing", "No such file"]);
}

#[test]
fn a_signal_ends_a_run_and_leaves_nothing() {
    let has_file = |folder: &Path| !names(folder).is_empty();
    interrupt_bench(&["net", "--sizes", "64M"], has_file, (100, "INT"));
}
