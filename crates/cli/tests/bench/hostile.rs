//! The bench of bad clients measures a good one among each kind of them, and leaves nothing behind.

use crate::rig::{bench, folder, has};
use serde_json::Value;

/// A sample of each cell with its load, and what it found.
fn found(record: &Value) -> Vec<(String, Value)> {
    let samples = record["samples"].as_array().unwrap();
    let load = |sample: &Value| {
        let cell = sample["cell"].as_u64().unwrap() as usize;
        record["cells"][cell]["load"].as_str().unwrap().to_owned()
    };
    samples.iter().map(|sample| (load(sample), sample["served"]["hostile"].clone())).collect()
}

fn measure(server: &str, loads: &str) -> (String, Vec<(String, Value)>) {
    let folder = folder();
    let args = ["hostile", "--server", server, "--loads", loads, "--connections", "40"];
    let rounds = ["--runs", "1", "--warmup", "0", "--seconds", "0.3", "--no-count"];
    let (finished, record) = bench(folder.path(), &[&args[..], &rounds].concat());
    assert_eq!(record["scenario"], "hostile");
    assert_eq!(record["arguments"]["serve"]["connections"], 40);
    (finished.text(), found(&record))
}

#[track_caller]
fn check(found: &[(String, Value)], loads: &[&str]) {
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, loads);
    for (name, sample) in found {
        let number = |part: &str, name: &str| sample[part][name].as_u64().unwrap();
        assert!(number("alone", "answered") > 0, "{name}: {sample}");
        assert!(sample["alone"]["latency"]["p99_s"].as_f64().unwrap() > 0.0, "{name}: {sample}");
        assert_eq!(number("alone", "failed"), 0, "{name}: {sample}");
        assert!(number("beside", "answered") + number("beside", "failed") > 0, "{name}: {sample}");
        assert!(sample["begun"].as_u64().unwrap() >= 40, "{name}: {sample}");
        assert!(sample["peak_bytes"].as_u64().unwrap() > 1 << 20, "{name}: {sample}");
    }
}

#[test]
fn a_good_client_is_measured_beside_bad_ones_of_every_kind() {
    let kinds = [
        "idle",
        "slow_heads",
        "slow_readers",
        "resets",
        "ranges",
        "partial_hellos",
        "handshakes",
        "passwords",
        "pipelines",
        "slow_uploads",
    ];
    let (text, found) = measure("underpass", &kinds.join(",").replace('_', "-"));
    check(&found, &kinds);
    assert!(text.contains("partial hellos"), "{text}");
}

#[test]
fn bad_clients_request_folders_too() {
    let kinds = ["archives", "listings"];
    check(&measure("underpass", &kinds.join(",")).1, &kinds);
}

#[test]
fn nginx_is_measured_beside_the_same_clients() {
    if !has("nginx") {
        return;
    }
    let kinds = ["idle", "slow_heads", "partial_hellos", "slow_uploads"];
    // Loads that nginx does not support are left out.
    let (_, found) = measure("nginx", &(kinds.join(",").replace('_', "-") + ",archives"));
    check(&found, &kinds);
}

#[test]
fn other_servers_are_measured_only_with_loads_that_they_support() {
    if !has("cc") {
        return;
    }
    let (_, found) = measure("bare-loop", "slow-readers,pipelines,archives");
    check(&found, &["slow_readers"]);
    // The bare loop uses less memory than our program has code.
    let peak_bytes = found[0].1["peak_bytes"].as_u64().unwrap();
    assert!(peak_bytes < 8 << 20, "{peak_bytes}");
}
