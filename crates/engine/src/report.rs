//! The report of a transfer, counted by the code that moved the bytes.

use std::time::Duration;

use underpass_sys::Usage;

use crate::integrity::Integrity;
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::step::DeclineReason;

/// Bytes moved, and the system calls that moved them or tried to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Payload bytes delivered to the sink.
    pub bytes: u64,
    /// System calls that moved bytes or tried to.
    pub calls: u64,
}

/// A mechanism or an integrity level that the kernel did not offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decline {
    /// The mechanism or level that was declined.
    pub what: Declined,
    /// The kernel's answer, or why no call was made.
    pub reason: DeclineReason,
    /// The number of bytes in the sink when it was first declined.
    pub at: u64,
    /// The number of times it was declined with the same answer: at most one for each segment.
    pub times: u64,
}

impl Decline {
    /// Returns what the answer means, if known.
    #[must_use]
    pub fn meaning(&self) -> Option<&'static str> {
        match self.what {
            Declined::Mechanism(mechanism) => self.reason.meaning().or_else(|| {
                crate::error::errno_help::errno_help(mechanism.name(), &self.reason.name())
            }),
            Declined::Integrity(level) => Some(level.meaning(self.reason)),
        }
    }
}

/// The subject of a [`Decline`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declined {
    /// The kernel does not move bytes by this mechanism between these two ends.
    Mechanism(Mechanism),
    /// The file cannot be guarded by this integrity level.
    Integrity(Integrity),
}

impl Declined {
    /// Returns the name used in flags and receipts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mechanism(mechanism) => mechanism.name(),
            Self::Integrity(level) => level.name(),
        }
    }
}

/// The report of a transfer.
///
/// It is returned by a transfer that succeeded and carried by the error of one that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub(crate) memory: Tally,
    pub(crate) mechanisms: [Tally; Mechanism::ALL.len()],
    pub(crate) declined: Vec<Decline>,
    pub(crate) user_space_bytes: u64,
    pub(crate) elapsed: Duration,
    pub(crate) waits: u64,
    /// Boxed, because it is absent in the report that is moved for each small response.
    pub(crate) usage: Option<Box<Usage>>,
    /// `None` before anything was moved.
    pub(crate) integrity: Option<Integrity>,
}

impl Report {
    /// Returns the payload bytes delivered to the sink: from sources and from memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes + self.mechanisms.iter().map(|tally| tally.bytes).sum::<u64>()
    }

    /// Returns what one mechanism moved.
    #[must_use]
    pub const fn by(&self, mechanism: Mechanism) -> Tally {
        self.mechanisms[mechanism as usize]
    }

    /// Returns each mechanism that moved bytes, with its tally.
    pub fn mechanisms(&self) -> impl Iterator<Item = (Mechanism, Tally)> + '_ {
        Mechanism::ALL
            .into_iter()
            .map(|mechanism| (mechanism, self.by(mechanism)))
            .filter(|(_, tally)| tally.bytes > 0)
    }

    /// Returns the mechanism that moved the most bytes, if any did.
    #[must_use]
    pub fn main_mechanism(&self) -> Option<Mechanism> {
        self.mechanisms().max_by_key(|(_, tally)| tally.bytes).map(|(mechanism, _)| mechanism)
    }

    /// Returns the bytes that came from the chain's own memory, such as headers. Their calls
    /// count here only if they carried no byte of a file.
    #[must_use]
    pub const fn memory(&self) -> Tally {
        self.memory
    }

    /// Returns what the kernel declined, in the order of the attempts.
    #[must_use]
    pub fn declined(&self) -> &[Decline] {
        &self.declined
    }

    /// Returns the source bytes that were copied between user and kernel space, in either
    /// direction: each byte counts twice with [`Mechanism::ReadWrite`], once with
    /// [`Mechanism::Mmap`]. Bytes given in memory do not count: they were always in user space.
    #[must_use]
    pub const fn user_space_bytes(&self) -> u64 {
        self.user_space_bytes
    }

    /// Returns the system calls that moved bytes or tried to, also by declined mechanisms.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.memory.calls + self.mechanisms.iter().map(|tally| tally.calls).sum::<u64>()
    }

    /// Returns how often the transfer waited for an end that was not ready.
    #[must_use]
    pub const fn waits(&self) -> u64 {
        self.waits
    }

    /// Returns the time from the first step to the end.
    #[must_use]
    pub const fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Returns the resources that the thread used meanwhile, such as processor time, if the
    /// transfer was [`run`] and not [unmetered].
    ///
    /// [`run`]: crate::Transfer::run
    /// [unmetered]: crate::Options::unmetered
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.usage.as_deref().copied()
    }

    /// Returns the integrity level that was kept, which may be lower than the requested one; of
    /// several transfers the weakest. For ends that cannot be guarded, such as a stream, it is
    /// [`Fast`](Integrity::Fast).
    #[must_use]
    pub fn integrity(&self) -> Integrity {
        self.integrity.unwrap_or_default()
    }

    /// Counts bytes that were read into the caller's memory: one crossing.
    pub(crate) fn count_read(&mut self, bytes: u64, calls: u64) {
        self.mechanisms[Mechanism::ReadWrite as usize].calls += calls;
        self.user_space_bytes += bytes;
    }

    /// Counts bytes that one call has written from the caller's memory: the other crossing.
    pub(crate) fn count_written(&mut self, bytes: u64) {
        let tally = &mut self.mechanisms[Mechanism::ReadWrite as usize];
        tally.bytes += bytes;
        tally.calls += 1;
        self.user_space_bytes += bytes;
    }

    /// Counts a message of `head` bytes from memory and `file` bytes read from a file, of which one
    /// call has written the first `sent`.
    pub(crate) fn count_small(&mut self, head: usize, file: usize, sent: usize, level: Integrity) {
        let of_file = sent.saturating_sub(head) as u64;
        self.memory.bytes += sent.min(head) as u64;
        self.count_read(file as u64, 1);
        self.count_written(of_file);
        self.integrity = Some(level);
    }

    /// Counts the bytes sent of a head, and those that sendfile(2) sent of the file after it.
    pub(crate) fn count_sent(&mut self, of_head: usize, of_file: usize, level: Integrity) {
        self.memory.bytes += of_head as u64;
        self.memory.calls += 1;
        let sendfile = &mut self.mechanisms[Mechanism::Sendfile as usize];
        sendfile.bytes += of_file as u64;
        sendfile.calls += 1;
        self.integrity = Some(level);
    }

    /// Adds the report of another transfer, for commands that need several.
    ///
    /// The offsets of its declines are moved up by the bytes counted so far.
    pub fn add(&mut self, other: &Self) {
        let before = self.bytes();
        for decline in &other.declined {
            self.add_decline(Decline { at: before + decline.at, ..*decline });
        }
        self.memory.bytes += other.memory.bytes;
        self.memory.calls += other.memory.calls;
        for (mine, theirs) in self.mechanisms.iter_mut().zip(other.mechanisms) {
            mine.bytes += theirs.bytes;
            mine.calls += theirs.calls;
        }
        self.user_space_bytes += other.user_space_bytes;
        self.elapsed += other.elapsed;
        self.waits += other.waits;
        self.integrity = self.integrity.into_iter().chain(other.integrity).min();
        let usages = self.usage().into_iter().chain(other.usage());
        self.usage = usages.reduce(|mine, theirs| mine + theirs).map(Box::new);
    }

    /// Counts bytes that the sink has besides those of this transfer: holes, and what others have
    /// moved. The errors of the transfer of a part then tell how far the whole got.
    pub fn count_earlier(&mut self, bytes: u64) {
        self.memory.bytes += bytes;
    }

    /// Records that the caller moved the bytes itself and compares the versions of the file,
    /// because `level` cannot be kept that way.
    pub fn weaken(&mut self, level: Integrity) {
        let (what, reason) = (Declined::Integrity(level), DeclineReason::Excluded);
        self.add_decline(Decline { what, reason, at: self.bytes(), times: 1 });
        self.integrity = Some(Integrity::Detect);
    }

    /// Records a decline; a repeated one is only counted, so that the list stays short.
    pub(crate) fn add_decline(&mut self, decline: Decline) {
        let same =
            |known: &&mut Decline| known.what == decline.what && known.reason == decline.reason;
        match self.declined.iter_mut().find(same) {
            Some(known) => known.times += decline.times,
            None => self.declined.push(decline),
        }
    }
}
