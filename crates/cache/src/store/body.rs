//! The file with the bytes of an object: opening it, and checking it against its journal.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::iter::once;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, openat};
use rustix::io::Errno;
use underpass_client::journal::JournalContents;

use super::head::StoredHead;
use super::unit::MAX_PAGE;

/// Opens the file of this name, read-only if the disk has become read-only; `None` if this program
/// has not written one.
///
/// # Errors
///
/// Those after which it may still exist, such as a disk error or `EMFILE`.
pub(super) fn open_body(shard: &OwnedFd, name: &OsStr) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match openat(shard, name, flags | OFlags::RDWR, Mode::empty()) {
        Err(Errno::ROFS) => openat(shard, name, flags | OFlags::RDONLY, Mode::empty()),
        opened => opened,
    };
    match opened {
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO | Errno::ISDIR) => Ok(None),
        opened => Ok(Some(opened?.into())),
    }
}

/// Returns whether an error means that this process or the system has too many open files, or no
/// memory for one, which is temporary.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Locks the file of an object for as long as it is open. An object that leaves memory writes its
/// journal once more: opening it again must wait for that, because two journals of one file would
/// contradict each other. Returns `false` if it stays locked for too long: a wait for a lock of
/// this same process might never end.
pub(super) fn lock_body(file: &impl AsFd) -> bool {
    // If the file system has no locks, two journals are still very unlikely.
    wait_for_lock(file, MAX_LOCK_TIME).unwrap_or(true)
}

/// Locks a file for as long as it is open. Returns `false` if it stays locked for all of `limit`.
pub(super) fn wait_for_lock(file: &impl AsFd, limit: Duration) -> Result<bool, Errno> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() >= limit => return Ok(false),
            Err(Errno::WOULDBLOCK) => sleep(LOCK_INTERVAL),
            locked => return locked.map(|()| true),
        }
    }
}

/// Returns whether a file matches the journal of an object, and belongs to one of these origins.
pub(super) fn is_usable(
    file: &File,
    contents: &JournalContents<StoredHead>,
    key: &str,
    origins: &[String],
) -> bool {
    let head = &contents.subject;
    // Without a length it is incomplete, and without a validator nothing can complete it.
    let (Ok(found), Some(size)) = (file.metadata(), head.size) else { return false };
    let is_same = found.ino() == head.inode
        && found.len() == size
        && is_within_size(contents)
        && head.key == key
        && head.origins.iter().any(|origin| origins.contains(origin));
    is_same && (is_whole(contents) || head.validator.is_some())
}

/// Returns whether a journal lists no byte beyond the end of the object, as a damaged one may.
pub(super) fn is_within_size(contents: &JournalContents<StoredHead>) -> bool {
    let end = contents.present.last().map_or(0, |last| last.end);
    contents.subject.size.is_none_or(|size| end <= size)
}

/// Returns whether all bytes of an object are present.
pub(super) fn is_whole(contents: &JournalContents<StoredHead>) -> bool {
    match contents.present.as_slice() {
        [] => contents.subject.size == Some(0),
        [all] => all.start == 0 && Some(all.end) == contents.subject.size,
        _ => false,
    }
}

/// Returns whether a file uses more space than the bytes in its journal need.
pub(super) fn has_unlisted(found: &Metadata, present: &[Range<u64>]) -> bool {
    let listed: u64 = present.iter().map(|range| range.end - range.start).sum();
    found.blocks() * 512 > listed.saturating_add(MIN_UNLISTED)
}

/// Frees the space of bytes that the journal does not list: those that a power failure has made
/// uncertain, and an extent whose eviction was interrupted. The file must not be open elsewhere.
pub(super) fn discard_unlisted(file: &File, present: &[Range<u64>]) {
    let Some(found) = file.metadata().ok().filter(|found| has_unlisted(found, present)) else {
        return;
    };
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let end = found.len().next_multiple_of(MAX_PAGE);
    let mut at = 0;
    for range in present.iter().cloned().chain(once(end..end)) {
        let hole = at..range.start / MAX_PAGE * MAX_PAGE;
        if hole.start < hole.end {
            // If the hole cannot be punched, that only wastes space.
            let _ = fallocate(file, flags, hole.start, hole.end - hole.start);
        }
        at = range.end.next_multiple_of(MAX_PAGE);
    }
}

/// The maximum wait for the lock of a file that is leaving memory.
const MAX_LOCK_TIME: Duration = Duration::from_secs(10);

/// The interval at which such a lock is retried.
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// The bytes that a file may use beyond those in its journal: those of a fill that was killed, and
/// the overhead of file systems.
const MIN_UNLISTED: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_acquired_once_it_is_released() {
        let held = tempfile::NamedTempFile::new().unwrap();
        let file = held.reopen().unwrap();
        assert_eq!(wait_for_lock(&held, Duration::ZERO), Ok(true));
        assert_eq!(wait_for_lock(&file, Duration::ZERO), Ok(false));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait_for_lock(&file, Duration::from_secs(5)));
            sleep(Duration::from_millis(100));
            drop(held);
            assert_eq!(waiting.join().unwrap(), Ok(true));
        });
    }
}
