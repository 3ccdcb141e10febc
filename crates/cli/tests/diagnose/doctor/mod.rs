//! The doctor on this machine: its findings compared with the commands, on one file system after
//! the other, and with a kernel that allows little.

mod agrees;
mod confined;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::rig::{Finished, Running, folder, limited, names, noise_file, run, underpass};

const STATES: [&str; 4] = ["best", "limited", "closed", "unneeded"];

/// What the doctor says of two ends.
fn doctor(from: &Path, to: &str) -> Value {
    let finished = run([Path::new("doctor"), "--json".as_ref(), "--from".as_ref(), from]
        .into_iter()
        .chain(["--to".as_ref(), to.as_ref()]));
    diagnosis(&finished)
}

/// The doctor's diagnosis as JSON, after checks that apply to every diagnosis.
#[track_caller]
fn diagnosis(finished: &Finished) -> Value {
    let diagnosis: Value = finished.receipt();
    let findings = diagnosis["findings"].as_array().unwrap();
    let closed = findings.iter().filter(|finding| finding["state"] == "closed").count();
    assert_eq!(diagnosis["open"], closed == 0);
    assert_eq!(finished.code(), Some(if closed == 0 { 0 } else { 3 }), "{}", finished.stderr);
    let mut names = Vec::new();
    for finding in findings {
        for part in ["name", "finding", "consequence"] {
            assert!(!finding[part].as_str().unwrap().is_empty(), "{finding}");
        }
        let state = finding["state"].as_str().unwrap();
        assert!(STATES.contains(&state), "{finding}");
        let is_wanting = ["limited", "closed"].contains(&state);
        assert_eq!(finding["remedy"].is_string(), is_wanting, "{finding}");
        names.push(finding["name"].as_str().unwrap());
    }
    assert_eq!(names[0], "way");
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a name is there twice: {names:?}");
    diagnosis
}

/// One finding, by its name.
#[track_caller]
fn finding<'t>(diagnosis: &'t Value, name: &str) -> &'t Value {
    let mut findings = diagnosis["findings"].as_array().unwrap().iter();
    findings
        .find(|finding| finding["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {diagnosis}"))
}

fn has_finding(diagnosis: &Value, name: &str) -> bool {
    diagnosis["findings"].as_array().unwrap().iter().any(|finding| finding["name"] == name)
}

#[test]
fn text_and_json_say_the_same_and_the_exit_code_says_whether_the_best_way_is_open() {
    let finished = run(["doctor", "--json"]);
    let diagnosis = diagnosis(&finished);
    let findings = diagnosis["findings"].as_array().unwrap();
    let closed = findings.iter().filter(|finding| finding["state"] == "closed");
    let closed: Vec<_> = closed.map(|finding| finding["name"].as_str().unwrap()).collect();
    if !closed.is_empty() {
        finished.failed(3, &["underpass: ", &format!("closed: {} (see above)", closed.join(", "))]);
    }
    let text = run(["doctor"]).text();
    for finding in diagnosis["findings"].as_array().unwrap() {
        let (state, name) = (finding["state"].as_str().unwrap(), finding["name"].as_str().unwrap());
        assert!(text.contains(&format!("{state:<8} {name}: ")), "{name} is not in: {text}");
    }
    for name in ["kernel", "openat2", "landlock", "io_uring", "pipe", "lease", "ktls"] {
        assert!(has_finding(&diagnosis, name), "{name}");
    }
    assert_eq!(diagnosis["pair"]["mechanisms"].as_array().unwrap().len(), 6);
}

#[test]
fn the_file_stays_as_it_is_and_nothing_is_left_behind() {
    let folder = folder();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    fs::create_dir(&a).unwrap();
    fs::create_dir(&b).unwrap();
    let file = noise_file(&a, "file", 3 << 20);
    let before = fs::metadata(&file).unwrap();
    let bytes = fs::read(&file).unwrap();
    for to in [b.to_str().unwrap(), b.join("new").to_str().unwrap(), "127.0.0.1:9", "unix:x"] {
        let diagnosis = doctor(&file, to);
        assert_eq!(diagnosis["pair"]["receipt"]["bytes"], 256 << 10, "{diagnosis}");
        assert_eq!(diagnosis["pair"]["receipt"]["user_space_bytes"], 0, "{diagnosis}");
    }
    doctor(&a, b.to_str().unwrap());
    let after = fs::metadata(&file).unwrap();
    assert_eq!(after.modified().unwrap(), before.modified().unwrap());
    assert!(fs::read(&file).unwrap() == bytes);
    assert_eq!((names(&a), names(&b)), (vec!["file".to_owned()], vec![]));
    assert_eq!(names(folder.path()), ["a", "b"]);
}

#[test]
fn a_file_size_limit_is_a_finding_and_no_crash() {
    let folder = folder();
    let file = noise_file(folder.path(), "file", 3 << 20);
    let mut command = limited("-f 8");
    command.args(["doctor", "--from"]).arg(&file).arg("--to").arg(folder.path());
    let finished = Running::start(command).finish();
    assert!(finished.code().is_some(), "no signal ended it: {}", finished.stderr);
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_socket_has_the_pages_of_the_file() {
    let diagnosis = doctor(folder().path(), "127.0.0.1");
    let finding = finding(&diagnosis, "by_reference");
    // A kernel that copies would be news: then it is this line that tells.
    assert_eq!(
        finding["finding"],
        "65536 of 65536 bytes changed with their file after they were sent"
    );
}

#[test]
fn the_route_to_a_host_is_reported() {
    let folder = folder();
    let diagnosis = doctor(folder.path(), "127.0.0.1:80");
    assert_eq!(finding(&diagnosis, "route")["finding"], "over lo");
    assert!(!has_finding(&diagnosis, "card_gathers"), "{diagnosis}");
    for name in ["mtu", "congestion", "by_reference", "ktls"] {
        assert!(has_finding(&diagnosis, name), "{name}: {diagnosis}");
    }
    // A copy needs none of it.
    let diagnosis = doctor(folder.path(), folder.path().to_str().unwrap());
    for name in ["route", "mtu", "congestion", "by_reference", "ktls"] {
        assert!(!has_finding(&diagnosis, name), "{name}: {diagnosis}");
    }
}

#[test]
fn unusable_ends_fail_with_one_clear_line() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("empty"), "").unwrap();
    fs::write(at("file"), "some").unwrap();
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["--from", &at("none")], 1, &["opening", "none", "No such file"]),
        (&["--from", &at("empty")], 2, &["empty is empty", "name a file"]),
        (&["--from", "/dev/zero"], 2, &["/dev/zero", "device", "name a file"]),
        (&["--from", &at("file"), "--to", &at("none/new")], 1, &["creating", "No such file"]),
        (&["--from", &at("file"), "--to", "/dev/full"], 2, &["/dev/full", "does not write"]),
        (&["--to", "no-such-host.invalid"], 1, &["looking up", "no-such-host.invalid"]),
        (&["--to", "host:port"], 2, &["host:port", "addresses are"]),
        (&["--to", ":80"], 2, &["neither a host"]),
        (&["--from"], 2, &["--from"]),
    ];
    for (args, code, words) in cases {
        let finished = run(["doctor"].iter().chain(*args));
        assert_eq!(finished.text(), "", "{args:?}");
        let finished = finished.failed(*code, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{args:?}: {}", finished.stderr);
    }
}

#[test]
fn a_name_with_newlines_stays_in_one_line() {
    let folder = folder();
    let file = noise_file(folder.path(), "two\nlines", 100_000);
    let mut command = underpass();
    command.args(["doctor", "--to", "127.0.0.1", "--from"]).arg(file);
    let text = Running::start(command).finish().text();
    assert!(text.contains("two\\nlines to a TCP connection"), "{text}");
}

#[test]
fn the_guide_tells_every_finding() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let guide = fs::read_to_string(guide).unwrap();
    let folder = folder();
    let host = doctor(folder.path(), "127.0.0.1");
    let copy = doctor(folder.path(), folder.path().to_str().unwrap());
    for diagnosis in [host, copy] {
        for finding in diagnosis["findings"].as_array().unwrap() {
            let name = finding["name"].as_str().unwrap();
            assert!(guide.contains(&format!("`{name}`")), "{name} is not in docs/doctor.md");
        }
        for field in diagnosis["pair"].as_object().unwrap().keys() {
            assert!(guide.contains(&format!("`{field}`")), "{field} is not in docs/doctor.md");
        }
    }
}
