//! The bench of copying programs compares their copies, and leaves nothing behind.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::{bench, folder, has, names, run};
use serde_json::Value;

/// Each way has a digest, as many samples as there were rounds, and its command.
#[track_caller]
fn check(record: &Value, original: &str, ways: &[&str], runs: usize) {
    assert_eq!(
        (&record["scenario"], &record["copies"]["original"]),
        (&"cp".into(), &original.into())
    );
    let cells = record["cells"].as_array().unwrap();
    let found: Vec<_> = cells.iter().map(|cell| cell["way"].as_str().unwrap()).collect();
    assert_eq!(found, ways);
    let samples = record["samples"].as_array().unwrap();
    assert_eq!(samples.len(), ways.len() * runs);
    for (sample, cell) in samples.iter().map(|it| (it, it["cell"].as_u64().unwrap() as usize)) {
        assert_eq!(cells[cell]["sha256"].as_str().unwrap().len(), 64);
        assert_eq!(sample["wall_s"], sample["measured"]["process"]["wall_s"]);
    }
    let commands = record["copies"]["commands"].as_array().unwrap();
    // Once, however many sizes there are.
    assert!(commands.iter().map(|each| &each["way"]).eq(&ways[..commands.len()]), "{commands:?}");
    assert!(ways.len().is_multiple_of(commands.len()));
}

#[test]
fn files_of_each_size_are_copied_by_all_installed_programs() {
    let folder = folder();
    let words = ["cp", "--sizes", "1M,3M", "--runs", "2", "--way", "cp-a,underpass,tar,xcp"];
    // Where it is not installed, it is named.
    let rare = crate::rig::has_rare("xcp");
    let (finished, record) = bench(folder.path(), &words);
    let ways = ["cp_a", "underpass", "tar", "xcp"];
    let ways = if rare { &ways[..] } else { &ways[..3] };
    check(&record, "file", &[ways, ways].concat(), 2);
    if !rare {
        assert_eq!(record["copies"]["missing"][0], "xcp");
        assert!(finished.text().contains("xcp is not installed"), "{}", finished.text());
    }
    for says in ["Ratio of ours to", "underpass cp -q -a ORIGINAL COPY", "cp -a"] {
        assert!(finished.text().contains(says), "{}", finished.text());
    }
}

#[test]
fn folders_are_copied_with_all_that_is_in_them() {
    if !has("rsync") {
        return;
    }
    let ways = ["cp_a", "underpass", "rsync_a", "tar"];
    let request = ["--way", "cp-a,underpass,rsync-a,tar", "--runs", "1", "--warmup", "0"];
    let folder = folder();
    let (_, record) = bench(folder.path(), &[&["cp", "--files", "150"], &request[..]].concat());
    check(&record, "small_files", &ways, 1);
    assert_eq!(record["copies"]["files"], 150);
    assert_eq!(record["copies"]["earlier"], "stay");
    assert!(record["copies"]["chilled"].is_null());
    // An existing folder, with links; it is not changed.
    let tree = crate::rig::folder();
    fs::create_dir_all(tree.path().join("a/b")).unwrap();
    fs::write(tree.path().join("a/b/file"), "bytes").unwrap();
    symlink("b/file", tree.path().join("a/link")).unwrap();
    let there = tree.path().join("a");
    let words = ["cp", "--tree", there.to_str().unwrap()];
    let (_, record) = bench(folder.path(), &[&words, &request[..]].concat());
    check(&record, "folder", &ways, 1);
    assert_eq!(names(&there), ["b", "link"]);
}

#[test]
fn holes_are_kept_and_compared_with_a_file_that_has_none() {
    let folder = folder();
    let words = ["cp", "--sparse", "64M", "--data", "1M", "--runs", "1", "--warmup", "0"];
    let (finished, record) = bench(folder.path(), &words);
    check(&record, "sparse", &["cp_a", "underpass", "underpass_dense"], 1);
    assert!(record["copies"]["allocated_bytes"].as_u64().unwrap() < 8 << 20);
    assert!(finished.text().contains("underpass, without holes"), "{}", finished.text());
}

#[test]
fn invalid_combinations_of_cp_options_are_refused() {
    for words in [
        &["bench", "cp", "--files", "5", "--tree", "."][..],
        &["bench", "cp", "--data", "1M"],
        &["bench", "cp", "--sizes", "0"],
        &["bench", "cp", "--way", "dd"],
    ] {
        assert_eq!(run(words).code(), Some(2), "{words:?}");
    }
}
