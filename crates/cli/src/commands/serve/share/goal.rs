//! Counts completely fetched or received files, and ends the server when there are enough.

use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use underpass_engine::wait::lock;
use underpass_observe::access_log::AccessEntry;
use underpass_observe::downloads::PartialDownloads;
use underpass_server::{Control, Server};

use super::receipt::{Goal, ShareReceipt};
use crate::output;

/// The share, and the transfers of it so far.
#[derive(Debug)]
pub(crate) struct ShareGoal {
    goal: Goal,
    /// The number of downloads or files after which it ends.
    times: Option<u64>,
    /// The time after which it ends.
    time: Option<Duration>,
    state: Mutex<GoalState>,
}

#[derive(Debug)]
struct GoalState {
    started: Instant,
    receipt: ShareReceipt,
    partial: PartialDownloads,
}

impl ShareGoal {
    pub(super) fn new(goal: Goal, times: Option<u64>, time: Option<Duration>) -> Self {
        let (receipt, partial) = Default::default();
        let state = Mutex::new(GoalState { started: Instant::now(), receipt, partial });
        Self { goal, times, time, state }
    }

    /// Makes the server report its responses, and ends it when the time is over.
    ///
    /// # Errors
    ///
    /// The error of the system if there can be no thread.
    pub(crate) fn watch(
        self: &Arc<Self>,
        server: &mut Server,
        control: &Control,
    ) -> io::Result<Timer> {
        let (share, ends) = (Arc::clone(self), control.clone());
        server.observe(move |entry| {
            if share.is_enough_with(entry) {
                ends.drain();
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        Timer::start(self.time, control.clone())
    }

    /// Prints what is not obvious about the share.
    pub(crate) fn announce(&self) {
        if self.goal == Goal::Folder {
            output::note(
                "the whole folder is downloaded as an archive: add ?archive=zip or ?archive=tar to the address",
            );
        }
    }

    /// Counts a response, and returns whether the share has reached its goal.
    fn is_enough_with(&self, entry: &AccessEntry) -> bool {
        let mut state = lock(&self.state);
        state.receipt.add(entry);
        let is_archive = entry.part.as_ref().map(|part| part.is_archive);
        let is_one = match self.goal {
            Goal::Uploads => entry.has_stored,
            goal => is_archive == Some(goal == Goal::Folder) && state.partial.completes(entry),
        };
        if !is_one {
            return false;
        }
        let (bytes, did) = match self.goal {
            Goal::Uploads => (entry.received, "uploaded a file"),
            Goal::File | Goal::Folder => (entry.body_len, "downloaded all of it"),
        };
        let peer = &entry.peer;
        let bytes = BinaryBytes(bytes);
        output::error_line(&format!(
            "{peer} {did} (the last {bytes} in {:.2} s)",
            entry.duration.as_secs_f64()
        ));
        let count = match self.goal {
            Goal::Uploads => &mut state.receipt.uploads,
            Goal::File | Goal::Folder => &mut state.receipt.downloads,
        };
        *count += 1;
        self.times.is_some_and(|times| *count >= times)
    }

    /// Returns the receipt so far.
    pub(super) fn receipt(&self) -> ShareReceipt {
        let state = lock(&self.state);
        let mut receipt = state.receipt.clone();
        receipt.elapsed_s = state.started.elapsed().as_secs_f64();
        receipt
    }
}

/// Ends the server after a time.
#[derive(Debug)]
pub(crate) struct Timer {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    fn start(time: Option<Duration>, control: Control) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let start = |time| {
            thread::Builder::new().spawn(move || {
                if stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                    control.drain();
                }
            })
        };
        Ok(Self { stop, thread: time.map(start).transpose()? })
    }

    /// Ends the timer.
    pub(crate) fn end(self) {
        drop(self.stop);
        // The timer thread cannot fail.
        let _ = self.thread.map(JoinHandle::join);
    }
}
