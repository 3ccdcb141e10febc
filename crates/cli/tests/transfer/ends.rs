//! Ends of streams: a receiver never treats a part as the whole, whenever the sender was killed,
//! and does not require of other programs what only `send` does.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{
    Running, folder, has, names, noise, noise_file, piped, skip, traced, underpass, until,
};
use rustix::net::{SendFlags, send};
use tempfile::TempDir;

const LEN: usize = 5 * (1 << 20) + 4321;

/// A folder with a source, and a target that must not be lost.
struct Place {
    folder: TempDir,
    source: PathBuf,
    target: PathBuf,
    unix: String,
}

impl Place {
    fn new(len: usize) -> Self {
        let folder = folder();
        let source = noise_file(folder.path(), "source", len);
        let target = folder.path().join("target");
        fs::write(&target, "precious").unwrap();
        let unix = format!("unix:{}", folder.path().join("socket").display());
        Self { folder, source, target, unix }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn receiver(&self, address: &str) -> Running {
        let mut command = underpass();
        command.args(["recv", "-f", "--listen", address]).arg(&self.target);
        Running::listening(command)
    }

    fn send(&self, command: Command, address: &str) -> Running {
        let mut command = command;
        command.arg("send").arg(&self.source).arg(address);
        Running::start(command)
    }

    fn has_lost_nothing(&self) {
        assert_eq!(fs::read(&self.target).unwrap(), b"precious");
        assert_eq!(names(self.folder.path()), ["source", "target"]);
    }
}

/// Long enough for what another process does at once.
fn wait_a_moment() {
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn a_sender_that_ends_before_it_is_accepted_is_no_success() {
    for (len, signal) in [(LEN, "TERM"), (LEN, "KILL"), (0, "KILL")] {
        let place = Place::new(len);
        let receiver = place.receiver(&place.unix);
        receiver.signal("STOP");
        let sender = place.send(underpass(), &place.unix);
        wait_a_moment();
        sender.signal(signal);
        assert_ne!(sender.finish().status.code(), Some(0));
        receiver.signal("CONT");
        receiver.finish().failed(1, &["receiving from", "reset"]);
        place.has_lost_nothing();
    }
}

#[test]
fn a_listening_sender_that_ends_before_it_is_checked_is_no_success() {
    if !has("strace") {
        return skip("strace is missing");
    }
    let place = Place::new(LEN);
    let mut command = underpass();
    command.arg("send").arg(&place.source).args(["--listen", &place.unix]);
    let sender = Running::listening(command);
    let mut command = traced(
        Path::new("/dev/null"),
        &["-e", "trace=connect", "-e", "inject=connect:delay_exit=1500000"],
    );
    command.args(["recv", "-f", &place.unix]).arg(&place.target);
    let receiver = Running::start(command);
    // The address goes when it has accepted.
    until("the connection", || !place.socket().exists());
    wait_a_moment();
    sender.signal("KILL");
    drop(sender);
    receiver.finish().failed(1, &["reset"]);
    place.has_lost_nothing();
}

/// The receiver may not see which program a sender of another user runs, and another build of it may be
/// the sender.
#[test]
fn a_sender_from_another_file_that_breaks_off_is_no_success() {
    let place = Place::new(0);
    let program = folder();
    let copy = program.path().join("underpass");
    fs::copy(env!("CARGO_BIN_EXE_underpass"), &copy).unwrap();
    let receiver = place.receiver(&place.unix);
    let mut command = Command::new(copy);
    command.args(["send", "-", &place.unix]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = Running::start(command);
    sender.child.stdin.as_mut().unwrap().write_all(&noise(100_000)).unwrap();
    wait_a_moment();
    sender.signal("KILL");
    receiver.finish().failed(1, &["target", "reset", "100,000 bytes"]);
    place.has_lost_nothing();
}

#[test]
fn an_empty_file_waits_for_its_receiver() {
    let place = Place::new(0);
    let receiver = place.receiver(&place.unix);
    receiver.signal("STOP");
    let sender = place.send(underpass(), &place.unix);
    std::thread::sleep(Duration::from_millis(1500));
    receiver.signal("CONT");
    sender.finish().succeeded();
    receiver.finish().succeeded();
    assert!(fs::read(&place.target).unwrap().is_empty());
}

#[test]
fn other_programs_send_over_a_unix_socket() {
    for (program, args) in [("nc", &["-N", "-U"][..]), ("socat", &["-u", "STDIN"])] {
        if !has(program) {
            continue;
        }
        // One that has ended before it is accepted has sent everything, too.
        for (len, is_late) in [(LEN, false), (1000, true), (0, true)] {
            let place = Place::new(len);
            let receiver = place.receiver(&place.unix);
            let socket = place.socket().display().to_string();
            let to = if program == "nc" { socket } else { format!("UNIX-CONNECT:{socket}") };
            if is_late {
                receiver.signal("STOP");
            }
            let input = fs::File::open(&place.source).unwrap();
            let mut sender = Command::new(program).args(args).arg(to).stdin(input).spawn().unwrap();
            if is_late {
                wait_a_moment();
                let _ = sender.kill();
                receiver.signal("CONT");
            }
            receiver.finish().succeeded();
            sender.wait().unwrap();
            assert!(fs::read(&place.target).unwrap() == noise(len), "{program} {len}");
        }
    }
}

#[test]
fn other_programs_receive_over_a_unix_socket() {
    for (program, args) in [("nc", &["-l", "-U"][..]), ("socat", &["-u"])] {
        if !has(program) {
            continue;
        }
        for len in [LEN, 0] {
            let place = Place::new(len);
            let socket = place.socket().display().to_string();
            let mut command = piped(program);
            match program {
                "nc" => command.args(args).arg(socket),
                _ => command.args(args).arg(format!("UNIX-LISTEN:{socket}")).arg("STDOUT"),
            };
            let receiver = Running::start(command);
            until("the socket", || place.socket().exists());
            wait_a_moment();
            place.send(underpass(), &place.unix).finish().succeeded();
            assert!(receiver.finish().stdout == noise(len), "{program} {len}");
        }
    }
}

#[test]
fn a_second_receiver_at_the_same_socket_leaves_the_first_alone() {
    let place = Place::new(LEN);
    let receiver = place.receiver(&place.unix);
    let other = place.folder.path().join("other");
    let args = ["recv", "--listen", &place.unix, other.to_str().unwrap()];
    crate::rig::run(args).failed(1, &["socket", "in use"]);
    place.send(underpass(), &place.unix).finish().succeeded();
    receiver.finish().succeeded();
    assert!(fs::read(&place.target).unwrap() == noise(LEN));
}

#[test]
fn a_sender_that_ends_while_it_connects_is_no_success_over_tcp() {
    if !has("strace") {
        return skip("strace is missing");
    }
    for (call, delay, signal) in [
        ("connect", "delay_exit", "TERM"),
        ("connect", "delay_exit", "KILL"),
        ("setsockopt", "delay_enter", "KILL"),
    ] {
        let place = Place::new(LEN);
        let receiver = place.receiver("127.0.0.1:0");
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{delay}=2000000"));
        let log = folder();
        let log = log.path().join("log");
        let options = ["-e", &trace, "-e", &inject];
        let sender = place.send(traced(&log, &options), &receiver.address);
        // Long enough for a connection, and not for what follows it.
        std::thread::sleep(Duration::from_millis(1200));
        sender.signal(signal);
        drop(sender);
        wait_a_moment();
        // It has failed, or has no connection and waits for one.
        receiver.signal("TERM");
        receiver.finish().failed(1, &[]);
        place.has_lost_nothing();
    }
}

#[test]
fn an_open_file_is_written_to_and_not_replaced() {
    for option in ["--force", "--append"] {
        let place = Place::new(1000);
        let script = r#"exec 7>>"$3" && echo first >&7 &&
            "$0" recv "$1" --listen "$2" /dev/fd/7 && echo last >&7"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_underpass"), option, &place.unix]);
        command.arg(&place.target).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let receiver = Running::listening(command);
        place.send(underpass(), &place.unix).finish().succeeded();
        receiver.finish().succeeded();
        let expected = [&b"preciousfirst\n"[..], &noise(1000), b"last\n"].concat();
        assert!(fs::read(&place.target).unwrap() == expected, "{option}");
    }
}

#[test]
fn bytes_after_an_urgent_one_are_received() {
    let place = Place::new(0);
    let receiver = place.receiver("127.0.0.1:0");
    let mut sender = TcpStream::connect(&receiver.address).unwrap();
    let bytes = noise(LEN);
    sender.write_all(&bytes[..LEN / 2]).unwrap();
    send(&sender, b"!", SendFlags::OOB).unwrap();
    sender.write_all(&bytes[LEN / 2..]).unwrap();
    drop(sender);
    receiver.finish().succeeded();
    assert!(fs::read(&place.target).unwrap() == bytes);
}
