//! The measured processes: each is started on one core, awaited without disturbing it, and its
//! cost is read before it is reaped.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::context::Context;
use crate::error::{BenchError, Result, UsageError, WithPath};
use crate::record::ProcessCost;
use procfs::ProcResult;
use procfs::process::{Process, Status};
use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{
    CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity, sched_setaffinity,
};
use underpass_engine::wait::{Limits, WaitError};

/// The two cores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// For the sender, the server or the copier.
    pub(crate) first: usize,
    /// For the receiver or client; the same core if there is no other.
    pub(crate) second: usize,
    /// The number of cores to choose from.
    pub(crate) count: usize,
}

impl Cores {
    /// Returns the first two cores on which this thread may run.
    pub(crate) fn available() -> Self {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        let first = cores.next().unwrap_or(0);
        let second = cores.next().unwrap_or(first);
        Self { first, second, count: (allowed.count() as usize).max(1) }
    }

    /// Returns the cores for a server and its clients, in the other order: the machine's own work,
    /// interrupts above all, is done on the first core.
    pub(crate) fn of_server() -> Self {
        let Self { first, second, count } = Self::available();
        Self { first: second, second: first, count }
    }
}

/// Keeps the calling thread on one core. If the kernel forbids that, figures are only less steady.
pub(crate) fn stay_on(core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    let _ = sched_setaffinity(None, &only);
}

/// Does something on a thread that stays on a core.
pub(crate) fn on_core<T: Send>(core: usize, work: impl FnOnce() -> T + Send) -> T {
    Placement::from(Some(core)).within(|| Ok(work())).expect("a core alone cannot fail")
}

/// A program with its arguments, as it is run and as records have it.
#[derive(Clone, Debug)]
pub(crate) struct CommandWords(Vec<OsString>);

impl CommandWords {
    /// Splits a line at its spaces.
    pub(crate) fn new(line: &str) -> Self {
        Self(line.split(' ').map(Into::into).collect())
    }

    pub(crate) fn and(mut self, word: impl Into<OsString>) -> Self {
        self.0.push(word.into());
        self
    }

    /// Returns the command; `underpass` is the program that the run was started with.
    pub(crate) fn command(&self, context: &Context<'_>) -> Command {
        self.given_to(match &self.0[0] {
            ours if ours == "underpass" => context.program(),
            program => Command::new(program),
        })
    }

    /// Returns a command that stands for the program, with the arguments.
    pub(crate) fn given_to(&self, mut command: Command) -> Command {
        command.args(&self.0[1..]);
        command
    }
}

impl fmt::Display for CommandWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<_> = self.0.iter().map(|word| word.to_string_lossy()).collect();
        match words.as_slice() {
            // The script of a shell says what is run.
            [shell, _, script, ..] if shell == "sh" => f.write_str(script),
            words => f.write_str(&words.join(" ")),
        }
    }
}

/// The place where a process runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placement<'a> {
    /// The only core; `None` leaves that to the kernel.
    pub(crate) core: Option<usize>,
    /// The network namespace; `None` for that of this process.
    pub(crate) network: Option<&'a File>,
}

impl From<Option<usize>> for Placement<'_> {
    fn from(core: Option<usize>) -> Self {
        Self { core, network: None }
    }
}

impl Placement<'_> {
    /// Runs `work` there, on a separate thread, as a return may not be permitted.
    pub(crate) fn within<T: Send>(
        self,
        work: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        std::thread::scope(|scope| {
            let working = scope.spawn(|| self.enter().and_then(|()| work()));
            working.join().expect("what the bench does itself does not panic")
        })
    }

    /// Moves the calling thread there permanently.
    fn enter(self) -> io::Result<()> {
        if let Some(core) = self.core {
            stay_on(core);
        }
        let Some(network) = self.network else { return Ok(()) };
        Ok(move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

/// A process that is being measured. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// Its output on standard error so far.
    stderr: String,
    started: Instant,
}

#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) cost: ProcessCost,
}

impl Running {
    /// Starts a command somewhere, with nothing to read.
    pub(crate) fn start<'a>(command: Command, place: impl Into<Placement<'a>>) -> Result<Self> {
        Self::start_with(command, place, Stdio::null())
    }

    pub(crate) fn start_with<'a>(
        mut command: Command,
        place: impl Into<Placement<'a>>,
        input: Stdio,
    ) -> Result<Self> {
        let program = command.get_program().to_owned();
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = place.into().within(|| Ok((Instant::now(), command.spawn()?)));
        let (started, mut child) = spawned.with_path("starting", program)?;
        let errors = child.stderr.take().map(BufReader::new);
        let errors = errors.expect("standard error is piped");
        Ok(Self { child, errors, stderr: String::new(), started })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Returns the next line that it prints on standard error; empty if it has ended.
    pub(crate) fn next_error_line(&mut self) -> String {
        let before = self.stderr.len();
        // A failure to read is ignored: the process's exit is more informative.
        let _ = self.errors.read_line(&mut self.stderr);
        self.stderr[before..].trim_end().to_owned()
    }

    /// Waits for its end, for at most `limit` if there is a limit, after which it is killed.
    pub(crate) fn finish(
        mut self,
        limit: Option<Duration>,
        cancel: &AtomicBool,
    ) -> Result<Finished> {
        let pid = self.pid();
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            let limits = Limits::since(Instant::now(), limit, Some(cancel));
            if limits.until_ready(&process, PollFlags::IN) == Err(WaitError::TimedOut) {
                let _ = self.child.kill();
                let _ = Limits::default().until_ready(&process, PollFlags::IN);
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
        }
        let wall = self.started.elapsed();
        let cost = cost_of(pid, wall);
        let status = self.child.wait().unwrap_or_else(|_| ExitStatus::from_raw(-1));
        let mut stdout = String::new();
        if let Some(output) = &mut self.child.stdout {
            let _ = output.read_to_string(&mut stdout);
        }
        let _ = self.errors.read_to_string(&mut self.stderr);
        Ok(Finished { status, stdout, stderr: std::mem::take(&mut self.stderr), cost })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process has ended already, or is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Returns itself if the process succeeded, and its failure if not.
    pub(crate) fn succeeded(self, what: impl fmt::Display) -> Result<Self> {
        if self.status.success() { Ok(self) } else { Err(self.failure(what.to_string())) }
    }

    /// Returns the error of a failed process, with the last line that it printed.
    pub(crate) fn failure(&self, what: String) -> BenchError {
        let mut lines = self.stderr.lines().filter(|line| !line.starts_with("listening on"));
        let message = lines.next_back().unwrap_or_default();
        let message = message.strip_prefix("underpass: ").unwrap_or(message);
        if self.status.code() == Some(2) {
            return UsageError::Arguments(message.to_owned()).into();
        }
        let why = match message {
            "" => format!("the process ended with {}", self.status),
            message => message.to_owned(),
        };
        BenchError::Measuring { what, why }
    }
}

/// Runs a command to its end at a place, and collects all of its output. Its cost is not measured.
pub(crate) fn run_to_end<'a>(
    mut command: Command,
    place: impl Into<Placement<'a>>,
) -> Result<Finished> {
    let program = command.get_program().to_owned();
    let output = place.into().within(|| command.stdin(Stdio::null()).output());
    let Output { status, stdout, stderr } = output.with_path("starting", program)?;
    let [stdout, stderr] =
        [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(Finished { status, stdout, stderr, cost: ProcessCost::default() })
}

/// Writes sources into a folder and builds them there; returns why that is not possible.
pub(crate) fn build(
    folder: &Path,
    sources: &[(&str, &str)],
    commands: &[&str],
) -> Result<Option<String>> {
    for (name, text) in sources {
        let path = folder.join(name);
        fs::write(&path, text).with_path("writing", path)?;
    }
    for command in commands {
        let (program, words) = command.split_once(' ').unwrap_or((command, ""));
        let mut command = Command::new(program);
        // Messages must be the same in every locale.
        command.args(words.split(' ')).current_dir(folder).env("LC_ALL", "C");
        let finished = run_to_end(command, None)?;
        if !finished.status.success() {
            let mut lines = finished.stderr.lines();
            let error = lines.find(|line| line.contains("error")).unwrap_or_default();
            return Ok(Some(format!("{program} could not build it: {error}")));
        }
    }
    Ok(None)
}

/// Makes up to three attempts, since another program may take the chosen port first.
pub(crate) fn retry<T>(cancel: &AtomicBool, attempt: impl Fn() -> Result<T>) -> Result<T> {
    let mut outcome = attempt();
    for _ in 0..2 {
        if outcome.is_err() && !cancel.load(Ordering::Relaxed) {
            outcome = attempt();
        }
    }
    outcome
}

/// Tries something every few milliseconds until it gives a result, for at most `limit`.
pub(crate) fn poll_until<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    loop {
        let found = attempt();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the cost of a process that has ended, which the kernel keeps until it is reaped.
fn cost_of(pid: Pid, wall: Duration) -> ProcessCost {
    let process = process(pid).ok();
    let status = process.as_ref().and_then(|process| process.status().ok());
    let io = process.as_ref().and_then(|process| process.io().ok());
    let switches = |count: fn(&Status) -> Option<u64>| status.as_ref().and_then(count).unwrap_or(0);
    ProcessCost {
        wall_s: wall.as_secs_f64(),
        cpu_s: processor_time(pid).as_secs_f64(),
        voluntary_switches: switches(|status| status.voluntary_ctxt_switches),
        involuntary_switches: switches(|status| status.nonvoluntary_ctxt_switches),
        storage_read_bytes: io.map_or(0, |io| io.read_bytes),
        storage_written_bytes: io
            .map_or(0, |io| io.write_bytes.saturating_sub(io.cancelled_write_bytes)),
    }
}

/// Returns a process in procfs.
pub(crate) fn process(pid: Pid) -> ProcResult<Process> {
    Process::new(pid.as_raw_nonzero().get())
}

/// Returns the processor time of a process with its ended threads; zero if the process is gone.
pub(crate) fn processor_time(pid: Pid) -> Duration {
    let pid = pid.as_raw_nonzero().get().unsigned_abs();
    underpass_sys::processor_time(pid).unwrap_or_default()
}

/// Returns the processor seconds of the first thread of this process, exact to the nanosecond.
pub(crate) fn own_seconds() -> f64 {
    let schedule = Process::myself().and_then(|process| process.schedstat());
    schedule.map_or(0.0, |schedule| schedule.sum_exec_runtime as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Running::start(command, Some(Cores::available().first)).unwrap()
    }

    #[test]
    fn the_cost_of_a_process_is_read_before_it_is_gone() {
        let script = "head -c 30000000 /dev/urandom >/dev/null; echo done; echo no >&2; exit 3";
        let finished = shell(script).finish(None, &AtomicBool::new(false)).unwrap();
        assert_eq!((finished.status.code(), finished.stdout.as_str()), (Some(3), "done\n"));
        assert!(finished.cost.wall_s > 0.0 && finished.cost.cpu_s > 0.0, "{finished:?}");
        assert!(finished.failure("it".to_owned()).to_string().ends_with("no"));
    }

    #[test]
    fn a_process_that_does_not_end_is_killed_in_time_and_at_a_signal() {
        let limit = Some(Duration::from_millis(10));
        let finished = shell("exec sleep 60").finish(limit, &AtomicBool::new(false)).unwrap();
        assert_eq!(finished.status.code(), None);
        let failure = shell("exec sleep 60").finish(None, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(failure, BenchError::Interrupted));
    }
}
