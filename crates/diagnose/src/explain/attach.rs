//! Counts the system calls of programs that already run.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::counts::{CallCount, Counts};
use super::error::ExplainError;
use crate::trace::{self, Resume, TraceEvent, TraceStop};

/// Processes whose system calls are counted by a thread of their own, until this is
/// [`end`](Self::end)ed or dropped.
///
/// A process that ends meanwhile is waited for by that thread: if it is a child of this process,
/// its exit code is lost.
#[derive(Debug)]
pub struct Attached {
    pids: Vec<u32>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<Counts>>>,
}

/// Begins to count the system calls of these processes, with all of their threads and all
/// processes that they start. Every call that begins after this returns is counted.
///
/// # Errors
///
/// [`ExplainError::Refused`] if they may not be traced, or are traced already.
pub fn attach(pids: &[u32]) -> Result<Attached, ExplainError> {
    let (sender, receiver) = mpsc::channel();
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, its_pids) = (Arc::clone(&is_over), pids.to_vec());
    // Only the tracing thread is notified of events.
    let thread = thread::Builder::new()
        .spawn(move || follow(&its_pids, &over, &sender))
        .map_err(ExplainError::Io)?;
    let attached = Attached { pids: pids.to_vec(), is_over, thread: Some(thread) };
    match receiver.recv() {
        Ok(Ok(())) => Ok(attached),
        Ok(Err(error)) => Err(ExplainError::starting(error)),
        Err(_) => Err(ExplainError::Io(io::ErrorKind::BrokenPipe.into())),
    }
}

impl Attached {
    /// Ends the counting and returns the calls by name, those that took longest first. The
    /// processes keep running.
    ///
    /// # Errors
    ///
    /// [`ExplainError::Io`] if the kernel refused something while they were traced.
    pub fn end(mut self) -> Result<Vec<CallCount>, ExplainError> {
        let counts = self.stop().ok_or(io::ErrorKind::Other).map_err(io::Error::from);
        counts.and_then(|counts| counts).map(|counts| counts.by_name()).map_err(ExplainError::Io)
    }

    /// Makes the thread detach from the processes, and waits for it; returns `None` if it has
    /// panicked.
    fn stop(&mut self) -> Option<io::Result<Counts>> {
        let thread = self.thread.take()?;
        self.is_over.store(true, Ordering::Release);
        // The thread wakes only when a process has an event; this signal causes one and has no
        // other effect, as the thread keeps it from the process.
        for pid in self.pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            let _ = kill_process(pid, Signal::CONT);
        }
        thread.join().ok()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}

/// Traces the processes until it is stopped, or they have ended.
fn follow(
    pids: &[u32],
    is_over: &AtomicBool,
    ready: &Sender<io::Result<()>>,
) -> io::Result<Counts> {
    let mut counts = Counts::default();
    let mut threads = HashSet::new();
    // The answer is not needed if the caller is gone. When this thread ends, the processes that
    // it traces continue untraced.
    if let Err(error) = pids.iter().try_for_each(|pid| seize_all(*pid, &mut threads)) {
        let _ = ready.send(Err(error));
        return Ok(counts);
    }
    let _ = ready.send(Ok(()));
    let mut is_ending = false;
    while let Some((tid, event)) = trace::wait()? {
        let TraceEvent::Stopped(stop) = event else {
            counts.forget(tid);
            threads.remove(&tid);
            continue;
        };
        let over = is_over.load(Ordering::Acquire);
        let signal = match stop {
            TraceStop::Signal(libc::SIGCONT) if over => 0,
            TraceStop::Signal(signal) => signal,
            _ => 0,
        };
        if over {
            threads.remove(&tid);
            if !std::mem::replace(&mut is_ending, true) {
                threads.iter().try_for_each(|tid| unless_gone(trace::interrupt(*tid)))?;
            }
            unless_gone(trace::detach(tid, signal))?;
            if threads.is_empty() {
                break;
            }
            continue;
        }
        threads.insert(tid);
        if stop == TraceStop::Call {
            match trace::call(tid) {
                Ok(call) => counts.see(tid, &call),
                Err(error) => unless_gone(Err(error))?,
            }
        }
        let how = if stop == TraceStop::Halt { Resume::Listen } else { Resume::ToCall };
        unless_gone(trace::resume(tid, how, signal))?;
    }
    Ok(counts)
}

/// Traces all threads of a process. New threads of traced ones are traced automatically; this
/// repeats until no other is left.
fn seize_all(pid: u32, threads: &mut HashSet<u32>) -> io::Result<()> {
    loop {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
        let tids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
        let new: Vec<u32> = tids.filter(|tid| !threads.contains(tid)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for tid in new {
            let seized = trace::seize(tid).and_then(|()| trace::interrupt(tid));
            match seized {
                // It was traced automatically between the listing and the call.
                Err(error) if is(&error, Errno::PERM) && is_ours(tid) => {}
                seized => unless_gone(seized)?,
            }
            threads.insert(tid);
        }
    }
}

/// Returns whether this very thread traces another.
fn is_ours(tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    let tracer = crate::procfs::field(&status, "TracerPid").and_then(|tid| tid.parse().ok());
    tracer == Some(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Ignores the error for a thread that was killed meanwhile: its end will be reported.
fn unless_gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if is(&error, Errno::SRCH) => Ok(()),
        done => done,
    }
}

fn is(error: &io::Error, errno: Errno) -> bool {
    Errno::from_io_error(error) == Some(errno)
}
