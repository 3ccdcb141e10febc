//! Follows a program and all processes that it starts, from stop to stop.

use std::collections::HashMap;
use std::io;
use std::time::Instant;

use rustix::io::Errno;

use crate::trace::{self, CallBoundary, Program, Resume, TraceEvent, TraceStart, TraceStop};

use super::calls;
use super::counts::Counts;
use super::interrupts::ProcessTree;
use super::observer::SyscallObserver;
use super::process::{TracedProcess, TracedThread, family};

/// The end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(i32),
}

/// Follows a program.
#[derive(Debug)]
pub(super) struct Tracer<'f> {
    program: Program,
    /// Whether threads stop at all their calls, because there is no filter.
    pub(super) every: bool,
    /// When the program began; earlier events do not count.
    began: Option<Instant>,
    threads: HashMap<u32, TracedThread>,
    processes: HashMap<u32, TracedProcess>,
    family: &'f ProcessTree,
    /// The observer that records the calls.
    pub(super) observer: SyscallObserver,
    /// The number of processes so far.
    pub(super) process_count: u64,
    /// The number of threads so far.
    pub(super) thread_count: u64,
    /// The number of stops.
    pub(super) stops: u64,
    /// The counts of all system calls, if every call is traced.
    pub(super) counts: Counts,
}

impl<'f> Tracer<'f> {
    /// Creates a tracer for a program that has not begun.
    pub(super) fn new(program: Program, every: bool, family: &'f ProcessTree) -> Self {
        Self {
            program,
            every,
            began: None,
            threads: HashMap::new(),
            processes: HashMap::new(),
            family,
            observer: SyscallObserver::default(),
            process_count: 0,
            thread_count: 0,
            stops: 0,
            counts: Counts::default(),
        }
    }

    /// Traces the program until it and all processes that it has started have ended. Returns how
    /// it ended, or why it could not be started, and how many seconds it took.
    pub(super) fn follow(&mut self) -> io::Result<(Result<Ending, Errno>, f64)> {
        let mut ending = Ok(Ending::Code(0));
        while let Some((tid, event)) = trace::wait()? {
            let ended = match event {
                TraceEvent::Exited(code) => Ending::Code(code),
                TraceEvent::Killed(signal) => Ending::Signal(signal),
                TraceEvent::Stopped(stop) => {
                    self.stopped(tid, stop)?;
                    continue;
                }
            };
            if tid == self.program.pid() {
                ending = Ok(ended);
            }
            self.ended(tid);
        }
        if self.began.is_none()
            && let TraceStart::Failed(errno) = self.program.started()
        {
            ending = Err(errno);
        }
        self.observer.ledger.count_rest();
        Ok((ending, self.began.map_or(0.0, |began| began.elapsed().as_secs_f64())))
    }

    fn ended(&mut self, tid: u32) {
        self.threads.remove(&tid);
        self.counts.forget(tid);
        // The first thread of a process is reported as ended when it is the last.
        if self.processes.remove(&tid).is_some() {
            self.family.left(tid);
        }
    }

    fn stopped(&mut self, tid: u32, stop: TraceStop) -> io::Result<()> {
        self.stops += 1;
        self.meet(tid);
        let mut signal = 0;
        let mut how = None;
        match stop {
            TraceStop::Exec => self.became_another(tid),
            TraceStop::Filter => self.called(tid, true)?,
            TraceStop::Call => self.called(tid, self.every)?,
            TraceStop::Signal(number) => {
                signal = number;
                if let Some(thread) = self.threads.get(&tid) {
                    self.family.received(thread.process, number);
                }
            }
            TraceStop::Halt => how = Some(Resume::Listen),
            TraceStop::Attached | TraceStop::Birth => {}
        }
        let how = how.unwrap_or_else(|| self.way_on(tid));
        match trace::resume(tid, how, signal) {
            // The thread was killed meanwhile, which wait(2) will report.
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => Ok(()),
            done => done,
        }
    }

    /// Returns how a thread is resumed after a stop.
    fn way_on(&self, tid: u32) -> Resume {
        let is_in_call = self.threads.get(&tid).is_some_and(|thread| thread.pending.is_some());
        let is_close = self.every || self.observer.is_confined;
        if is_in_call || (is_close && self.began.is_some()) { Resume::ToCall } else { Resume::Free }
    }

    /// Records a thread, unless it is known.
    fn meet(&mut self, tid: u32) {
        if self.threads.contains_key(&tid) {
            return;
        }
        // The thread was killed meanwhile; its process no longer matters.
        let Some((process, parent)) = family(tid) else { return };
        self.threads.insert(tid, TracedThread { process, pending: None });
        self.thread_count += 1;
        if !self.processes.contains_key(&process) {
            // Its memory begins as a copy of the parent's, or as the same after a vfork.
            let mappings = self.processes.get(&parent).map(|parent| parent.mappings.clone());
            let mappings = mappings.unwrap_or_default();
            self.processes.insert(process, TracedProcess { mappings });
            self.process_count += 1;
            self.family.came(process, parent);
        }
    }

    /// Handles an execve(2) of a process: its memory is new, and its other threads are gone.
    fn became_another(&mut self, tid: u32) {
        if tid == self.program.pid() && self.began.is_none() {
            self.began = Some(Instant::now());
            self.every |= self.program.started() == TraceStart::Unfiltered;
        }
        self.threads.retain(|known, thread| *known == tid || thread.process != tid);
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.pending = None;
        }
        self.processes.insert(tid, TracedProcess::default());
    }

    /// Handles a thread that begins or ends a system call. With `counts_foreign` no other stop
    /// reports a call of another architecture: our filter stops at all that are not refused.
    fn called(&mut self, tid: u32, counts_foreign: bool) -> io::Result<()> {
        let call = match trace::call(tid) {
            Err(error) if Errno::from_io_error(&error) == Some(Errno::SRCH) => return Ok(()),
            call => call?,
        };
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(()) };
        let Some(process) = self.processes.get_mut(&thread.process) else { return Ok(()) };
        if self.began.is_none() {
            return Ok(());
        }
        if self.every {
            self.counts.see(tid, &call);
        }
        match call {
            CallBoundary::Begins { number, arguments } => {
                let Some(number) = number else {
                    self.observer.ledger.hidden.foreign_calls += u64::from(counts_foreign);
                    return Ok(());
                };
                let known = calls::find(number, &arguments);
                thread.pending = known.and_then(|known| {
                    self.observer.begins(tid, &mut process.mappings, known, arguments)
                });
            }
            CallBoundary::Ends(result) => {
                if let Some(pending) = thread.pending.take() {
                    self.observer.ends(tid, &mut process.mappings, pending, result);
                }
            }
        }
        Ok(())
    }
}
