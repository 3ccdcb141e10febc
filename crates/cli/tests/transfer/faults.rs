//! Faults of the kernel, injected into the real program by strace: what it declines is done
//! another way at the same byte, what fails fails visibly. And what strace counts is what the
//! receipt says.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::rig::{
    Finished, Running, bytes_by, folder, has, names, noise, noise_file, piped, receiver, serve,
};

const LEN: usize = 40 << 20;
const STEP: u64 = 2 << 20;

/// A file to send, and folders for received files and for traces.
struct Stage {
    folder: TempDir,
    source: PathBuf,
    target: PathBuf,
    log: PathBuf,
}

impl Stage {
    /// `None`, with a message, if there is no strace.
    fn new() -> Option<Self> {
        has("strace").then(|| {
            let folder = folder();
            let source = noise_file(folder.path(), "source", LEN);
            let (target, log) = (folder.path().join("target"), folder.path().join("log"));
            Self { folder, source, target, log }
        })
    }

    /// `underpass` under strace with these options.
    fn traced(&self, strace: &[&str]) -> Command {
        let mut command = piped("strace");
        command.args(["-f", "-qq", "-o"]).arg(&self.log).args(strace);
        command.arg(env!("CARGO_BIN_EXE_underpass"));
        command
    }

    /// Sends the file under strace.
    fn send(&self, strace: &[&str], args: &[&str], to: &str) -> Finished {
        let mut command = self.traced(strace);
        command.arg("send").args(args).arg(&self.source).arg(to);
        Running::start(command).finish()
    }

    /// What strace said.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

#[test]
fn a_declined_sendfile_continues_at_the_same_byte_by_another_mechanism() {
    let Some(stage) = Stage::new() else { return };
    for errno in ["EINVAL", "ENOSYS", "EOPNOTSUPP", "EPERM"] {
        for when in [1, 2, 17] {
            let receiver = receiver(&["--force"], &stage.target);
            let inject = format!("inject=sendfile:error={errno}:when={when}");
            let strace = ["-e", "trace=sendfile", "-e", &inject];
            let sent = stage.send(&strace, &["--json"], &receiver.address);
            let receipt = sent.succeeded().receipt();
            receiver.finish().succeeded();
            assert!(fs::read(&stage.target).unwrap() == noise(LEN), "{errno} at call {when}");
            let at = bytes_by(&receipt, "sendfile");
            let declined = &receipt["declined"][0];
            assert_eq!(declined["mechanism"], "sendfile");
            assert_eq!(declined["errno"], errno);
            assert_eq!(declined["at"], at);
            assert_eq!(at == 0, when == 1, "{receipt}");
            assert!(at <= (when - 1) * STEP);
            assert_eq!(at + bytes_by(&receipt, "splice"), LEN as u64);
            assert_eq!(receipt["user_space_bytes"], 0);
        }
    }
}

#[test]
fn a_disk_error_fails_both_sides_and_leaves_no_file() {
    let Some(stage) = Stage::new() else { return };
    for when in [1, 2, 17] {
        let receiver = receiver(&[], &stage.target);
        let inject = format!("inject=sendfile:error=EIO:when={when}");
        let strace = ["-e", "trace=sendfile", "-e", &inject];
        let sent = stage.send(&strace, &[], &receiver.address);
        sent.failed(1, &["sending", "source", "sendfile failed", "Input/output error"]);
        receiver.finish().failed(1, &["target", "reset"]);
        assert_eq!(names(stage.folder.path()), ["log", "source"]);
    }
}

#[test]
fn a_receiver_whose_splice_is_declined_in_the_middle_loses_nothing() {
    let Some(stage) = Stage::new() else { return };
    for (errno, when) in [("EINVAL", 1), ("EINVAL", 2), ("EINVAL", 18), ("EPERM", 33)] {
        let inject = format!("inject=splice:error={errno}:when={when}");
        let mut command = stage.traced(&["-e", "trace=splice", "-e", &inject]);
        command.args(["recv", "--listen", "127.0.0.1:0", "--json", "--force"]).arg(&stage.target);
        let receiver = Running::listening(command);
        crate::rig::sender(&[], &stage.source, &receiver.address).finish().succeeded();
        let receipt = receiver.finish().succeeded().receipt();
        assert!(fs::read(&stage.target).unwrap() == noise(LEN), "{errno} at call {when}");
        assert_eq!(receipt["declined"][0]["errno"], errno);
        let spliced = bytes_by(&receipt, "splice");
        let copied = bytes_by(&receipt, "read_write");
        assert_eq!(spliced + copied, LEN as u64);
        assert_eq!(receipt["user_space_bytes"], 2 * copied);
    }
}

#[test]
fn interrupted_system_calls_lose_nothing() {
    let Some(stage) = Stage::new() else { return };
    let receiver = receiver(&[], &stage.target);
    let strace = ["-e", "trace=sendfile,poll", "-e", "inject=sendfile,poll:error=EINTR:when=1+3"];
    stage.send(&strace, &[], &receiver.address).succeeded();
    receiver.finish().succeeded();
    assert!(fs::read(&stage.target).unwrap() == noise(LEN));
}

#[test]
fn send_uses_no_read_or_write_for_the_bytes_of_a_file() {
    let Some(stage) = Stage::new() else { return };
    let receiver = receiver(&[], Path::new("/dev/null"));
    let strace = ["-e", "trace=read,pread64,readv,write,send,sendto,sendmsg,writev,sendfile"];
    let sent = stage.send(&strace, &["--json"], &receiver.address);
    assert_eq!(sent.succeeded().receipt()["user_space_bytes"], 0);
    receiver.finish().succeeded();
    let log = stage.log();
    let moved = returned(&log, &["sendfile"]);
    assert_eq!(moved, LEN as u64);
    // What is left are the loader's reads of libraries and the receipt itself.
    let others = returned(&log, &OTHERS);
    assert!(others < 64 << 10, "{others} bytes");
}

#[test]
fn the_receipt_of_read_write_is_what_strace_counts() {
    let Some(stage) = Stage::new() else { return };
    let receiver = receiver(&[], Path::new("/dev/null"));
    let strace = ["-P", stage.source.to_str().unwrap(), "-e", "trace=read,pread64,readv"];
    let args = ["--json", "--no-zero-copy"];
    let sent = stage.send(&strace, &args, &receiver.address);
    let receipt = sent.succeeded().receipt();
    receiver.finish().succeeded();
    let read = returned(&stage.log(), &["read", "pread64", "readv"]);
    // Each byte is read once and written once.
    assert_eq!(receipt["user_space_bytes"], 2 * read);
    assert_eq!(receipt["bytes"], read);
}

#[test]
fn memory_does_not_grow_with_the_file() {
    let folder = folder();
    let source = folder.path().join("source");
    fs::File::create(&source).unwrap().set_len(3 << 30).unwrap();
    let receiver = receiver(&["--json"], Path::new("/dev/null"));
    let mut sender = crate::rig::sender(&["--json"], &source, &receiver.address);
    // Of which the program itself, not optimized, is most.
    let mut peak_kib = [0, 0];
    while sender.child.try_wait().unwrap().is_none() {
        for (peak, process) in peak_kib.iter_mut().zip([&sender, &receiver]) {
            *peak = process.peak_kib().unwrap_or(*peak);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(sender.finish().succeeded().receipt()["bytes"], 3_u64 << 30);
    assert_eq!(receiver.finish().succeeded().receipt()["bytes"], 3_u64 << 30);
    assert!(peak_kib.iter().all(|kib| (1..48 << 10).contains(kib)), "{peak_kib:?} KiB");
}

#[test]
fn without_more_threads_everything_is_still_done() {
    let Some(stage) = Stage::new() else { return };
    let at = |name: &str| stage.folder.path().join(name).into_os_string().into_string().unwrap();
    fs::create_dir(at("tree")).unwrap();
    for number in 0..50 {
        fs::write(at(&format!("tree/{number}")), number.to_string()).unwrap();
    }
    let (served, up, flat) = (&stage.folder, &["--allow-upload"], &["--no-archive"]);
    let (server, listing) = (serve(served, up), serve(served, flat));
    let url = |server: &Running, path: &str| format!("{}{path}", server.address);
    for words in [
        vec!["cp", "-r", &at("tree"), &at("copied")],
        vec!["get", "-j", "4", "-o", &at("source2"), &url(&server, "source")],
        vec!["get", "-r", "-d", &at("archive"), &url(&server, "tree/")],
        vec!["get", "-r", "-d", &at("listing"), &url(&listing, "tree/")],
        vec![
            "get",
            "-d",
            &at("some"),
            &url(&server, "tree/1"),
            &url(&server, "tree/2"),
            "--parallel=2",
        ],
        vec!["put", "-r", &at("tree"), &url(&server, "put/"), "--create-parents"],
    ] {
        let mut command = stage.traced(&["-e", "inject=clone,clone3:error=EAGAIN"]);
        command.args(&words);
        Running::start(command).finish().succeeded();
    }
    assert_eq!(fs::read(at("source2")).unwrap(), fs::read(&stage.source).unwrap());
    for tree in ["copied", "archive/tree", "listing/tree", "put/tree"] {
        assert_eq!(names(Path::new(&at(tree))), names(Path::new(&at("tree"))), "{tree}");
        assert_eq!(fs::read_to_string(at(&format!("{tree}/49"))).unwrap(), "49");
    }
    assert_eq!(names(Path::new(&at("some"))), ["1", "2"]);
    assert!(stage.log().contains("EAGAIN"));
}

#[test]
fn a_server_that_is_refused_threads_while_it_runs_goes_on() {
    let Some(stage) = Stage::new() else { return };
    for number in 0..8 {
        fs::create_dir(stage.folder.path().join(number.to_string())).unwrap();
    }
    let server = serve(&stage.folder, &["-A", "--workers", "1"]);
    // Long enough for helpers to end that have nothing to do.
    std::thread::sleep(Duration::from_secs(12));
    let mut strace = Command::new("strace")
        .args(["-f", "-e", "inject=clone,clone3:error=EAGAIN", "-o"])
        .arg(&stage.log)
        .args(["-p", &server.child.id().to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut attached = String::new();
    let mut said = BufReader::new(strace.stderr.take().unwrap());
    said.read_line(&mut attached).unwrap();
    assert!(attached.contains("attached"), "{attached}");
    let address = server.host();
    let list = |number: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!("PROPFIND /{number}/ HTTP/1.0\r\nHost: localhost\r\nDepth: 0\r\n");
        write!(stream, "{request}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 207 "), "{answer}");
    };
    // Until two of them want a helper at once.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !stage.log().contains("EAGAIN") && Instant::now() < deadline {
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || list(number));
            }
        });
    }
    assert!(stage.log().contains("EAGAIN"), "no thread was asked for");
    Running::watched(strace, String::new(), said).signal("TERM");
    server.end();
}

const OTHERS: [&str; 8] =
    ["read", "pread64", "readv", "write", "send", "sendto", "sendmsg", "writev"];

/// The sum of what these system calls returned, in a log of strace.
fn returned(log: &str, calls: &[&str]) -> u64 {
    let mut sum = 0;
    for line in log.lines() {
        let line = line.split_once(' ').map_or(line, |(_, rest)| rest.trim_start());
        let name = line.split('(').next().unwrap_or_default();
        let result = line.rsplit(" = ").next().unwrap_or_default();
        let result = result.split_whitespace().next().unwrap_or_default();
        if calls.contains(&name) {
            sum += result.parse::<u64>().unwrap_or(0);
        }
    }
    sum
}
