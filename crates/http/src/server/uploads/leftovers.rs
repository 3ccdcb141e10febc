//! Parts of files whose rest has not come for long: they are removed, or every upload that is given
//! up would take its space for ever.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use underpass_engine::Version;

use super::super::changes;
use super::super::files;
use super::super::shared::Shared;
use super::super::worker::step_back;
use crate::upload::is_partial_name;

/// Looks for leftovers in a thread of its own, now and every hour, until what is returned is
/// dropped. `None` if nobody can leave any.
pub(in super::super) fn watch(shared: &Arc<Shared>) -> Option<Sender<()>> {
    if !shared.settings.changes.upload || shared.root.is_file() {
        return None;
    }
    let (alive, ended) = channel();
    let shared = Arc::clone(shared);
    let work = move || {
        step_back();
        loop {
            if let Ok(folder) = shared.root.top() {
                walk(&shared, &ended, &folder, 0);
            }
            if ended.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    // Without it leftovers stay until the next start.
    let _ = thread::Builder::new().name("leftovers".to_owned()).stack_size(STACK).spawn(work);
    Some(alive)
}

/// Looks at a folder and those in it, unless the server has ended.
fn walk(shared: &Shared, ended: &Receiver<()>, folder: &OwnedFd, depth: usize) {
    let has_ended = ended.try_recv() == Err(TryRecvError::Disconnected);
    if depth > DEEPEST || has_ended {
        return;
    }
    for name in sweep(shared, folder) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if let Ok(inner) = openat(folder, OsStr::from_bytes(&name), flags, Mode::empty()) {
            walk(shared, ended, &inner, depth + 1);
        }
    }
}

/// Removes what is left over in a folder, and tells which folders are in it.
///
/// What cannot be read or removed is passed over: it is looked at again in an hour.
pub(super) fn sweep(shared: &Shared, folder: impl AsFd) -> Vec<Vec<u8>> {
    let mut inner = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(folder) = openat(folder, ".", flags, Mode::empty()) else { return inner };
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = RawDir::new(&folder, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        match entry.file_type() {
            FileType::Directory | FileType::Unknown if !matches!(name, b"." | b"..") => {
                inner.push(name.to_vec());
            }
            _ => {}
        }
        if is_partial_name(name) && is_left_over(shared, &folder, name) {
            let _ = changes::remove(folder.as_fd(), entry.file_name());
        }
    }
    inner
}

/// Whether nothing was written to a part for as long as parts are kept, and nobody is about to.
fn is_left_over(shared: &Shared, folder: &OwnedFd, name: &[u8]) -> bool {
    let Ok(stat) = statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) else {
        return false;
    };
    let version = Version::from_stat(&stat);
    let age = |since| SystemTime::now().duration_since(since).unwrap_or_default();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            age(files::modified(&version)) >= shared.settings.changes.expiry
                && !shared.uploads.holds.is_held(folder, name)
        }
        // Of a copy or move that was killed. It has the times of the original, but for the last.
        FileType::Directory => {
            let changed = u64::try_from(version.changed().0).unwrap_or(0);
            age(SystemTime::UNIX_EPOCH + Duration::from_secs(changed)) >= FOLDERS_EXPIRE
        }
        _ => false,
    }
}

/// A folder may be copied for as long as this, whatever is the patience with uploads.
const FOLDERS_EXPIRE: Duration = Duration::from_secs(24 * 60 * 60);

/// How often it is looked for leftovers.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Folders in each other that are looked into, each an open descriptor meanwhile.
const DEEPEST: usize = 128;

/// Bytes of names that are read at once.
const BUFFER: usize = 32 << 10;

/// Bytes for the stack of the thread that looks.
const STACK: usize = 512 << 10;
