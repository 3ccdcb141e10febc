//! The doctor on this machine, whatever it has, and on one whose kernel answers nothing.

#![allow(clippy::unwrap_used)]

mod rig;

use serde_json::Value;

use rig::{Finished, Running, folder, has, traced, underpass};

/// The doctor's findings, by its own words as JSON.
fn findings(finished: &Finished) -> Vec<Value> {
    let told: Value = serde_json::from_str(&finished.text()).unwrap();
    let findings = told["findings"].as_array().unwrap().clone();
    let is_closed = findings.iter().any(|finding| finding["state"] == "closed");
    assert_eq!(told["open"], !is_closed);
    for finding in &findings {
        for part in ["name", "finding", "consequence"] {
            assert!(!finding[part].as_str().unwrap().is_empty(), "{finding}");
        }
        assert_eq!(finding["remedy"].is_string(), finding["state"] != "best", "{finding}");
    }
    findings
}

#[test]
fn the_exit_code_says_whether_the_best_way_is_open() {
    let mut command = underpass();
    command.args(["doctor", "--json"]);
    let finished = Running::start(command).finish();
    let findings = findings(&finished);
    assert_eq!(findings[0]["name"], "ktls");
    let closed = findings.iter().filter(|finding| finding["state"] == "closed").count();
    match closed {
        0 => drop(finished.succeeded()),
        _ => drop(finished.failed(3, &["underpass: ", "closed"])),
    }
    let mut command = underpass();
    command.arg("doctor");
    let text = Running::start(command).finish().text();
    for finding in findings {
        let (state, name) = (finding["state"].as_str().unwrap(), finding["name"].as_str().unwrap());
        assert!(text.contains(&format!("{state:<8} {name}: ")), "{name} is not in: {text}");
    }
}

#[test]
fn a_filter_of_system_calls_is_told_and_breaks_nothing() {
    if !has("strace") {
        return;
    }
    let folder = folder();
    for call in ["setsockopt", "socket", "bind", "listen", "connect", "accept4", "getsockname"] {
        for errno in ["EPERM", "ENOSYS"] {
            // The first is std's own for a listening socket, and no filter knows it from others.
            let when = if call == "setsockopt" { ":when=2+" } else { "" };
            let inject = format!("inject={call}:error={errno}{when}");
            let trace = format!("trace={call}");
            let mut command = traced(&folder.path().join("log"), &["-e", &trace, "-e", &inject]);
            command.args(["doctor", "--json"]);
            let finished = Running::start(command).finish().failed(3, &["closed"]);
            let findings = findings(&finished);
            let told = findings[0].to_string();
            assert_eq!((findings.len(), &findings[0]["state"]), (1, &"closed".into()), "{told}");
            if call == "setsockopt" {
                assert!(told.contains(&format!("TCP_ULP: {errno}")), "{told}");
                assert!(told.contains("seccomp"), "{told}");
            } else {
                assert!(told.contains("could not be tried"), "{told}");
            }
        }
    }
}
