//! Passes on signals that are meant for the program but reach its tracer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};
use underpass_engine::wait::lock;
use underpass_sys::{ReceivedSignal, SignalSet};

/// The traced processes.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTree(Arc<Mutex<Family>>);

#[derive(Debug, Default)]
struct Family {
    /// The processes, by number, with their parents.
    parents: BTreeMap<u32, u32>,
    /// The signals that were passed to a process and have not reached it yet.
    passed: Vec<(u32, Signal)>,
    /// The signals that have reached a process, and when, of the last moments.
    received: Vec<(u32, i32, Instant)>,
}

impl ProcessTree {
    /// Records that a process has begun.
    pub(super) fn came(&self, process: u32, parent: u32) {
        lock(&self.0).parents.insert(process, parent);
    }

    /// Records that a signal has reached a process.
    pub(super) fn received(&self, process: u32, number: i32) {
        let mut family = lock(&self.0);
        let is_it = |(pid, signal): &(u32, Signal)| (*pid, signal.as_raw()) == (process, number);
        let was_passed = family.passed.iter().any(is_it);
        family.passed.retain(|passed| !is_it(passed));
        family.received.retain(|(.., at)| at.elapsed() < SAME_SIGNAL);
        // Other processes may send any number of other signals, which are not remembered.
        let may_be_passed = PASSED_ON.contains(&number) && !was_passed;
        if may_be_passed && family.received.len() < MAX_RECEIVED {
            family.received.push((process, number, Instant::now()));
        }
    }

    /// Records that a process has ended. Signals that were passed to it and had not reached it are
    /// passed to its children.
    pub(super) fn left(&self, process: u32) {
        let mut family = lock(&self.0);
        family.parents.remove(&process);
        let missed: Vec<Signal> = family
            .passed
            .extract_if(.., |(pid, _)| *pid == process)
            .map(|(_, signal)| signal)
            .collect();
        let heirs = family.parents.iter().filter(|(_, parent)| **parent == process);
        for heir in heirs.map(|(pid, _)| *pid).collect::<Vec<_>>() {
            for signal in &missed {
                family.pass(heir, *signal, false);
            }
        }
    }
}

impl Family {
    /// Returns the processes whose parents are not traced: the program itself and, after its end,
    /// those that it has left, such as a daemon.
    fn eldest(&self) -> Vec<u32> {
        self.parents
            .iter()
            .filter(|(_, parent)| !self.parents.contains_key(parent))
            .map(|(pid, _)| *pid)
            .collect()
    }

    /// Sends a signal, unless its receiver already has it.
    fn pass(&mut self, process: u32, signal: Signal, is_from_kernel: bool) {
        let Some(pid) = pid(process) else { return };
        // The keys of a terminal signal a whole process group, and so do others, such as timeout(1).
        let has_got = |(receiver, number, at): &(u32, i32, Instant)| {
            (*receiver, *number) == (process, signal.as_raw()) && at.elapsed() < SAME_SIGNAL
        };
        if (is_from_kernel || self.received.iter().any(has_got)) && shares_group(process) {
            return;
        }
        self.passed.push((process, signal));
        // The process may have ended.
        let _ = kill_process(pid, signal);
    }
}

/// Redirects signals that would end this process to the family from now on.
///
/// Call this after the program was started, so that it inherits the original signal dispositions.
pub(super) fn pass_on(family: &ProcessTree) {
    let signals = SignalSet::new(&PASSED_ON);
    signals.block();
    let family = family.clone();
    // This thread waits for signals until the process ends. Without it they stay pending.
    let _ = thread::Builder::new().spawn(move || {
        while let Ok(ReceivedSignal { number, is_from_kernel }) = signals.wait() {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            // An alarm of alarm(2) comes from the kernel, too, but to this process alone.
            let is_from_kernel = is_from_kernel && number != libc::SIGALRM;
            let mut eldest = lock(&family.0).eldest().into_iter();
            if !is_from_kernel && eldest.any(shares_group) {
                // A signal to the whole group reaches the program without our help.
                thread::sleep(SAME_SIGNAL / 4);
            }
            let mut family = lock(&family.0);
            for pid in family.eldest() {
                family.pass(pid, signal, is_from_kernel);
            }
        }
    });
}

/// Returns whether a process is in the process group of this one.
fn shares_group(process: u32) -> bool {
    pid(process).is_some_and(|pid| getpgid(Some(pid)) == Ok(getpgrp()))
}

fn pid(process: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process).ok()?)
}

/// The signals that are passed on: they would end this process, and are meant for the program.
const PASSED_ON: [libc::c_int; 7] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
];

/// Signals of one number within this time are one signal, which was sent to a whole process group.
const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// The maximum number of received signals that are remembered.
const MAX_RECEIVED: usize = 1000;

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn signals_go_to_the_oldest_remaining_processes() {
        let family = ProcessTree::default();
        for (pid, parent) in [(10, 1), (11, 10), (12, 11), (13, 10)] {
            family.came(pid, parent);
        }
        assert_eq!(lock(&family.0).eldest(), [10]);
        family.left(10);
        assert_eq!(lock(&family.0).eldest(), [11, 13]);
        family.left(11);
        assert_eq!(lock(&family.0).eldest(), [12, 13]);
    }

    #[test]
    fn a_signal_that_its_receiver_misses_goes_to_those_that_it_leaves() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let family = ProcessTree::default();
        // This process ends before its signal reaches it; the one before was reached.
        let parent = 0;
        family.came(parent, 1);
        family.came(child.id(), parent);
        lock(&family.0).passed.extend([(parent, Signal::KILL), (parent, Signal::TERM)]);
        family.received(parent, Signal::KILL.as_raw());
        family.left(parent);
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert_eq!(lock(&family.0).passed, [(child.id(), Signal::TERM)]);
        family.left(child.id());
        assert!(lock(&family.0).passed.is_empty());
    }
}
