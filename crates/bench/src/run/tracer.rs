//! Counts the system calls of a process and all of its threads with strace, in separate passes: a
//! traced process is many times slower.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::files::RunFolder;
use super::process::{Running, poll_until, process};
use super::survey::find;
use crate::error::{BenchError, Result};
use crate::record::{Counted, NamedCall, Role};

/// Counts the calls of processes, one of each role, into files in the folder of the run.
#[derive(Clone, Debug)]
pub(crate) struct CallTracer {
    strace: PathBuf,
    folder: PathBuf,
}

impl CallTracer {
    /// Counts into files in `folder`; `None` if strace is not installed.
    pub(super) fn within(folder: &RunFolder) -> Option<Self> {
        Some(Self { strace: find("strace")?, folder: folder.path().to_owned() })
    }

    /// Returns what a process of this role called, which was counted and has ended.
    pub(crate) fn tally(&self, role: Role) -> Result<Counted> {
        Ok(Counted::new(role, read(&self.summary(role))?))
    }

    /// Counts from now on what a server calls, in all of its processes.
    pub(crate) fn attach(&self, processes: impl Fn() -> Vec<Pid>) -> Result<TracerGuard> {
        loop {
            let found = processes();
            let watch = self.attach_to(&found, &self.summary(Role::Server))?;
            // A process started in between would be missed; children of traced processes are not.
            if processes() == found {
                return Ok(watch);
            }
        }
    }

    /// Returns the file in which the calls of a role are.
    fn summary(&self, role: Role) -> PathBuf {
        self.folder.join(format!("{}.calls", role.name()))
    }

    /// Watches running processes, with all of their threads, from when this returns.
    fn attach_to(&self, processes: &[Pid], file: &Path) -> Result<TracerGuard> {
        let mut command = Command::new(&self.strace);
        command.args(["-f", "-qq", "-c", "-w", "-o"]).arg(file);
        for process in processes {
            command.args(["-p", &process.to_string()]);
        }
        let watch = TracerGuard { running: Running::start(command, None)?, file: file.into() };
        let are_watched = || processes.iter().all(|process| is_watched(*process)).then_some(());
        let failure = || failed("strace is not permitted to trace a server");
        poll_until(MAX_WAIT, are_watched).ok_or_else(failure).map(|()| watch)
    }

    /// Returns the command under strace, which writes a summary of its calls at its end.
    pub(crate) fn watch(&self, command: &Command, role: Role) -> Command {
        // Environment and current folder of the command would be lost.
        debug_assert!(command.get_envs().next().is_none() && command.get_current_dir().is_none());
        let file = self.summary(role);
        let mut watched = Command::new(&self.strace);
        // The program is the child and strace its tracer, so that ending the one ends the other.
        watched.args(["-D", "-f", "-qq", "-c", "-w", "-o"]).arg(file).arg("--");
        watched.arg(command.get_program()).args(command.get_args());
        watched
    }
}

/// Returns the command, counted if there is a tracer.
pub(crate) fn traced(tracer: Option<&CallTracer>, command: Command, role: Role) -> Command {
    match tracer {
        Some(tracer) => tracer.watch(&command, role),
        None => command,
    }
}

/// Returns the summary of a process that has ended; strace may still be writing it.
fn read(file: &Path) -> Result<Vec<NamedCall>> {
    let calls = poll_until(MAX_WAIT, || summary(&fs::read_to_string(file).unwrap_or_default()));
    // A file that cannot be removed is removed with its folder.
    let _ = fs::remove_file(file);
    calls.ok_or_else(|| failed("strace wrote no summary"))
}

/// A watch over running processes. When it is dropped, they continue untraced.
#[derive(Debug)]
pub(crate) struct TracerGuard {
    running: Running,
    file: PathBuf,
}

impl TracerGuard {
    /// Ends the watch and returns the calls since its start; strace writes nothing if there were none.
    pub(crate) fn end(self) -> Result<Vec<NamedCall>> {
        kill_process(self.running.pid(), Signal::INT)
            .map_err(|errno| failed(&errno.to_string()))?;
        self.running.finish(None, &AtomicBool::new(false))?;
        match fs::metadata(&self.file) {
            Ok(found) if found.len() == 0 => Ok(Vec::new()),
            _ => read(&self.file),
        }
    }
}

/// Returns whether every thread of a process is watched; one that has just ended has no status.
fn is_watched(pid: Pid) -> bool {
    let Ok(tasks) = process(pid).and_then(|process| process.tasks()) else { return false };
    tasks.flatten().all(|task| task.status().map_or(true, |status| status.tracerpid != 0))
}

fn failed(why: &str) -> BenchError {
    BenchError::measuring("system calls", why)
}

/// Returns the calls in a summary, those that took longest first; `None` if it is incomplete.
fn summary(text: &str) -> Option<Vec<NamedCall>> {
    let mut calls = Vec::new();
    let mut lines = text.lines().skip_while(|line| !line.starts_with("------"));
    lines.next()?;
    while let Some(line) = lines.next().filter(|line| !line.starts_with("------")) {
        calls.push(call(line)?);
    }
    let last = lines.next()?;
    last.ends_with(" total").then_some(calls)
}

/// Returns a line such as `99.00    1.250000          12    104166         3 sendfile`; the
/// column of errors is blank if there were none.
fn call(line: &str) -> Option<NamedCall> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (calls, errors, name) = match words[..] {
        [_, _, _, calls, name] => (calls, "0", name),
        [_, _, _, calls, errors, name] => (calls, errors, name),
        _ => return None,
    };
    Some(NamedCall {
        name: name.to_owned(),
        calls: calls.parse().ok()?,
        errors: errors.parse().ok()?,
        seconds: words[1].parse().ok()?,
    })
}

/// The longest wait for strace's summary of a process that has ended.
const MAX_WAIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 98.50    1.250000          12    104166         3 sendfile
  1.50    0.000100         100         1           execve
------ ----------- ----------- --------- --------- ----------------
100.00    1.250100          12    104167         3 total
";

    #[test]
    fn a_process_that_sleeps_has_no_calls() {
        let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
        let Some(tracer) = CallTracer::within(&folder) else { return };
        let mut sleeping = Command::new("sleep").arg("100").spawn().unwrap();
        let pid = Pid::from_child(&sleeping);
        let stat = || process(pid).ok()?.stat().ok();
        let is_asleep = || stat().filter(|it| it.comm == "sleep" && it.state == 'S').map(drop);
        poll_until(MAX_WAIT, is_asleep).unwrap();
        let calls = tracer.attach(|| vec![pid]).and_then(TracerGuard::end);
        sleeping.kill().unwrap();
        sleeping.wait().unwrap();
        assert!(calls.unwrap().is_empty());
    }

    #[test]
    fn a_summary_is_read_by_call_and_one_that_is_not_whole_not_at_all() {
        let calls = summary(SUMMARY).unwrap();
        let found: Vec<_> = calls
            .iter()
            .map(|call| (call.name.as_str(), call.calls, call.errors, call.seconds))
            .collect();
        assert_eq!(found, [("sendfile", 104_166, 3, 1.25), ("execve", 1, 0, 0.0001)]);
        for end in 0..SUMMARY.len() - 1 {
            assert_eq!(summary(&SUMMARY[..end]), None, "{end}");
        }
    }
}
