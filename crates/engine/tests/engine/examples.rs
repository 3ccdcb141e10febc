//! The examples do what they claim, also for a reader that pauses half-way.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::rig::ends::pattern;

/// More than the kernel buffers before a peer reads.
const LEN: usize = 24 << 20;

#[test]
fn a_file_is_sent_with_a_header_in_front() {
    let bytes = pattern(LEN);
    let (got, report) = run("send_with_header", &bytes);
    let header = format!("{LEN} bytes follow\n");
    assert!(got == [header.as_bytes(), &bytes].concat(), "other bytes");
    assert!(report.starts_with(&format!("{LEN} bytes by sendfile in ")), "{report}");
}

#[test]
fn a_file_is_sent_from_an_async_task() {
    let bytes = pattern(LEN);
    let (got, report) = run("tokio_send", &bytes);
    assert!(got == bytes, "other bytes");
    assert_eq!(report, format!("{LEN} bytes, 0 of them in user space\n"));
}

#[test]
fn an_example_without_arguments_prints_its_usage() {
    for name in ["send_with_header", "tokio_send"] {
        let output = Command::new(example(name)).output().unwrap();
        assert!(!output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains(&format!("usage: {name}")));
    }
}

/// Returns what a peer gets from an example, and what the example prints.
fn run(name: &str, bytes: &[u8]) -> (Vec<u8>, String) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let child = Command::new(example(name))
        .arg(file.path())
        .arg(listener.local_addr().unwrap().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut got = Vec::new();
    listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    (got, String::from_utf8(output.stdout).unwrap())
}

/// Cargo sets no variable with the path of an example: it puts examples next to the folder of the
/// tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path = profile.join("examples").join(name);
    if !path.exists() {
        // A run of this test file alone builds no examples.
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--example", name, "--target-dir"]);
        cargo.arg(profile.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "cannot build {name}");
    }
    path
}
