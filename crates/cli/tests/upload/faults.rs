//! Uploads of the real program that are killed, interrupted and refused by the kernel, and resumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::rig::{
    Finished, Running, bytes_by, folder, free_port, has, names, noise, noise_file, under,
    underpass, until,
};

const LEN: usize = 40 << 20;

/// A server on a port that it can be started on again, a file to send, and what is remembered.
struct Stage {
    served: TempDir,
    own: TempDir,
    source: PathBuf,
    port: u16,
}

impl Stage {
    fn new() -> Self {
        let (served, own) = (folder(), folder());
        let source = noise_file(own.path(), "source", LEN);
        let port = free_port();
        Self { served, own, source, port }
    }

    fn serve(&self) -> Running {
        self.serve_with(&[])
    }

    /// A server behind these words.
    fn serve_with(&self, words: &[&str]) -> Running {
        let mut command = under(words);
        command.args(["serve", "--quiet", "-A", "--port", &self.port.to_string()]);
        command.arg(self.served.path());
        Running::listening(command)
    }

    /// The program behind these words, with these arguments besides.
    fn put(&self, words: &[&str], args: &[&str]) -> Running {
        let mut command = under(words);
        command.arg("put").arg(&self.source);
        command.arg(format!("http://127.0.0.1:{}/target", self.port)).args(args);
        command.env("XDG_STATE_HOME", self.own.path().join("state"));
        Running::start(command)
    }

    /// An upload that is in the middle of the file.
    fn put_midway(&self, before: u64) -> Running {
        let put = self.put(&[], &["--rate", "16M", "--json"]);
        until("a part has arrived", || self.part().is_some_and(|len| len > before + (1 << 20)));
        assert!(self.part().is_some_and(|len| len < LEN as u64), "too fast");
        put
    }

    /// The number of bytes that the server has of an incomplete upload.
    fn part(&self) -> Option<u64> {
        let name = names(self.served.path()).into_iter().find(|name| name.ends_with(".upload"))?;
        fs::metadata(self.served.path().join(name)).ok().map(|facts| facts.len())
    }

    /// The names of what is remembered.
    fn journals(&self) -> Vec<String> {
        let folder = self.own.path().join("state/underpass/uploads");
        if folder.exists() { names(&folder) } else { Vec::new() }
    }

    /// Everything is there, and nothing else is left on either side.
    fn assert_whole(&self) {
        assert_eq!(names(self.served.path()), ["target"]);
        assert!(fs::read(self.served.path().join("target")).unwrap() == noise(LEN));
        assert!(self.journals().is_empty(), "{:?}", self.journals());
    }

    fn trace(&self) -> PathBuf {
        self.own.path().join("trace")
    }
}

fn number(receipt: &Value, name: &str) -> u64 {
    receipt[name].as_u64().unwrap()
}

/// Checks that everything has arrived with this receipt, and nothing was moved twice.
fn assert_went_on(finished: Finished) {
    let receipt = finished.succeeded().receipt();
    assert!(number(&receipt, "resumed_at") > 1 << 20, "{receipt}");
    assert_eq!(number(&receipt, "resumed_at") + number(&receipt, "bytes"), LEN as u64);
    assert_eq!(number(&receipt, "user_space_bytes"), 0);
}

#[test]
fn a_killed_client_goes_on_where_it_was() {
    let stage = Stage::new();
    let _server = stage.serve();
    let mut before = 0;
    for _ in 0..3 {
        let mut put = stage.put_midway(before);
        put.child.kill().unwrap();
        put.child.wait().unwrap();
        before = stage.part().unwrap();
        assert_eq!(stage.journals().len(), 1);
        assert!(!stage.served.path().join("target").exists());
    }
    assert_went_on(stage.put(&[], &["--json"]).finish());
    stage.assert_whole();
}

#[test]
fn a_server_that_is_killed_and_started_again_gets_the_rest() {
    let stage = Stage::new();
    let mut server = stage.serve();
    let put = stage.put_midway(0);
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let kept = stage.part().unwrap();
    let _server = stage.serve();
    let finished = put.finish().succeeded();
    assert!(finished.stderr.contains("resuming"), "{}", finished.stderr);
    // The bytes in flight when the server died were in no file yet.
    assert!(number(&finished.receipt(), "bytes") < 2 * LEN as u64 - kept);
    stage.assert_whole();
}

/// All has arrived, and is being written to the disk.
#[test]
fn a_server_that_is_killed_at_the_very_end_has_all_of_it() {
    if !has("strace") {
        return;
    }
    // The last steps of the server in their order.
    for (call, when) in [("fsync", 1), ("renameat", 1), ("fremovexattr", 1), ("renameat", 2)] {
        let stage = Stage::new();
        let (trace, inject) = (stage.trace(), format!("inject={call}:signal=KILL:when={when}"));
        let words = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap(), "-e", &inject];
        let mut server = stage.serve_with(&words);
        let put = stage.put(&[], &["--json"]);
        server.child.wait().unwrap();
        assert_eq!(stage.part(), Some(LEN as u64), "{call} {when}");
        let _server = stage.serve();
        let receipt = put.finish().succeeded().receipt();
        assert_eq!(number(&receipt, "bytes"), LEN as u64, "{call} {when}: {receipt}");
        stage.assert_whole();
    }
}

#[test]
fn an_upload_resumes_after_both_sides_were_killed() {
    let stage = Stage::new();
    let mut server = stage.serve();
    let mut put = stage.put_midway(0);
    server.child.kill().unwrap();
    put.child.kill().unwrap();
    server.child.wait().unwrap();
    put.child.wait().unwrap();
    let _server = stage.serve();
    assert_went_on(stage.put(&[], &["--json"]).finish());
    stage.assert_whole();
}

#[test]
fn an_interrupted_upload_prints_how_to_resume() {
    let stage = Stage::new();
    let _server = stage.serve();
    let put = stage.put_midway(0);
    put.signal("INT");
    put.finish().failed(1, &["the same command resumes the upload"]);
    assert_went_on(stage.put(&[], &["--json"]).finish());
    stage.assert_whole();
}

#[test]
fn no_resume_leaves_no_files_at_the_client() {
    let stage = Stage::new();
    let _server = stage.serve();
    let put = stage.put(&[], &["--rate", "16M", "--no-resume"]);
    until("it is connected", || has_socket(put.child.id()));
    put.signal("INT");
    let failed = put.finish().failed(1, &["sending"]);
    assert!(!failed.stderr.contains("resumes the upload"), "{}", failed.stderr);
    assert!(stage.journals().is_empty());
    assert!(!stage.served.path().join("target").exists());
}

#[test]
fn a_file_that_has_changed_since_is_not_mixed_with_its_old_version() {
    let stage = Stage::new();
    let _server = stage.serve();
    let mut put = stage.put_midway(0);
    put.child.kill().unwrap();
    put.child.wait().unwrap();
    let other: Vec<u8> = noise(LEN).iter().map(|byte| !byte).collect();
    fs::write(&stage.source, &other).unwrap();
    let finished = stage.put(&[], &["--json"]).finish().succeeded();
    assert!(finished.stderr.contains("changed"), "{}", finished.stderr);
    assert_eq!(number(&finished.receipt(), "resumed_at"), 0);
    assert!(fs::read(stage.served.path().join("target")).unwrap() == other);
    assert_eq!(names(stage.served.path()), ["target"], "the old part is left");
    assert!(stage.journals().is_empty());
}

#[test]
fn an_upload_whose_answer_was_lost_is_not_repeated() {
    let stage = Stage::new();
    let server = stage.serve();
    let mut put = stage.put_midway(0);
    put.child.kill().unwrap();
    put.child.wait().unwrap();
    // As if the server had got the rest as well, and the client had died before it heard of it. The
    // server starts again, because it remembers uploads of which it has no byte.
    drop(server);
    let part = names(stage.served.path()).remove(0);
    fs::copy(&stage.source, stage.served.path().join("target")).unwrap();
    fs::remove_file(stage.served.path().join(part)).unwrap();
    let _server = stage.serve();
    let receipt = stage.put(&[], &["--json"]).finish().succeeded().receipt();
    assert_eq!(number(&receipt, "bytes"), 0);
    stage.assert_whole();
}

#[test]
fn a_file_cut_short_meanwhile_is_no_upload() {
    let stage = Stage::new();
    let _server = stage.serve();
    let put = stage.put_midway(0);
    fs::File::options().write(true).open(&stage.source).unwrap().set_len(LEN as u64 / 2).unwrap();
    put.finish().failed(1, &["the source"]);
    until("the server has thrown it away", || names(stage.served.path()).is_empty());
    assert!(stage.journals().is_empty());
}

#[test]
fn strace_sees_no_byte_of_the_body_in_user_space() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new();
    let _server = stage.serve();
    let trace = stage.trace();
    let strace =
        ["strace", "-f", "-qq", "-e", "trace=read,pread64,readv,write,send,sendto,sendfile"];
    let words = [&strace[..], &["-o", trace.to_str().unwrap()]].concat();
    stage.put(&words, &["--json"]).finish().succeeded();
    stage.assert_whole();
    let text = fs::read_to_string(&trace).unwrap();
    let moved = |call: &str| -> u64 {
        let lines = text.lines().filter(|line| line.contains(&format!(" {call}(")));
        let results = lines.filter_map(|line| line.rsplit_once("= ")?.1.trim().parse::<u64>().ok());
        results.sum()
    };
    assert_eq!(moved("sendfile"), LEN as u64);
    for call in ["read", "pread64", "readv", "write", "send", "sendto"] {
        assert!(moved(call) < 1 << 20, "{} bytes by {call}", moved(call));
    }
}

#[test]
fn a_declined_sendfile_continues_at_the_same_byte_by_another_mechanism() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new();
    let _server = stage.serve();
    for (errno, when) in [("EINVAL", 1), ("EINVAL", 5), ("EPERM", 17)] {
        let trace = stage.trace();
        let inject = format!("inject=sendfile:error={errno}:when={when}");
        let words = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap(), "-e", &inject];
        let args = ["--json", "--step", "1M"];
        let receipt = stage.put(&words, &args).finish().succeeded().receipt();
        let (sent, spliced) = (bytes_by(&receipt, "sendfile"), bytes_by(&receipt, "splice"));
        assert_eq!(sent + spliced, LEN as u64, "{receipt}");
        assert_eq!(sent == 0, when == 1);
        assert_eq!(receipt["declined"][0]["errno"], errno);
        assert_eq!(receipt["declined"][0]["at"], sent);
        assert_eq!(number(&receipt, "user_space_bytes"), 0);
        stage.assert_whole();
    }
}

#[test]
fn a_disk_error_fails_and_can_be_resumed() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new();
    let _server = stage.serve();
    let trace = stage.trace();
    let inject = "inject=sendfile:error=EIO:when=9";
    let words = ["strace", "-f", "-qq", "-o", trace.to_str().unwrap(), "-e", inject];
    let failed = stage.put(&words, &["--step", "1M"]).finish();
    failed.failed(1, &["Input/output error", "the same command resumes the upload"]);
    assert!(!stage.served.path().join("target").exists());
    assert_went_on(stage.put(&[], &["--json"]).finish());
    stage.assert_whole();
}

#[test]
fn a_full_disk_is_reported_before_the_body() {
    let stage = Stage::new();
    // A disk of a few MiB, if one may be mounted here.
    let disk = stage.own.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
        .arg(&disk)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return crate::rig::skip("nothing can be mounted");
    }
    let _mounted = Unmount(&disk);
    let mut command = underpass();
    command.args(["serve", "--quiet", "-A", "--port", &stage.port.to_string()]).arg(&disk);
    let server = Running::listening(command);
    let failed = stage.put(&[], &[]).finish().failed(1, &["507", "the disk of the server is full"]);
    assert_eq!(failed.stderr.lines().count(), 1, "{}", failed.stderr);
    assert!(names(&disk).is_empty() && stage.journals().is_empty());
    drop(server);
}

/// Whether a process has a socket.
fn has_socket(pid: u32) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let mut links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.any(|link| link.to_string_lossy().starts_with("socket:"))
}

/// Unmounts when its test ends.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}
