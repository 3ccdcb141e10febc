//! Programs that run already: their calls are counted, and then they go on untraced.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Child, Command, Stdio};

use underpass_diagnose::explain::{ExplainError, attach};
use underpass_testkit::wait_until;

/// A program that reads and writes for as long as it lives.
fn busy() -> Child {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn tracer_of(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("TracerPid:")).unwrap();
    line.trim_start_matches("TracerPid:").trim().to_owned()
}

/// Returns the calls of read(2) and its like that a process has made.
fn reads(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse().unwrap()
}

/// Returns the letter of a process' state; `None` if there is no such process.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn calls_of_a_running_program_are_counted_and_it_goes_on() {
    let mut program = busy();
    wait_until("it is at work", || reads(program.id()) > 100);
    let attached = attach(&[program.id()]).unwrap();
    assert_ne!(tracer_of(program.id()), "0");
    let before = reads(program.id());
    wait_until("some of its calls were seen", || reads(program.id()) > before + 20);
    let counts = attached.end().unwrap();
    assert_eq!(tracer_of(program.id()), "0");
    let of = |name: &str| counts.iter().find(|count| count.name == name).unwrap();
    let (reads, writes) = (of("read"), of("write"));
    assert!(reads.calls > 10 && reads.calls.abs_diff(writes.calls) <= 1, "{counts:?}");
    assert!(reads.errors == 0 && reads.seconds > 0.0, "{counts:?}");
    assert_eq!(program.try_wait().unwrap(), None, "it has not survived");
    program.kill().unwrap();
    // The tracer is gone, and has left the end to the parent.
    assert!(!program.wait().unwrap().success());
}

#[test]
fn a_program_that_waits_is_let_go_at_once() {
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    wait_until("it sleeps", || state(program.id()) == Some('S'));
    drop(attach(&[program.id()]).unwrap());
    assert_eq!(tracer_of(program.id()), "0");
    assert_eq!(program.try_wait().unwrap(), None, "it has not survived");
    program.kill().unwrap();
    program.wait().unwrap();
}

#[test]
fn a_program_that_ends_meanwhile_ends_the_counting() {
    let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let attached = attach(&[program.id()]).unwrap();
    drop(program.stdin.take());
    // Asking for its status would take the events that the tracer waits for.
    wait_until("its end", || matches!(state(program.id()), None | Some('Z')));
    let counts = attached.end().unwrap();
    assert!(counts.iter().any(|count| count.name == "exit_group"), "{counts:?}");
    let _ = program.wait();
}

#[test]
fn a_program_that_is_traced_already_is_refused() {
    let mut program = Command::new("sleep").arg("60").spawn().unwrap();
    let first = attach(&[program.id()]).unwrap();
    assert!(matches!(attach(&[program.id()]), Err(ExplainError::Refused { .. })));
    drop(first);
    program.kill().unwrap();
    program.wait().unwrap();
}
