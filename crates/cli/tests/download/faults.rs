//! Faults during `underpass get`: the kernel declines, the disk is full, the process or the server
//! is killed. Also, no byte of a body enters the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::rig::{
    self, Finished, Running, bytes_by, folder, has, names, noise, noise_file, traced, underpass,
    until,
};

const LEN: usize = 40 << 20;

/// A file on our server, and a place for what arrives.
struct Stage {
    served: TempDir,
    here: TempDir,
    server: Running,
}

impl Stage {
    fn new(args: &[&str]) -> Self {
        let (served, here) = (folder(), folder());
        noise_file(served.path(), "file", LEN);
        let server = Self::serve(&served, "0", args);
        Self { served, here, server }
    }

    fn serve(served: &TempDir, port: &str, args: &[&str]) -> Running {
        let mut command = underpass();
        command.args(["serve", "-p", port, "-q"]).args(args).arg(served.path());
        Running::listening(command)
    }

    fn url(&self) -> String {
        format!("{}file", self.server.address)
    }

    /// `get` under a program, or as it is.
    fn get(&self, under: &[&str], args: &[&str]) -> Running {
        let mut command = rig::under(under);
        command.arg("get").args(args).arg(self.url()).current_dir(self.here.path());
        command.env_remove("http_proxy").env_remove("all_proxy").env_remove("ALL_PROXY");
        Running::start(command)
    }

    /// `get` under strace with these options.
    fn traced(&self, strace: &[&str], args: &[&str]) -> Finished {
        let log = self.log();
        let mut under = vec!["strace", "-f", "-qq", "-o", log.to_str().unwrap()];
        under.extend(strace);
        self.get(&under, args).finish()
    }

    /// Outside both folders.
    fn log(&self) -> PathBuf {
        let name = format!("{}.trace", self.here.path().file_name().unwrap().display());
        self.here.path().with_file_name(name)
    }

    fn part(&self) -> PathBuf {
        self.here.path().join("file.part")
    }

    /// Bytes that the journal knows of.
    fn noted(&self) -> u64 {
        let text = fs::read_to_string(self.here.path().join("file.part.journal"));
        let text = text.unwrap_or_default();
        let pieces = text.lines().skip(1).filter_map(|line| line.split(' ').nth(1));
        pieces.map(|done| done.parse::<u64>().unwrap()).sum()
    }

    #[track_caller]
    fn has_it(&self) {
        assert!(fs::read(self.here.path().join("file")).unwrap() == noise(LEN), "other bytes");
        assert_eq!(names(self.here.path()), ["file"]);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // There may be none.
        let _ = fs::remove_file(self.log());
    }
}

#[test]
fn no_byte_of_a_body_enters_the_program() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    for connections in ["1", "4"] {
        let fetched = stage.traced(&["-e", "trace=desc,network"], &["-fj", connections, "--json"]);
        assert_eq!(fetched.succeeded().receipt()["user_space_bytes"], 0);
        stage.has_it();
        let trace = fs::read_to_string(stage.log()).unwrap();
        let calls = trace.lines().filter_map(|line| {
            let call = line.split_once(' ')?.1.trim_start();
            let bytes: i64 = call.rsplit(" = ").next()?.split(' ').next()?.parse().ok()?;
            // A call has two lines if another thread made one meanwhile.
            let name = match call.strip_prefix("<... ") {
                Some(resumed) => resumed.split(' ').next()?,
                None => call.split('(').next()?,
            };
            Some((name.to_owned(), bytes))
        });
        let calls: Vec<_> = calls.filter(|(_, bytes)| *bytes > 0).collect();
        let sum = |names: &[&str]| -> i64 {
            let chosen = calls.iter().filter(|(name, _)| names.contains(&name.as_str()));
            chosen.map(|(_, bytes)| bytes).sum()
        };
        // Into the pipe, and out of it.
        assert_eq!(sum(&["splice"]), 2 * LEN as i64);
        // The heads of a few dozen answers.
        let received = sum(&["recvfrom", "recvmsg", "readv"]);
        assert!(received < 32 << 10, "{received} bytes were received");
        // A line of the journal at a time, and files of the system that the start reads.
        let written = calls.iter().filter(|(name, _)| name.contains("write"));
        assert!(written.clone().all(|(_, bytes)| *bytes <= 4096), "{written:?}");
        assert!(sum(&["read", "pread64"]) < 64 << 10);
    }
}

#[test]
fn a_declined_splice_continues_at_the_same_byte_by_another_mechanism() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    for errno in ["EINVAL", "EPERM"] {
        // Odd calls fill the pipe, even ones empty it.
        for when in [1, 2, 9, 10] {
            let inject = format!("inject=splice:error={errno}:when={when}");
            let strace = ["-e", "trace=splice", "-e", inject.as_str()];
            let receipt = stage.traced(&strace, &["-f", "--json"]).succeeded().receipt();
            stage.has_it();
            let declined = &receipt["declined"][0];
            assert_eq!(
                (&declined["mechanism"], &declined["errno"]),
                (&"splice".into(), &errno.into())
            );
            let copied = bytes_by(&receipt, "read_write");
            assert!(copied > 0, "{receipt}");
            assert_eq!(copied + bytes_by(&receipt, "splice"), LEN as u64);
        }
    }
}

#[test]
fn interruptions_are_no_failures() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    let storm = "inject=splice,poll,ppoll,recvfrom:error=EINTR:when=1+2";
    stage.traced(&["-e", "trace=splice,poll,ppoll,recvfrom", "-e", storm], &["-q"]).succeeded();
    stage.has_it();
}

#[test]
fn a_full_disk_is_one_clear_line_and_received_bytes_are_kept() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&["--rate", "80M"]);
    for (errno, words) in [("ENOSPC", "No space"), ("EDQUOT", "uota"), ("EIO", "nput/output")] {
        // The first bytes are in the file by then.
        let inject = format!("inject=splice:error={errno}:when=60+2");
        let strace = ["-e", "trace=splice", "-e", inject.as_str()];
        let failed = stage.traced(&strace, &[]).failed(1, &[words, "file.part keeps"]);
        assert_eq!(failed.stderr.lines().filter(|line| line.contains(words)).count(), 1);
        assert!(stage.noted() > 0);
        stage.get(&[], &["-q"]).finish().succeeded();
        stage.has_it();
        fs::remove_file(stage.here.path().join("file")).unwrap();
    }
}

#[test]
fn a_file_that_could_not_be_synced_on_the_way_gets_no_name() {
    if !has("strace") {
        return;
    }
    // Slow enough that the file is synced before its end. The kernel reports such an error once.
    let stage = Stage::new(&[]);
    let strace = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"];
    for args in [&["-j1", "--sync", "--rate", "5M"][..], &["-j3", "--rate", "5M"]] {
        stage.traced(&strace, args).failed(1, &["Input/output"]);
        assert_eq!(names(stage.here.path()), [""; 0], "nothing of it is known to be there");
    }
}

#[test]
fn a_part_that_could_not_be_written_back_is_fetched_again() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&["--rate", "32M"]);
    let running = stage.get(&[], &["-j1"]);
    until("a part has arrived", || stage.noted() > 1 << 20);
    running.signal("INT");
    running.finish().failed(1, &["the same command resumes"]);
    let strace = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"];
    let got = stage.traced(&strace, &["-j1", "--json"]).succeeded();
    assert_eq!(got.receipt()["bytes"], LEN, "the kernel may have dropped any of it");
    stage.has_it();
}

#[test]
fn a_private_file_is_not_replaced_by_one_that_all_may_read() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    fs::create_dir(stage.served.path().join("folder")).unwrap();
    fs::write(stage.served.path().join("folder/small"), "public").unwrap();
    let url = format!("{}folder/", stage.server.address);
    for (error, words) in [
        ("EIO", ["get", "-f", "-o", "folder/small", &format!("{url}small")]),
        ("EPERM", ["get", "-f", "-o", "folder/small", &format!("{url}small")]),
        ("EIO", ["get", "-r", "-f", "--quiet", &url]),
        ("EPERM", ["get", "-r", "-f", "--quiet", &url]),
    ] {
        let folder = stage.here.path().join("folder");
        let target = folder.join("small");
        fs::create_dir(&folder).unwrap();
        fs::write(&target, "private").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        let inject = format!("inject=fchmod:error={error}");
        let mut command = traced(&stage.log(), &["-e", "trace=fchmod", "-e", &inject]);
        command.args(words).current_dir(stage.here.path());
        Running::start(command).finish().failed(1, &[]);
        assert_eq!(fs::read(&target).unwrap(), b"private", "{words:?}");
        assert_eq!(fs::metadata(&target).unwrap().mode() & 0o777, 0o600, "{words:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_link_that_cannot_get_its_time_arrives() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    fs::create_dir(stage.served.path().join("folder")).unwrap();
    symlink("target", stage.served.path().join("folder/link")).unwrap();
    let url = format!("{}folder/", stage.server.address);
    for error in ["ENOSYS", "EOPNOTSUPP"] {
        let inject = format!("inject=utimensat:error={error}");
        let mut command = traced(&stage.log(), &["-e", "trace=utimensat", "-e", &inject]);
        command.args(["get", "-r", "--quiet", &url]).current_dir(stage.here.path());
        let words = ["not all permissions or times: "];
        let failed = Running::start(command).finish().failed(1, &words);
        assert!(!failed.stderr.contains("os error"), "{}", failed.stderr);
        let link = stage.here.path().join("folder/link");
        assert_eq!(fs::read_link(link).unwrap(), PathBuf::from("target"), "{error}");
        fs::remove_dir_all(stage.here.path().join("folder")).unwrap();
    }
}

#[test]
fn a_log_of_an_earlier_run_that_cannot_be_used_is_an_error() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    let log = stage.here.path().join(".underpass-get.log");
    fs::write(&log, "another program wrote this\n").unwrap();
    let inject = ["-e", "trace=pwrite64", "-e", "inject=pwrite64:error=EIO:when=1"];
    let mut command = traced(&stage.log(), &inject);
    command.args(["get", "-r", "--update", &stage.server.address]).current_dir(stage.here.path());
    Running::start(command).finish().failed(1, &["opening", ".underpass-get.log", "Input/output"]);
    assert!(log.exists());
}

#[test]
fn a_folder_that_could_not_be_synced_on_the_way_is_not_taken_for_complete() {
    if !has("strace") {
        return;
    }
    // Slow enough that the file system is synced before the end.
    let stage = Stage::new(&[]);
    let at = |name: &str| stage.here.path().join(name);
    fs::create_dir(at("old")).unwrap();
    let how = |name: &str| if name == "listed" { "--update" } else { "-f" };
    let fetching = ["new", "old", "listed"].map(|name| {
        let strace = ["-e", "trace=syncfs", "-e", "inject=syncfs:error=EIO:when=1"];
        let mut command = traced(&stage.log().with_extension(name), &strace);
        command.args(["get", "-r", how(name), "--rate", "3500K", &stage.server.address, "-d"]);
        command.arg(at(name));
        (name, Running::start(command))
    });
    for (name, running) in fetching {
        running.finish().failed(1, &["syncing", "Input/output"]);
        fs::remove_file(stage.log().with_extension(name)).unwrap();
    }
    assert!(!at("new").exists());
    // Within the same boot and mount: a file with its size and time may be without its bytes.
    for name in ["new", "old", "listed"] {
        for folder in [at(name), at("new.part")] {
            if let Ok(file) = fs::File::options().write(true).open(folder.join("file")) {
                let time = file.metadata().unwrap().modified().unwrap();
                file.set_len(0).and_then(|()| file.set_len(LEN as u64)).unwrap();
                file.set_modified(time).unwrap();
            }
        }
        let mut command = underpass();
        command.args(["get", "-r", how(name), &stage.server.address, "-d"]).arg(at(name));
        Running::start(command).finish().succeeded();
        assert!(fs::read(at(name).join("file")).unwrap() == noise(LEN), "{name}: other bytes");
    }
}

#[test]
fn a_disk_that_is_too_small_is_detected_before_the_first_byte() {
    let stage = Stage::new(&[]);
    let script = "mkdir small && mount -t tmpfs -o size=8M none small && cd small && exec \"$@\"";
    let probe = Command::new("unshare").args(["-rm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return rig::skip("no namespace of mounts can be had here");
    }
    let under = ["unshare", "-rm", "sh", "-c", script, "sh"];
    stage.get(&under, &[]).finish().failed(1, &["it needs 41943040 bytes", "free some space"]);
    assert_eq!(names(&stage.here.path().join("small")), [""; 0]);
}

#[test]
fn a_read_only_folder_is_reported() {
    let stage = Stage::new(&[]);
    let script = "mkdir ro && mount -t tmpfs -o ro none ro && cd ro && exec \"$@\"";
    let probe = Command::new("unshare").args(["-rm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return rig::skip("no namespace of mounts can be had here");
    }
    let under = ["unshare", "-rm", "sh", "-c", script, "sh"];
    stage.get(&under, &[]).finish().failed(1, &["Read-only", "choose another folder"]);
}

#[test]
fn a_killed_process_loses_a_mebibyte_at_the_most() {
    // Slow enough to be incomplete after five rounds on a busy machine.
    let stage = Stage::new(&["--rate", "10M"]);
    for (round, connections) in ["1", "1", "3", "3", "1"].into_iter().enumerate() {
        let mut running = stage.get(&[], &["-q", "-j", connections]);
        let before = stage.noted();
        until("more has arrived", || stage.noted() > before + (1 << 20));
        // At a random moment.
        std::thread::sleep(Duration::from_millis(7 * round as u64));
        running.child.kill().unwrap();
        running.finish();
        assert!(stage.noted() < LEN as u64, "too fast");
        if round < 2 {
            // What one connection has written ends where the file ends.
            let written = fs::metadata(stage.part()).unwrap().len();
            assert!(written - stage.noted() <= 1 << 20, "{written}");
        }
    }
    let noted = stage.noted();
    let receipt = stage.get(&[], &["--json"]).finish().succeeded().receipt();
    stage.has_it();
    assert_eq!(receipt["resumed_at"], noted);
    assert_eq!(receipt["bytes"].as_u64().unwrap(), LEN as u64 - noted);
}

#[test]
fn a_part_stays_while_its_journal_cannot_be_read() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    stage.traced(&["-e", "inject=splice:error=EIO:when=9"], &["-q"]).failed(1, &["splice"]);
    let noted = stage.noted();
    assert!(noted > 0);
    for inject in ["openat:error=EIO:when=1", "openat:error=EMFILE:when=2", "read:error=EIO:when=1"]
    {
        let inject = format!("inject={inject}");
        let journal = stage.here.path().join("file.part.journal");
        let strace = ["-P", "file.part.journal", "-P", journal.to_str().unwrap(), "-e", &inject];
        let refused = stage.traced(&strace, &["-q"]);
        refused.failed(1, &["reading the journal of"]);
        assert_eq!(stage.noted(), noted, "{inject}");
    }
    let resumed = stage.get(&[], &["--json"]).finish();
    assert_eq!(resumed.succeeded().receipt()["resumed_at"], noted);
    stage.has_it();
}

#[test]
fn a_first_journal_that_cannot_be_looked_up_is_not_called_foreign() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    for when in 1..=4 {
        let inject = format!("inject=openat:error=EMFILE:when={when}");
        let strace = ["-P", "file.part.journal", "-e", &inject];
        let tried = stage.traced(&strace, &["-fq"]);
        assert!(!tried.stderr.contains("in the way"), "{inject}: {}", tried.stderr);
    }
    stage.get(&[], &["-fq"]).finish().succeeded();
    stage.has_it();
}

#[test]
fn a_server_that_was_killed_and_comes_back_is_resumed() {
    let mut stage = Stage::new(&["--rate", "20M"]);
    let getting = stage.get(&[], &["--json"]);
    until("a part has arrived", || stage.noted() > 2 << 20);
    stage.server.child.kill().unwrap();
    let address = stage.server.address.clone();
    let port = address.trim_matches(|c: char| !c.is_ascii_digit()).rsplit(':').next().unwrap();
    stage.server = Stage::serve(&stage.served, port, &[]);
    let got = getting.finish().succeeded();
    assert!(got.stderr.contains("trying again"), "{}", got.stderr);
    // Nothing was moved twice.
    assert_eq!(got.receipt()["bytes"], LEN);
    stage.has_it();
}

#[test]
fn a_part_with_all_bytes_of_an_older_version_starts_over() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    let (target, source) = (stage.here.path().join("file"), stage.served.path().join("file"));
    fs::write(&source, vec![1; 2 << 20]).unwrap();
    let killed = "inject=renameat2:error=EIO:signal=KILL";
    stage.traced(&["-e", killed], &[]);
    assert_eq!(names(stage.here.path()), ["file.part", "file.part.journal"]);
    fs::write(&source, vec![2; 2 << 20]).unwrap();
    stage.get(&[], &["--update"]).finish().succeeded();
    assert!(fs::read(&target).unwrap() == vec![2; 2 << 20], "the older version");
    assert_eq!(names(stage.here.path()), ["file"]);
}

#[test]
fn a_signal_ends_it_at_once_and_prints_how_to_resume() {
    let stage = Stage::new(&["--rate", "8M"]);
    for (signal, connections) in [("INT", "1"), ("TERM", "3")] {
        let running = stage.get(&[], &["-j", connections]);
        let before = stage.noted();
        until("a part has arrived", || stage.noted() > before + (1 << 20));
        running.signal(signal);
        running.finish().failed(1, &["file.part keeps", "the same command resumes"]);
        assert_eq!(names(stage.here.path()), ["file.part", "file.part.journal"]);
    }
}

#[test]
fn both_times_of_a_file_are_set_for_file_systems_that_ignore_one_alone() {
    if !has("strace") {
        return;
    }
    let stage = Stage::new(&[]);
    let folder = stage.server.address.clone();
    for words in [&["get", &stage.url()][..], &["get", "-r", "-d", "new", &folder]] {
        let mut command = traced(&stage.log(), &["-e", "trace=utimensat"]);
        command.args(words).current_dir(stage.here.path());
        Running::start(command).finish().succeeded();
        let log = fs::read_to_string(stage.log()).unwrap();
        assert!(log.contains("utimensat(") && !log.contains("UTIME_OMIT"), "{words:?}: {log}");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let stage = Stage::new(&[]);
    let script = "\"$@\" -o - | head -c 1000 | wc -c";
    let counted = stage.get(&["sh", "-c", script, "sh"], &[]).finish();
    assert_eq!(counted.text().trim(), "1000");
    assert!(!counted.stderr.contains("trying again"), "{}", counted.stderr);
}
