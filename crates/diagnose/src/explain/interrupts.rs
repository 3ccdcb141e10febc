//! Signals that are meant for the program but reach its tracer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::trace::Signals;
use rustix::process::{Pid, Signal, getpgid, getpgrp, kill_process};

/// The traced processes, by number, with their parents.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTree(Arc<Mutex<BTreeMap<u32, u32>>>);

impl ProcessTree {
    /// Notes that a process has begun.
    pub(super) fn came(&self, process: u32, parent: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(process, parent);
    }

    /// Notes that a process has ended.
    pub(super) fn left(&self, process: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&process);
    }

    /// Returns the processes whose parents are not traced: the program itself and, after its end,
    /// those that it has left, such as a daemon.
    fn eldest(&self) -> Vec<u32> {
        let family = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        family
            .iter()
            .filter(|(_, parent)| !family.contains_key(parent))
            .map(|(pid, _)| *pid)
            .collect()
    }
}

/// Redirects signals that would end this process to the family from now on.
///
/// Call this after the program was started, so that it inherits the original signal dispositions.
pub(super) fn pass_on(family: &ProcessTree) {
    let signals = Signals::block(&[libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM]);
    let family = family.clone();
    // This thread waits until the process ends.
    thread::spawn(move || {
        while let Ok((number, is_from_terminal)) = signals.wait() {
            let Some(signal) = Signal::from_named_raw(number) else { continue };
            for pid in family.eldest() {
                pass(pid, signal, is_from_terminal);
            }
        }
    });
}

/// Sends a signal, unless its receiver already has it.
fn pass(pid: u32, signal: Signal, is_from_terminal: bool) {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // The keys of a terminal signal a whole process group.
    if is_from_terminal && getpgid(Some(pid)) == Ok(getpgrp()) {
        return;
    }
    // The process may have ended.
    let _ = kill_process(pid, signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_eldest_get_what_the_program_leaves_behind() {
        let family = ProcessTree::default();
        for (pid, parent) in [(10, 1), (11, 10), (12, 11), (13, 10)] {
            family.came(pid, parent);
        }
        assert_eq!(family.eldest(), [10]);
        family.left(10);
        assert_eq!(family.eldest(), [11, 13]);
        family.left(11);
        assert_eq!(family.eldest(), [12, 13]);
    }
}
