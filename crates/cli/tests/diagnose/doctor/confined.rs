//! The doctor with restrictions: system call filters, no privileges, no /proc.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{diagnosis, finding};
use crate::rig::{Finished, Running, folder, has, names, noise_file, traced};
use underpass_testkit::{is_root, skip};

/// The doctor with some calls answered by an error.
fn filtered(calls: &[&str], errno: &str, words: &[&str]) -> Finished {
    let folder = folder();
    // A strace that does not know a call yet leaves it alone.
    let rules: Vec<_> = calls.iter().map(|call| format!("inject=?{call}:error={errno}")).collect();
    let trace = format!("trace=?{}", calls.join(",?"));
    let mut options = vec!["-e", &trace];
    for rule in &rules {
        options.extend(["-e", rule.as_str()]);
    }
    let mut command = traced(&folder.path().join("log"), &options);
    command.args(["doctor", "--json"]).args(words);
    Running::start(command).finish()
}

#[test]
fn a_seccomp_filter_is_reported_and_breaks_nothing() {
    if !has("strace") {
        return;
    }
    let folder = folder();
    let file = noise_file(folder.path(), "file", 1 << 20);
    let file = file.to_str().unwrap();
    for errno in ["EPERM", "ENOSYS"] {
        let diagnosis =
            diagnosis(&filtered(&["sendfile"], errno, &["--from", file, "--to", "127.0.0.1"]));
        assert_eq!(diagnosis["pair"]["way"], "splice", "{diagnosis}");
        assert_eq!(finding(&diagnosis, "sendfile")["state"], "limited", "{diagnosis}");
        let remedy = finding(&diagnosis, "way")["remedy"].as_str().unwrap().to_owned();
        assert!(remedy.contains("seccomp") && remedy.contains("sendfile"), "{remedy}");
        for (call, name, states) in [
            ("openat2", "openat2", ["closed", ""]),
            ("landlock_create_ruleset", "landlock", ["limited", ""]),
            ("io_uring_setup", "io_uring", ["unneeded", ""]),
            // Limited, if the kernel is too old to tell it in another way.
            ("preadv2", "rwf_nowait", ["unneeded", "limited"]),
            ("pipe2", "pipe", ["limited", ""]),
        ] {
            let diagnosis = super::diagnosis(&filtered(&[call], errno, &["--from", file]));
            let finding = finding(&diagnosis, name);
            assert!(states.contains(&finding["state"].as_str().unwrap()), "{errno}: {finding}");
            assert!(finding["finding"].as_str().unwrap().contains(errno), "{finding}");
        }
    }
}

#[test]
fn the_doctor_works_under_a_strict_filter() {
    if !has("strace") {
        return;
    }
    let folder = folder();
    let file = noise_file(folder.path(), "file", 1 << 20);
    let (file, to) = (file.to_str().unwrap(), folder.path().to_str().unwrap());
    let unusual = [
        "sendfile",
        "splice",
        "copy_file_range",
        "pipe2",
        "openat2",
        "preadv2",
        "cachestat",
        "landlock_create_ruleset",
        "io_uring_setup",
        "fallocate",
        "fstatfs",
        "memfd_create",
        "getrusage",
        "setsockopt",
        "socket",
        "uname",
    ];
    for errno in ["EPERM", "ENOSYS"] {
        for target in ["127.0.0.1", "unix:x", to] {
            let words = ["--from", file, "--to", target];
            let finished = filtered(&unusual, errno, &words);
            assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
            let diagnosis = diagnosis(&finished);
            assert_eq!(finding(&diagnosis, "way")["state"], "closed", "{diagnosis}");
        }
    }
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn a_closed_loopback_is_reported() {
    if !has("strace") {
        return;
    }
    for call in ["socket", "bind", "listen", "connect", "accept4", "getsockname"] {
        let finished = filtered(&[call], "EPERM", &[]).failed(3, &["closed: way"]);
        let diagnosis = diagnosis(&finished);
        assert_eq!(finding(&diagnosis, "way")["state"], "closed", "{call}: {diagnosis}");
        assert!(
            finding(&diagnosis, "ktls")["finding"].as_str().unwrap().contains("could not be tried")
        );
    }
}

#[test]
fn an_unprivileged_user_gets_the_same_answers() {
    if !is_root() {
        return skip("only root can become somebody else");
    }
    if !has("setpriv") {
        return;
    }
    // The folder of the tests may be one that only root reaches.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("underpass");
    fs::copy(env!("CARGO_BIN_EXE_underpass"), &program).unwrap();
    let file = noise_file(folder.path(), "file", 1 << 20);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    command.args(["doctor", "--json", "--from"]).arg(&file).arg("--to").arg(folder.path());
    let diagnosis = diagnosis(&finish(command));
    assert_ne!(diagnosis["pair"]["way"], "read_write", "{diagnosis}");
    let lease = finding(&diagnosis, "lease");
    assert!(lease["finding"].as_str().unwrap().contains("EACCES"), "{lease}");
    assert!(lease["remedy"].as_str().unwrap().contains("owner"), "{lease}");
    assert_eq!(names(folder.path()), ["file", "underpass"]);
}

#[test]
fn without_proc_and_sys_it_says_what_is_missing() {
    if !is_root() {
        return skip("only root can unmount /proc");
    }
    if !has("unshare") {
        return;
    }
    let folder = folder();
    let file = noise_file(folder.path(), "file", 1 << 20);
    // In namespaces of its own, /proc and /sys are empty folders.
    let script = r#"
        mount -t tmpfs none /proc && mount -t tmpfs none /sys &&
        exec "$0" doctor --json --from "$1" --to "$2""#;
    for to in [folder.path().to_str().unwrap(), "127.0.0.1"] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "sh", "-c", script]);
        command.arg(env!("CARGO_BIN_EXE_underpass")).arg(&file).arg(to);
        let diagnosis = diagnosis(&finish(command));
        let lease = finding(&diagnosis, "lease");
        assert!(lease["remedy"].as_str().unwrap().contains("mount /proc"), "{lease}");
        if to != "127.0.0.1" {
            let named = finding(&diagnosis, "unnamed_file");
            // Linux 6.10 gives a file its name without /proc.
            if named["state"] != "best" {
                assert_eq!(named["state"], "closed", "{named}");
                assert!(named["remedy"].as_str().unwrap().contains("mount /proc"), "{named}");
            }
            assert_ne!(diagnosis["pair"]["way"], "read_write", "{diagnosis}");
        }
    }
    assert_eq!(names(folder.path()), ["file"]);
}

fn finish(mut command: Command) -> Finished {
    command.stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Running::start(command).finish()
}
