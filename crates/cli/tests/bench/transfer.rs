//! The benches of clients move complete and correct files, and leave no file or process behind.

use std::path::Path;

use crate::rig::{bench, folder, has, interrupt_bench, names};
use serde_json::Value;

/// The ways of a record's cells.
fn ways(record: &Value) -> Vec<&str> {
    record["cells"].as_array().unwrap().iter().map(|cell| cell["way"].as_str().unwrap()).collect()
}

/// Each cell has the same digest, as many samples as there were rounds, and a client and a server
/// that worked for them; each way its commands.
#[track_caller]
fn check(record: &Value, scenario: &str, expected: &[&str], runs: usize) {
    assert_eq!((record["scenario"].as_str(), ways(record).as_slice()), (Some(scenario), expected));
    let cells = record["cells"].as_array().unwrap();
    let samples = record["samples"].as_array().unwrap();
    for (index, cell) in cells.iter().enumerate() {
        assert_eq!(cell["sha256"].as_str().unwrap().len(), 64);
        assert_eq!(cell["sha256"], cells[0]["sha256"]);
        let own: Vec<_> = samples.iter().filter(|sample| sample["cell"] == index).collect();
        assert_eq!(own.len(), runs, "{cell}");
        for sample in own {
            for (side, role) in [("measured", "client"), ("peer", "server")] {
                let side = &sample[side];
                assert_eq!(side["role"], role);
                assert!(side["process"]["cpu_s"].as_f64().unwrap() > 0.0, "{cell}: {side}");
            }
            assert_eq!(sample["wall_s"], sample["measured"]["process"]["wall_s"]);
        }
    }
    let commands = record["arguments"]["transfers"]["commands"].as_array().unwrap();
    let of_commands: Vec<_> = commands.iter().map(|each| each["way"].as_str().unwrap()).collect();
    assert_eq!(of_commands, expected);
}

/// System calls of each client and its server were counted in a separate pass.
#[track_caller]
fn counted(record: &Value, ways: &[&str]) {
    if !has("strace") {
        return;
    }
    let counted = record["counted"].as_array().unwrap();
    for (index, way) in ways.iter().enumerate() {
        for role in ["client", "server"] {
            let side = counted.iter().find(|one| one["cell"] == index && one["role"] == role);
            let side = side.unwrap_or_else(|| panic!("nobody counted the {role} of {way}"));
            let calls: Vec<_> = side["calls"].as_array().unwrap().iter().collect();
            let moves = ["sendfile", "splice", "read", "recvfrom", "write"];
            let moved = calls.iter().any(|call| moves.iter().any(|name| call["name"] == *name));
            assert!(moved, "{way}: {side}");
        }
    }
}

#[test]
fn downloads_from_both_servers_are_measured_by_every_client() {
    if !["curl", "wget", "aria2c", "cc"].map(has).contains(&false) {
        let clients = ["curl", "wget", "aria2c", "bare_client", "underpass"];
        for from in ["underpass", "nginx"] {
            if from == "nginx" && !has("nginx") {
                continue;
            }
            let folder = folder();
            let args = ["get", "--sizes", "3M", "--runs", "2", "--from", from];
            let (finished, record) = bench(folder.path(), &args);
            check(&record, "get", &clients, 2);
            assert_eq!(record["arguments"]["transfers"]["server"], from);
            let versions = record["environment"]["programs"].to_string();
            for program in ["curl", "Wget", "aria2"] {
                assert!(versions.contains(program), "{versions}");
            }
            counted(&record, &clients);
            for words in ["Ratio of ours to", "aria2c --no-conf", "Server and client are on any"] {
                assert!(finished.text().contains(words), "{}", finished.text());
            }
        }
    }
}

#[test]
fn clients_are_chosen_and_servers_kept_on_a_core() {
    if has("curl") {
        let folder = folder();
        let args = ["get", "--sizes", "10K,1M", "--client", "curl", "--runs", "1"];
        let (finished, record) = bench(folder.path(), &[&args[..], &["--pin", "server"]].concat());
        assert_eq!(ways(&record), ["curl", "curl"]);
        assert_eq!(record["arguments"]["transfers"]["pinned"], "server");
        assert!(finished.text().contains("The server is on core"), "{}", finished.text());
        assert!(!finished.text().contains("Ratio of ours to"), "{}", finished.text());
    }
}

#[test]
fn uploads_to_nginx_are_measured() {
    if has("curl") && has("nginx") {
        let folder = folder();
        let args = ["put", "--sizes", "3M", "--way", "curl-to-nginx", "--runs", "2"];
        let (_, record) = bench(folder.path(), &args);
        check(&record, "put", &["curl_to_nginx"], 2);
        assert!(record["environment"]["nginx"].as_str().unwrap().starts_with("nginx/"));
    }
}

#[test]
fn uploads_are_measured_with_and_without_waiting_for_the_disk() {
    if has("curl") && has("cc") {
        let folder = folder();
        let ours = "curl-to-underpass,bare-client,underpass,underpass-synced";
        let args = ["put", "--sizes", "3M", "--way", ours, "--runs", "1"];
        let (finished, record) = bench(folder.path(), &args);
        let ways = ["curl_to_underpass", "bare_client", "underpass", "underpass_synced"];
        check(&record, "put", &ways, 1);
        assert!(finished.text().contains("--allow-upload --sync off"), "{}", finished.text());
    }
}

#[test]
fn a_folder_is_downloaded_whole() {
    if !has("wget") {
        return;
    }
    let folder = folder();
    let args = ["tree", "--files", "150", "--large", "1", "--large-size", "300K"];
    let args = [&args[..], &["--runs", "1"]].concat();
    let (finished, record) = bench(folder.path(), &args);
    check(&record, "tree", &["wget", "underpass"], 1);
    let bytes = record["cells"][0]["size"].as_u64().unwrap();
    assert!(bytes > (150 << 10) + (300 << 10), "{bytes}");
    let words = "150 files of 1 to 16 KiB and 1 of 300K.";
    assert!(finished.text().contains(words), "{}", finished.text());
}

#[test]
fn a_missing_contender_is_named_and_the_others_are_measured() {
    if has("curl") && has("nginx") {
        let folder = folder();
        let nowhere = folder.path().join("nowhere");
        let args = ["put", "--sizes", "10K", "--way", "curl-to-dufs,curl-to-nginx", "--runs", "1"];
        let args = [&args[..], &["--dufs", nowhere.to_str().unwrap()]].concat();
        let (finished, record) = bench(folder.path(), &args);
        check(&record, "put", &["curl_to_nginx"], 1);
        assert_eq!(record["arguments"]["transfers"]["missing"], serde_json::json!(["dufs"]));
        assert!(finished.text().contains("dufs is not installed"), "{}", finished.text());
    }
}

#[test]
fn a_signal_ends_client_and_server_and_leaves_nothing() {
    if !has("curl") {
        return;
    }
    let args = ["get", "--sizes", "64M", "--client", "curl", "--runs", "1000"];
    let has_target = |folder: &Path| {
        names(folder).first().is_some_and(|name| folder.join(name).join("target").exists())
    };
    interrupt_bench(&args, has_target, (100, "INT"));
}
