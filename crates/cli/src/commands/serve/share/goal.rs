//! Counts the files that were fetched or received whole, and ends the server when there are enough.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use serde::Serialize;
use underpass_engine::Tally;
use underpass_engine::wait::lock;
use underpass_receipt::MechanismReceipt;
use underpass_server::access_log::{AccessEntry, BodyPart};
use underpass_server::{Control, Server};

use crate::failure::{Failure, Result};
use crate::output::{self, counted};

/// The purpose of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Clients download a file.
    File,
    /// Clients download a folder, as an archive.
    Folder,
    /// Clients upload files.
    Uploads,
}

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
    /// The parts that each client has got, by its address.
    clients: HashMap<String, Coverage>,
}

/// The receipt of a share.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ShareReceipt {
    /// The reason why the share failed; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// Whole downloads.
    downloads: u64,
    /// Files that were received whole.
    uploads: u64,
    /// Bytes of bodies in both directions, those of broken transfers too.
    bytes: u64,
    elapsed_s: f64,
    mechanisms: Vec<MechanismReceipt>,
    calls: u64,
    user_space_bytes: u64,
}

/// The parts of a file that one client has got.
#[derive(Debug, Default)]
struct Coverage {
    whole: u64,
    /// The number of the version of which the parts are.
    version: u64,
    /// Begin and end of each part in bytes, in order and without overlaps.
    parts: Vec<(u64, u64)>,
}

impl Coverage {
    /// Adds a part, and returns whether nothing is missing any more.
    fn add(&mut self, part: &BodyPart, got: u64) -> bool {
        let &BodyPart { start, whole, version, .. } = part;
        if (self.whole, self.version) != (whole, version) || self.parts.len() >= MAX_PARTS {
            *self = Self { whole, version, parts: Vec::new() };
        }
        self.parts.push((start, start + got));
        self.parts.sort_unstable();
        self.parts = self.parts.iter().fold(Vec::new(), |mut merged, &(from, to)| {
            match merged.last_mut() {
                Some((_, end)) if from <= *end => *end = to.max(*end),
                _ => merged.push((from, to)),
            }
            merged
        });
        self.parts == [(0, whole)]
    }
}

impl ShareGoal {
    pub(super) fn new(goal: Goal, times: Option<u64>, time: Option<Duration>) -> Self {
        let (receipt, clients) = Default::default();
        let state = Mutex::new(GoalState { started: Instant::now(), receipt, clients });
        Self { goal, times, time, state }
    }

    /// Has the server report its responses, and ends it in time.
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

    /// Prints the facts about the share that are not obvious.
    pub(crate) fn announce(&self) {
        if self.goal == Goal::Folder {
            output::note(
                "the whole folder is downloaded as an archive: add ?archive=zip or ?archive=tar to the address",
            );
        }
    }

    /// Counts a response, and returns whether nothing more is to come.
    fn is_enough_with(&self, entry: &AccessEntry) -> bool {
        let mut state = lock(&self.state);
        state.receipt.add(entry);
        let is_one = match self.goal {
            Goal::Uploads => entry.has_stored,
            Goal::File => state.is_whole(entry, false),
            Goal::Folder => state.is_whole(entry, true),
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
        ShareReceipt { elapsed_s: state.started.elapsed().as_secs_f64(), ..state.receipt.clone() }
    }
}

impl GoalState {
    /// Returns whether a client has got everything with this response.
    fn is_whole(&mut self, entry: &AccessEntry, is_archive: bool) -> bool {
        let Some(part) = entry.part.filter(|part| part.is_archive == is_archive) else {
            return false;
        };
        if entry.verb != "GET" || !matches!(entry.status, 200 | 206) {
            return false;
        }
        // Of a response that broke off, the bytes that the client's kernel has acknowledged.
        let got = if entry.is_complete { entry.body_len } else { entry.acknowledged };
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&entry.peer) {
            self.clients.clear();
        }
        let coverage = self.clients.entry(entry.peer.clone()).or_default();
        let is_whole = coverage.add(&part, got);
        if is_whole {
            self.clients.remove(&entry.peer);
        }
        is_whole && (entry.is_complete || got > 0)
    }
}

impl ShareReceipt {
    /// Returns whether nothing was transferred.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0 && self.downloads + self.uploads == 0
    }

    fn add(&mut self, entry: &AccessEntry) {
        self.bytes += entry.acknowledged + entry.received;
        self.calls += entry.calls;
        self.user_space_bytes += entry.user_space_bytes;
        for &(mechanism, Tally { bytes, calls, .. }) in &entry.mechanisms {
            let name = mechanism.name();
            match self.mechanisms.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.bytes += bytes;
                    known.calls += calls;
                }
                None => self.mechanisms.push(MechanismReceipt {
                    mechanism: None,
                    name: name.to_owned(),
                    bytes,
                    calls,
                }),
            }
        }
    }

    /// Prints the receipt of a share with this goal.
    pub(super) fn print(&self, as_json: bool, goal: Goal) {
        if as_json {
            return output::json_line(self);
        }
        let names: Vec<_> = self.mechanisms.iter().map(|each| each.name.as_str()).collect();
        let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) };
        let count = match goal {
            Goal::Uploads => counted(self.uploads, "file received", "files received"),
            Goal::File | Goal::Folder => {
                counted(self.downloads, "complete download", "complete downloads")
            }
        };
        output::error_line(&format!(
            "{count}: {}{by}, {} bytes in user space",
            BinaryBytes(self.bytes),
            self.user_space_bytes
        ));
    }

    /// Fails unless the share was fetched or received as often as requested.
    pub(super) fn verdict(&self, times: Option<u64>) -> Result<()> {
        match self.downloads + self.uploads {
            count if count >= times.unwrap_or(1) => Ok(()),
            0 => Err(Failure::line("the share ended before a transfer was complete")),
            count => Err(Failure::line(format!(
                "the share ended after {count} of {} transfers",
                times.unwrap_or(1)
            ))),
        }
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

/// Clients of whose parts the server knows; of more, all begin again.
const MAX_CLIENTS: usize = 1000;

/// Parts of a file that are remembered of a client; of more, it begins again.
const MAX_PARTS: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_a_whole() {
        let mut coverage = Coverage::default();
        let mut add = |(whole, version), from, to| {
            let part = BodyPart { start: from, whole, version, is_archive: false };
            coverage.add(&part, to - from)
        };
        assert!(!add((10, 1), 0, 4));
        assert!(!add((10, 1), 6, 10));
        assert!(!add((10, 1), 7, 9));
        assert!(add((10, 1), 3, 6));
        // Another size is another file, and another version of the same size too.
        assert!(!add((11, 1), 4, 11));
        assert!(!add((11, 2), 0, 4));
        assert!(add((11, 2), 4, 11));
        assert!(add((0, 3), 0, 0));
    }
}
