//! The mechanisms, one module each: a system call and the errors by which the kernel declines it.
//! Further modules hold what they share: steps, the choice among them, memory and pipes.

pub(crate) mod copy_file_range;
pub(crate) mod mechanism;
pub(crate) mod memory;
pub(crate) mod mmap;
pub(crate) mod pipes;
pub(crate) mod policy;
pub(crate) mod read_write;
pub(crate) mod reflink;
pub(crate) mod sendfile;
pub(crate) mod splice;
pub(crate) mod step;

use rustix::io::Errno;

pub use mechanism::{Mechanism, UnknownMechanism};
pub use memory::SMALL_TRANSFER;
pub use pipes::PipePool;
pub use policy::Policy;
pub use step::{DeclineReason, Wait};

use step::{Ends, Step};
use underpass_sys::Kind;

impl Mechanism {
    /// Returns whether this error of the mechanism's system call means that the kernel does not
    /// offer it between two ends, rather than that it failed.
    ///
    /// ```
    /// use rustix::io::Errno;
    /// use underpass_engine::Mechanism;
    /// assert!(Mechanism::CopyFileRange.declines(Errno::XDEV));
    /// assert!(!Mechanism::CopyFileRange.declines(Errno::NOSPC));
    /// ```
    #[must_use]
    pub fn declines(self, errno: Errno) -> bool {
        match self {
            Self::CopyFileRange => copy_file_range::declines(errno, false),
            Self::Mmap => mmap::declines(errno),
            Self::ReadWrite => false,
            Self::Reflink => reflink::declines(errno),
            Self::Sendfile => sendfile::declines(errno),
            Self::Splice => splice::declines(errno),
        }
    }
}

/// The counts of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StepMeter {
    /// System calls that moved source bytes or tried to.
    pub(crate) calls: u64,
    /// System calls that moved only bytes of the chain's own memory.
    pub(crate) memory_calls: u64,
    /// Source bytes that crossed between user and kernel space, in either direction.
    pub(crate) user_space_bytes: u64,
}

/// The mechanism in use for one segment, with its state between two steps.
#[derive(Debug)]
pub(crate) enum Active {
    CopyFileRange(copy_file_range::CopyFileRange),
    Mmap(mmap::Mmap),
    ReadWrite(read_write::ReadWrite),
    Reflink,
    Sendfile(sendfile::Sendfile),
    Splice(splice::Splice),
}

impl Active {
    /// Creates the mechanism, ready for its first step.
    pub(crate) fn new(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::CopyFileRange => {
                Self::CopyFileRange(copy_file_range::CopyFileRange::default())
            }
            Mechanism::Mmap => Self::Mmap(mmap::Mmap::default()),
            Mechanism::ReadWrite => Self::ReadWrite(read_write::ReadWrite::default()),
            Mechanism::Reflink => Self::Reflink,
            Mechanism::Sendfile => Self::Sendfile(sendfile::Sendfile::default()),
            Mechanism::Splice => Self::Splice(splice::Splice::default()),
        }
    }

    /// Returns the mechanism that is active.
    pub(crate) const fn mechanism(&self) -> Mechanism {
        match self {
            Self::CopyFileRange(_) => Mechanism::CopyFileRange,
            Self::Mmap(_) => Mechanism::Mmap,
            Self::ReadWrite(_) => Mechanism::ReadWrite,
            Self::Reflink => Mechanism::Reflink,
            Self::Sendfile(_) => Mechanism::Sendfile,
            Self::Splice(_) => Mechanism::Splice,
        }
    }

    /// Returns the bytes requested in the next system call when the caller sets no step.
    pub(crate) const fn default_step(&self, ends: &Ends<'_>) -> usize {
        match (self, ends.sink_kind) {
            (Self::Splice(state), Kind::Regular) => state.file_step.bytes(),
            _ => default_step(self.mechanism()),
        }
    }

    /// Moves at most `len` bytes, never more than remain in the segment, without waiting.
    pub(crate) fn step(
        &mut self,
        ends: &Ends<'_>,
        len: usize,
        pipes: &PipePool,
        meter: &mut StepMeter,
    ) -> Result<Step, Errno> {
        if ends.cross_user_space() && self.mechanism() != Mechanism::ReadWrite {
            return Ok(Step::Declined(DeclineReason::UserSpaceTls));
        }
        let rest = ends.rest.unwrap_or(u64::MAX);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(len);
        match self {
            Self::CopyFileRange(state) => state.step(ends, len, meter),
            Self::Mmap(state) => state.step(ends, len, meter),
            Self::ReadWrite(state) => state.step(ends, len, meter),
            Self::Reflink => reflink::step(ends, meter),
            Self::Sendfile(state) => state.step(ends, len, meter),
            Self::Splice(state) => state.step(ends, len, pipes, meter),
        }
    }

    /// Frees the state of the mechanism; an empty pipe is returned to the pool.
    pub(crate) fn release(self, pipes: &PipePool) {
        if let Self::Splice(state) = self {
            state.release(pipes);
        }
    }
}

/// Returns the bytes requested in one system call when the caller sets no step.
const fn default_step(mechanism: Mechanism) -> usize {
    match mechanism {
        // Large enough for a server-side copy, small enough for progress and signals.
        Mechanism::CopyFileRange => 32 << 20,
        // From 64 KiB to 1 MiB the time to send to TCP falls by a quarter (bench/net.json), to
        // 2 MiB by another 2 percent. A larger step delays other transfers on the thread, progress
        // and signals.
        Mechanism::Sendfile => 2 << 20,
        Mechanism::Mmap => 1 << 20,
        // To a file the step is chosen while bytes move, see `Active::default_step`.
        Mechanism::Splice => 256 << 10,
        // Fits the second-level cache with room to spare: sending to TCP and copying between files
        // took 1.5 times as long with 256 KiB, 1.3 times with 16 KiB.
        Mechanism::ReadWrite => 64 << 10,
        // A clone is one call whatever its size.
        Mechanism::Reflink => usize::MAX,
    }
}

/// Returns the most bytes that may be requested from one system call of a mechanism.
pub(crate) const fn largest_step(mechanism: Mechanism) -> usize {
    match mechanism {
        // glibc 2.41 and 2.42 truncate larger ranges, and file systems have had bugs beyond this.
        Mechanism::CopyFileRange | Mechanism::Mmap => 1 << 30,
        // The buffer is memory of the process.
        Mechanism::ReadWrite => 16 << 20,
        // MAX_RW_COUNT of the kernel: more is silently cut to it.
        Mechanism::Sendfile | Mechanism::Splice => 0x7fff_f000,
        Mechanism::Reflink => usize::MAX,
    }
}
