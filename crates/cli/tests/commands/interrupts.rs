//! The first SIGINT, SIGTERM or SIGHUP ends each command wherever it waits, and nothing is left
//! behind.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::{Running, folder, has, names, traced, underpass, until};

/// Whether a process has a handler for SIGTERM, which is set after those of the others.
fn catches_interrupts(pid: u32) -> bool {
    let caught = status(pid, "SigCgt:");
    caught.is_some_and(|mask| u64::from_str_radix(&mask, 16).unwrap() >> 14 & 1 != 0)
}

/// The value of a field of proc_pid_status(5).
fn status(pid: u32, field: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned())
}

/// Whether every thread of a process sleeps.
fn waits(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let states: Vec<_> = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
        .collect();
    states.iter().all(|stat| stat.rsplit(") ").next().unwrap().starts_with('S'))
}

/// Interrupts a command that waits, and expects it to end at once with one line.
#[track_caller]
fn interrupt(mut command: Command, signal: &str, place: &Path, left: &[&str]) {
    command.current_dir(place).stdout(Stdio::piped()).stderr(Stdio::piped());
    let words = format!("{command:?}");
    let running = Running::start(command);
    let pid = running.child.id();
    until("it catches interrupts and waits", || catches_interrupts(pid) && waits(pid));
    running.signal(signal);
    let began = Instant::now();
    let mut running = running;
    while running.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "{signal} was swallowed by {words}");
        std::thread::sleep(Duration::from_millis(5));
    }
    let finished = running.finish().failed(1, &["cancelled"]);
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
    assert_eq!(names(place), left, "{words}");
}

#[test]
fn a_signal_that_arrives_while_its_handler_is_set_is_not_lost() {
    let folder = folder();
    let (trace, to) = (folder.path().join("trace"), folder.path().join("to"));
    let endless = |options: &[&str]| {
        let mut command = traced(&trace, options);
        command.args(["cp", "/dev/zero"]).arg(&to);
        command
    };
    if !has("strace") {
        return;
    }
    // Which call of rt_sigaction(2) sets the handler.
    let mut command = traced(&trace, &["-e", "trace=rt_sigaction"]);
    command.args(["cp", "/dev/null"]).arg(&to);
    Running::start(command).finish().succeeded();
    until("its trace", || fs::read_to_string(&trace).is_ok_and(|text| text.contains("SIGTERM, {")));
    let text = fs::read_to_string(&trace).unwrap();
    let calls = text.lines().filter(|line| line.contains("rt_sigaction("));
    let at = 1 + calls.take_while(|line| !line.contains("(SIGINT, {")).count();
    let inject = format!("inject=rt_sigaction:signal=SIGINT:when={at}");
    let running = Running::start(endless(&["-e", "trace=rt_sigaction", "-e", &inject]));
    running.finish().failed(1, &["cancelled"]);
}

fn words(words: &[&str]) -> Command {
    let mut command = underpass();
    command.args(words);
    command
}

#[test]
fn a_signal_that_was_ignored_stays_so() {
    let folder = folder();
    for signal in ["INT", "HUP"] {
        let mut command = Command::new("sh");
        let script = format!("trap '' {signal}; exec \"$0\" cp /dev/zero to");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_underpass")]);
        command.current_dir(&folder).stderr(Stdio::piped());
        let mut running = Running::start(command);
        until("it catches others", || catches_interrupts(running.child.id()));
        running.signal(signal);
        std::thread::sleep(Duration::from_millis(200));
        assert!(running.child.try_wait().unwrap().is_none(), "{signal}");
        running.signal("TERM");
        running.finish().failed(1, &["interrupted"]);
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn signals_that_come_together_end_a_command_in_order() {
    let folder = folder();
    let mut command = words(&["cp", "/dev/zero", "to"]);
    command.current_dir(&folder).stderr(Stdio::piped());
    let running = Running::start(command);
    until("it catches them", || catches_interrupts(running.child.id()));
    // Like timeout(1), which signals a process and then its group.
    for signal in ["STOP", "TERM", "INT", "HUP", "CONT"] {
        running.signal(signal);
    }
    let finished = running.finish();
    // The second message is printed if the signals arrive before the first byte.
    let is_told = ["interrupted", "cancelled"].iter().any(|word| finished.stderr.contains(word));
    assert!(finished.code() == Some(1) && is_told, "{}", finished.stderr);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_second_signal_ends_a_command_at_once() {
    let folder = folder();
    if !has("strace") {
        return;
    }
    let at = |name: &str| folder.path().join(name);
    fs::write(at("from"), "bytes").unwrap();
    // Like a read of a file whose server does not respond.
    let delay = "inject=pread64,preadv2,read:delay_enter=600000000";
    let source = at("from").to_str().unwrap().to_owned();
    let options = ["-P", &source, "-e", "trace=pread64,preadv2,read", "-e", delay];
    let mut command = traced(&at("trace"), &options);
    command.args(["cp", "--mechanism", "read_write"]).args([at("from"), at("to")]);
    let running = Running::start(command);
    until("it reads", || fs::read_to_string(at("trace")).is_ok_and(|text| text.contains("read")));
    running.signal("TERM");
    std::thread::sleep(Duration::from_millis(400));
    running.signal("INT");
    let pid = running.child.id();
    until("it has ended", || status(pid, "State:").is_some_and(|state| state.starts_with('Z')));
    // strace keeps a thread that it delays.
    let tracer = status(pid, "TracerPid:").unwrap();
    assert!(Command::new("kill").args(["-s", "KILL", &tracer]).status().unwrap().success());
    running.finish().failed(1, &[]);
    assert!(!at("to").exists());
}

#[test]
fn a_fifo_without_another_end_does_not_block() {
    let place = folder();
    assert!(Command::new("mkfifo").arg(place.path().join("fifo")).status().unwrap().success());
    fs::write(place.path().join("file"), "bytes").unwrap();
    // Nothing accepts here: the commands must wait for the FIFO, not for the address.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let url = format!("http://{address}/name");
    let folder_url = format!("http://{address}/");
    let cases: &[&[&str]] = &[
        &["cp", "fifo", "new"],
        &["cp", "file", "fifo"],
        &["cp", "fifo", "-"],
        &["cp", "--in-place", "fifo", "new"],
        &["put", "fifo", &url],
        &["put", "fifo", "file", &folder_url],
        &["get", "-o", "fifo", &url],
        &["send", "fifo", &address],
        &["recv", &address, "fifo"],
        &["recv", "--append", &address, "fifo"],
    ];
    for (index, case) in cases.iter().enumerate() {
        let signal = ["INT", "TERM", "HUP"][index % 3];
        interrupt(words(case), signal, place.path(), &["fifo", "file"]);
    }
}

#[test]
fn a_fifo_without_a_writer_as_list_does_not_block() {
    let place = folder();
    assert!(Command::new("mkfifo").arg(place.path().join("fifo")).status().unwrap().success());
    fs::write(place.path().join("file"), "bytes").unwrap();
    // A list may come from a FIFO, as `<(PROGRAM)` of a shell is one.
    let cases: &[&[&str]] = &[
        &["get", "-i", "fifo"],
        &["get", "--check", "fifo", "http://localhost:1/x"],
        &["get", "--netrc-file", "fifo", "http://localhost:1/x"],
        &["get", "--cacert", "fifo", "https://localhost:1/x"],
        &["put", "--netrc-file", "fifo", "file", "http://localhost:1/x"],
        &["put", "--cacert", "fifo", "file", "https://localhost:1/x"],
        &["send", "--tls", "--cacert", "fifo", "file", "localhost:1"],
        &["fill", "--manifest", "fifo", "--node", "http://localhost:1/"],
        &["fill", "--manifest", "-", "--node", "http://localhost:1/"],
        &["bench", "show", "fifo"],
    ];
    for (index, case) in cases.iter().enumerate() {
        let signal = if index % 2 == 0 { "INT" } else { "TERM" };
        let mut command = words(case);
        command.current_dir(place.path()).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(command);
        let pid = running.child.id();
        let since = Cell::new(Instant::now());
        until("it waits for its list", || {
            if !waits(pid) {
                since.set(Instant::now());
            }
            since.get().elapsed() > Duration::from_millis(200)
        });
        running.signal(signal);
        let began = Instant::now();
        while running.child.try_wait().unwrap().is_none() {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{signal} was swallowed by {case:?}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!running.finish().status.success(), "{case:?}");
        assert_eq!(names(place.path()), ["fifo", "file"], "{case:?}");
    }
}

#[test]
fn a_peer_that_never_answers_does_not_block_others() {
    let place = folder();
    fs::write(place.path().join("file"), "bytes").unwrap();
    // The listener accepts no connection, so its backlog of one fills up.
    let path = place.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let here = ["file", "socket"];
    let address = "unix:socket";
    interrupt(words(&["send", "file", address]), "INT", place.path(), &here);
    interrupt(words(&["recv", address, "new"]), "TERM", place.path(), &here);
    // This one accepts and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", silent.local_addr().unwrap());
    for case in [&["get", &url][..], &["get", "-r", &url], &["put", "file", &url]] {
        interrupt(words(case), "INT", place.path(), &here);
    }
    interrupt(words(&["send", "file", "--listen", "127.0.0.1:0"]), "INT", place.path(), &here);
    interrupt(words(&["recv", "--listen", "127.0.0.1:0", "new"]), "TERM", place.path(), &here);
}

#[test]
fn a_named_fifo_as_standard_input_is_read_after_its_writer_has_gone() {
    let place = folder();
    let fifo = place.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opened for reading and writing, so that opening does not block and the content stays.
    let both = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let reader = OpenOptions::new().read(true).open(&fifo).unwrap();
    (&both).write_all(b"bytes").unwrap();
    drop(both);
    let mut command = words(&["cp", "-", "copy"]);
    command.current_dir(place.path()).stdin(reader);
    Running::start(command).finish().succeeded();
    assert_eq!(fs::read(place.path().join("copy")).unwrap(), b"bytes");
}
