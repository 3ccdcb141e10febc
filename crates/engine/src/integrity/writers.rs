//! Whether a process may be writing to a file without changing its times.
//!
//! write(2) changes a file's times each time. A store through a shared mapping does so only when it
//! makes a clean page dirty: as long as the page is dirty, further stores go unnoticed. So before
//! versions can be compared, the file must be known to have no dirty mapped page: either no process
//! has it open for writing (a mapping counts, even once its descriptor is closed), or its dirty
//! pages were written back, which makes the next store to each of them fault.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, Mode, OFlags, SeekFrom, fstatfs, openat, seek};
use rustix::io::Errno;
use rustix::system::sysinfo;
use rustix::time::{ClockId, clock_gettime};
use underpass_sys::{self as sys, release_lease, take_read_lease};

use super::kept_time::since_1970;
use super::version::Version;

/// Checks whether the versions of a file can be compared, before its bytes are read, and again as
/// long as the result is [`Writers::Wait`].
///
/// For a file that was changed within the last minute, a read lease is requested (fcntl(2),
/// `F_SETLEASE`) and released at once: the kernel refuses it while a writable descriptor or mapping
/// exists. Where it is refused or inconclusive, dirty pages are written back, and the file must
/// stay unchanged for 100 ms, on a loaded machine for up to 300 ms.
///
/// No descriptor is kept open between two checks, so dropping this value closes nothing.
#[derive(Debug, Default)]
pub struct WriterCheck {
    /// The version in which the last check left no dirty page.
    clean: Option<Version>,
    /// The version at the end of the last check.
    seen: Option<Version>,
    /// The earliest time of the next check.
    not_before: Option<Instant>,
    looks: u8,
    has_writer: bool,
    is_brief: bool,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// The file is in this version: every change of its contents from now on changes its times.
    Stable {
        /// The version.
        version: Version,
        /// Whether a process has it open for writing, and may write at any moment.
        has_writer: bool,
    },
    /// A process may be writing to the file: check again after this time.
    Wait(Duration),
    /// The file was written to during every check.
    Busy,
}

impl WriterCheck {
    /// Creates a check; nothing is examined before [`check`](Self::check) is called.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a check that treats a file as at rest after one look if it is not known to be open
    /// for writing: for many files, where waiting for each would take too long.
    #[must_use]
    pub fn brief() -> Self {
        Self { is_brief: true, ..Self::default() }
    }

    /// Returns whether a file in this version was changed so recently that a check may wait for a
    /// writer. For a file that was changed earlier, a check only writes back dirty pages, if the
    /// disk does not have them yet or the system is configured to keep them for longer.
    #[must_use]
    pub fn is_recent(version: &Version) -> bool {
        age(version) < RECENT
    }

    /// Returns whether a file is known, without waiting, to be at rest in this version: it was not
    /// changed lately and has no dirty page. That is unknown where the kernel lacks cachestat(2),
    /// and for a large file.
    #[must_use]
    pub fn is_at_rest(file: impl AsFd, version: &Version) -> bool {
        let size = version.size();
        !Self::is_recent(version) && size <= LOOKED_UP && is_clean(file.as_fd(), size) == Some(true)
    }

    /// Checks a regular file, whose version is `promised` as far as the caller knows. The check may
    /// wait for a disk, but not for a writer.
    ///
    /// # Errors
    ///
    /// As fstat(2).
    pub fn check(
        &mut self,
        file: impl AsFd,
        promised: Option<Version>,
    ) -> std::io::Result<Writers> {
        let file = file.as_fd();
        if let Some(not_before) = self.not_before {
            let left = not_before.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                return Ok(Writers::Wait(left));
            }
        }
        match self.seen {
            Some(_) => self.check_closely(file, reopen(file).ok()),
            None => self.check_first(file, promised),
        }
    }

    fn check_first(
        &mut self,
        file: BorrowedFd<'_>,
        promised: Option<Version>,
    ) -> std::io::Result<Writers> {
        let version = promised.map_or_else(|| Version::of(file), Ok)?;
        if !Self::is_recent(&version) {
            // Comparing the versions reveals a change in between.
            write_back(file);
            return Ok(Writers::Stable { version, has_writer: false });
        }
        let description = reopen(file).ok();
        match description.as_ref().map_or(Open::Unknown, try_lease) {
            Open::ForReading(version) => {
                let left = granule_left(&version);
                if left.is_zero() {
                    return Ok(Writers::Stable { version, has_writer: false });
                }
                // A change right now would leave the times as they are.
                return Ok(self.wait(left));
            }
            Open::ForWriting => self.has_writer = true,
            Open::Unknown => {}
        }
        self.check_closely(file, description)
    }

    /// Checks a file that a process may be writing to; `description` is another open file
    /// description of it.
    ///
    /// A store that has changed the times but not yet made its page dirty would go unnoticed: it
    /// may wait for the end of a writeback. So the file must be found clean twice, in one
    /// version.
    fn check_closely(
        &mut self,
        file: BorrowedFd<'_>,
        description: Option<OwnedFd>,
    ) -> std::io::Result<Writers> {
        if let Some(description) = description {
            // The result does not matter: the call only has to wait for a write in progress.
            if let Ok(version) = Version::of(&description) {
                wait_for_write(description, version.size());
            }
        }
        let version = Version::of(file)?;
        let has_writer = self.has_writer;
        let is_clean = is_clean(file, version.size());
        if self.clean == Some(version) && is_clean != Some(false) {
            return Ok(Writers::Stable { version, has_writer });
        }
        if self.has_only_grown(file, &version) {
            return Ok(Writers::Stable { version, has_writer });
        }
        if self.looks == MAX_LOOKS {
            return Ok(Writers::Busy);
        }
        self.looks += 1;
        if is_clean != Some(true) {
            write_back(file);
        }
        let after = Version::of(file)?;
        let is_kept = after == version && self::is_clean(file, version.size()) != Some(false);
        self.clean = is_kept.then_some(version);
        self.seen = Some(after);
        if is_kept && !has_writer && self.is_brief && time_left(&version).is_zero() {
            return Ok(Writers::Stable { version, has_writer });
        }
        Ok(self.wait(time_left(&after)))
    }

    /// Returns whether the previously checked part of a file is unchanged, and bytes were appended.
    fn has_only_grown(&self, file: BorrowedFd<'_>, version: &Version) -> bool {
        let Some(seen) = self.seen.filter(|seen| seen.size() < version.size()) else {
            return false;
        };
        // The page that held the old end may be partly new.
        let page = rustix::param::page_size() as u64;
        is_clean(file, seen.size() / page * page) != Some(false)
    }

    fn wait(&mut self, pause: Duration) -> Writers {
        let pause = pause.max(quiet());
        self.not_before = Some(Instant::now() + pause);
        Writers::Wait(pause)
    }
}

/// Waits until the version of a file reflects each write(2) whose bytes may be read from now on: a
/// write that changed the times before `version` was read may still be in progress, and one within
/// the same clock tick may not change them. It is for files that are read in one piece, and moves
/// the cursor to the beginning. A file that was not changed lately is not waited for.
///
/// It sleeps for as long as one unit of the file system's times, up to two seconds on FAT, and
/// cannot be cancelled.
///
/// # Errors
///
/// As lseek(2).
pub fn await_writes(file: impl AsFd, version: &Version) -> std::io::Result<()> {
    if !WriterCheck::is_recent(version) {
        return Ok(());
    }
    std::thread::sleep(granule_left(version));
    let ticks = if is_of_another_clock(version) { 0 } else { MAX_TICKS };
    for _ in 0..ticks {
        if clock_gettime(ClockId::RealtimeCoarse) > version.changed() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // This comes after reading the clock: a write that begins between the two changes the times.
    wait_for_write(&file, version.size());
    Ok(seek(&file, SeekFrom::Start(0)).map(|_| ())?)
}

/// The state of a file as shown by requesting a lease.
enum Open {
    /// No process had the file open for writing, nor a writable mapping of it, while it was in
    /// this version.
    ForReading(Version),
    /// A process has it open for writing.
    ForWriting,
    /// The kernel cannot tell: the file belongs to another user, or the file system has no leases
    /// or does not know of all mappings.
    Unknown,
}

/// Takes a read lease, reads the file's version and releases the lease. A process that opens the
/// file for writing meanwhile waits for these microseconds, or gets `EWOULDBLOCK` if it opens
/// without waiting.
fn try_lease(description: &OwnedFd) -> Open {
    if !counts_writers(description) {
        return Open::Unknown;
    }
    match take_read_lease(description) {
        Ok(()) => {
            let version = Version::of(description);
            // Closing the description also releases the lease.
            let _ = release_lease(description);
            version.map_or(Open::Unknown, Open::ForReading)
        }
        Err(Errno::AGAIN) => Open::ForWriting,
        Err(_) => Open::Unknown,
    }
}

/// Returns a new open file description of the file, with its own signals and cursor.
pub(crate) fn reopen(file: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(CWD, path, flags, Mode::empty())
}

/// Returns whether a granted lease proves that there is no writable mapping: not on an overlay,
/// whose mappings belong to another file, and not where other machines write over a network.
pub(super) fn counts_writers(file: &OwnedFd) -> bool {
    let kind = fstatfs(file).map(|facts| facts.f_type);
    #[allow(clippy::unnecessary_cast)] // the type differs by target
    kind.is_ok_and(|kind| COUNTING.contains(&(kind as u32)))
}

/// Waits for the end of a write(2) that is in progress.
///
/// write(2) changes the times of a file before its bytes. Seeking data takes the lock that it
/// holds; a write that begins afterwards changes the times again.
fn wait_for_write(file: impl AsFd, size: u64) {
    // The last byte, so that nothing is searched.
    let _ = seek(file, SeekFrom::Data(size.saturating_sub(1)));
}

/// Writes dirty pages back, so that the next store to each of them faults and changes the times. On
/// a file without any this is one short call. A failure is ignored, because there is no better way.
fn write_back(file: BorrowedFd<'_>) {
    let _ = sys::write_back(file);
}

/// Returns whether no page up to `size` is dirty or being written back; `None` if unknown.
fn is_clean(file: BorrowedFd<'_>, size: u64) -> Option<bool> {
    sys::unwritten(file, 0, size).ok().map(|bytes| bytes == 0)
}

/// Returns how long ago the file was changed.
fn age(version: &Version) -> Duration {
    since_epoch().saturating_sub(since_1970(version.changed()))
}

/// Returns the time since 1970.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Returns how much longer the file must stay unchanged.
fn time_left(version: &Version) -> Duration {
    quiet().saturating_sub(age(version)).max(granule_left(version))
}

/// Returns how long a file that is open for writing must stay unchanged: the longer, the more
/// threads are ready to run.
fn quiet() -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    let waiting = sysinfo().loads[0] >> LOAD_SHIFT;
    let share = usize::try_from(waiting).unwrap_or(0) / processors;
    QUIET * u32::try_from(share.clamp(1, MAX_SHARE)).unwrap_or(1)
}

/// Returns the time within which two changes may leave the same times: some file systems store
/// whole seconds, and FAT even seconds only.
fn granule(version: &Version) -> Duration {
    let is_coarse = (version.modified().tv_nsec, version.changed().tv_nsec) == (0, 0);
    if is_coarse { Duration::from_secs(2) } else { Duration::ZERO }
}

/// Returns for how much longer a change may leave the times of a file as they are.
fn granule_left(version: &Version) -> Duration {
    if is_of_another_clock(version) {
        return Duration::ZERO;
    }
    granule(version).saturating_sub(age(version))
}

/// Returns whether a file was changed so far in the future that a change right now would set other
/// times: the clock was set back, or the file comes from another machine.
fn is_of_another_clock(version: &Version) -> bool {
    since_1970(version.changed()).as_secs() > (since_epoch() + MAX_AHEAD).as_secs()
}

/// Longer than a writer in the middle of its work is usually kept off the processor.
const QUIET: Duration = Duration::from_millis(100);

/// The largest factor by which the load extends [`QUIET`].
const MAX_SHARE: usize = 3;

/// The fixed-point shift of the load that sysinfo(2) reports.
const LOAD_SHIFT: u32 = 16;

/// The longest clock tick, in milliseconds.
const MAX_TICKS: usize = 10;

/// A time further ahead than this comes from another clock.
const MAX_AHEAD: Duration = Duration::from_secs(2);

/// The kernel writes back older changes by itself: after 30 s, checking every 5 s.
const RECENT: Duration = Duration::from_secs(60);

/// The largest file whose pages are looked up at once, in bytes: there are up to 16384 of them.
const LOOKED_UP: u64 = 64 << 20;

/// The number of checks before a file counts as busy.
const MAX_LOOKS: u8 = 4;

/// Local file systems that know of every process that has a file open for writing, by their numbers
/// in linux/magic.h and their own headers: ext2 to ext4, XFS, btrfs, F2FS, bcachefs, ZFS, FAT,
/// exFAT, tmpfs, ramfs.
const COUNTING: [u32; 10] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0xca45_1a4e,
    0x2fc1_2fc1,
    0x4d44,
    0x2011_bab0,
    0x0102_1994,
    0x8584_58f6,
];
