//! Removes parts of files that have waited too long for their rest. Otherwise every abandoned
//! upload would take its space forever. Also renames back what a killed server had moved aside.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RawDir, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use underpass_engine::atomic_file::{name_of_hidden, remove_left_over, reopen_folder, try_lock};
use underpass_engine::{Version, since_1970};

use crate::changes::hidden_name::{is_aside, restore};
use crate::changes::removal;
use crate::changes::tree::open_folder;
use crate::files::open_files;
use crate::files::root::join;
use crate::server::limits::priority::step_back;
use crate::server::sites::published::Published;
use crate::server::sites::site::Site;
use crate::uploads::state::disk_space;
use crate::uploads::state::locks::UploadLock;
use crate::uploads::state::searches::Begun;
use underpass_protocol::upload::{is_partial_name, owner_tag};

/// Looks for stale uploads in a separate thread, now, every hour and when the sites were replaced,
/// until the returned value is dropped.
pub(crate) fn watch(published: &Arc<Published>) -> Sender<()> {
    let (alive, ended) = channel();
    let published = Arc::clone(published);
    let work = move || {
        step_back();
        // Threads for other file systems end with this one.
        let running = Arc::new(());
        let mut walked = None;
        loop {
            // New sites know nothing of the parts that wait in their folders.
            let generation = published.generation();
            if walked.is_none_or(|(at, of)| has_passed(at) || of != generation) {
                walk_all(&published, &ended, &Arc::downgrade(&running));
                walked = Some((Instant::now(), generation));
            }
            if ended.recv_timeout(CHECK_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    };
    // Without the thread, stale uploads stay until the next start.
    let _ = thread::Builder::new().name("stale-uploads".to_owned()).stack_size(STACK).spawn(work);
    alive
}

fn has_passed(at: Instant) -> bool {
    at.elapsed() >= WALK_INTERVAL
}

/// Checks all sites that allow changes: a removal also leaves such names.
fn walk_all(published: &Published, ended: &Receiver<()>, running: &Weak<()>) {
    let is_ended = || ended.try_recv() == Err(TryRecvError::Disconnected);
    let sites = published.get();
    let changes = |site: &Site| {
        let changes = site.settings.changes;
        (changes.upload || changes.delete) && !site.root.is_file()
    };
    for site in sites.all.iter().filter(|site| changes(site)) {
        // A part does not show which site it belongs to.
        let others = sites.all.iter().filter(|other| changes(other));
        let others = others.filter(|other| site.root.overlaps(&other.root));
        let expiry = others.map(|other| other.settings.changes.expiry).max();
        let search = Search {
            site: Arc::clone(site),
            expiry: expiry.unwrap_or_default(),
            running: Weak::clone(running),
        };
        search.walk(Vec::new(), &is_ended);
    }
}

/// A search of the folders of a site.
#[derive(Clone)]
struct Search {
    site: Arc<Site>,
    expiry: Duration,
    /// Gone once the server has ended.
    running: Weak<()>,
}

impl Search {
    /// Checks all folders below a path unless the server has ended: by path, so that no level takes
    /// a descriptor, and as deep as a request can name.
    fn walk(&self, start: Vec<u8>, is_ended: &dyn Fn() -> bool) {
        let (mut len, mut device) = (start.len(), None);
        let mut pending = vec![start];
        while let Some(path) = pending.pop() {
            len -= path.len();
            if is_ended() {
                return;
            }
            let Ok(folder) = self.site.root.open_folder(&path) else { continue };
            // From the cache: fstat(2) could wait for a file server that does not answer.
            let Ok(here) = Version::in_memory(&folder).map(|version| version.device()) else {
                continue;
            };
            if *device.get_or_insert(here) != here && self.hand_over(here, &path) {
                continue;
            }
            sweep(&self.site, self.expiry, folder, &path, &mut |name| {
                if len < MAX_PENDING {
                    let inner = join(&path, name);
                    len += inner.len();
                    pending.push(inner);
                }
            });
        }
    }

    /// Has another thread check the folders at and below a path, in the file system of this device:
    /// an unresponsive one holds up only that thread. Returns false if there is no such thread.
    fn hand_over(&self, device: u64, path: &[u8]) -> bool {
        match self.site.searches.begin(device, path) {
            Begun::Queued => return true,
            Begun::TooMany => return false,
            Begun::New => {}
        }
        let (search, mut start) = (self.clone(), Some(path.to_vec()));
        let work = move || {
            step_back();
            while let Some(path) = start {
                search.walk(path, &|| search.running.strong_count() == 0);
                start = search.site.searches.next(device);
            }
        };
        let thread = thread::Builder::new().name("stale-uploads".to_owned()).stack_size(STACK);
        let is_begun = thread.spawn(work).is_ok();
        if !is_begun {
            self.site.searches.forget(device);
        }
        is_begun
    }
}

/// Removes parts in a folder that have waited for `expiry`, notes others, unless another site keeps
/// them for longer, and passes the names of the folders in it to `inner`.
///
/// Entries that cannot be read or removed are skipped: the next check is in an hour.
fn sweep(
    site: &Site,
    expiry: Duration,
    folder: impl AsFd,
    path: &[u8],
    inner: &mut dyn FnMut(&[u8]),
) {
    let Ok(folder) = reopen_folder(folder) else { return };
    let mut buffer = Vec::with_capacity(BUFFER);
    let mut entries = RawDir::new(&folder, buffer.spare_capacity_mut());
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        match entry.file_type() {
            FileType::Directory | FileType::Unknown if !matches!(name, b"." | b"..") => {
                inner(name);
            }
            _ => {}
        }
        if name_of_hidden(name).is_some()
            && matches!(part_state(&folder, name, expiry), PartState::Stale)
        {
            remove_hidden(&folder, entry.file_name());
        }
        if !is_partial_name(name) {
            continue;
        }
        let Some(idle) = lock_idle(site, &folder, name) else { continue };
        match part_state(&folder, name, expiry) {
            PartState::Stale => {
                let _ = removal::discard(folder.as_fd(), entry.file_name());
            }
            PartState::Waiting(since) => {
                // A server that was killed while it received has left its reservation.
                idle.give_back();
                drop(idle);
                if expiry == site.settings.changes.expiry {
                    add_part(site, &folder, join(path, name), name, since);
                }
            }
            PartState::Aside => {
                // Waits for a change that has it aside right now.
                let _names = site.names.hold(true);
                if restore(&folder, name) {
                    site.shared.names_changed();
                }
            }
            PartState::Other => {}
        }
    }
}

/// Removes leftovers of a killed process: a new file on a file system without `O_TMPFILE`, or a
/// copy of a folder that a change has made.
fn remove_hidden(folder: &OwnedFd, name: &CStr) {
    let hidden = OsStr::from_bytes(name.to_bytes());
    let is_of_change = name_of_hidden(name.to_bytes()).is_some_and(is_partial_name);
    if remove_left_over(folder, hidden, geteuid().as_raw()) || !is_of_change {
        return;
    }
    let Ok(copy) = open_folder(folder.as_fd(), name) else { return };
    // If the lock cannot be tested, the copy may be in use.
    if flock(&copy, FlockOperation::NonBlockingLockExclusive).is_ok()
        && try_lock(&copy, folder, name)
    {
        let _ = removal::discard(folder.as_fd(), name);
    }
}

/// A part that no connection resumes as long as this lives.
struct IdlePart<'s> {
    /// The file, locked for this process where the file system can.
    file: Option<File>,
    _lock: UploadLock<'s>,
}

/// Keeps connections, also those of other processes, from resuming a part; `None` if one is
/// resuming it now.
fn lock_idle<'s>(site: &'s Site, folder: &OwnedFd, name: &[u8]) -> Option<IdlePart<'s>> {
    let lock = site.shared.uploads.locks.try_acquire(folder, name, folder)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A folder cannot be opened for writing, and needs no lock.
    let file = openat(folder, OsStr::from_bytes(name), flags, Mode::empty()).ok();
    let locked = file.as_ref().map(|file| flock(file, FlockOperation::NonBlockingLockExclusive));
    match locked {
        Some(Err(Errno::WOULDBLOCK)) => None,
        Some(Ok(())) => Some(IdlePart { file: file.map(File::from), _lock: lock }),
        _ => Some(IdlePart { file: None, _lock: lock }),
    }
}

impl IdlePart<'_> {
    /// Gives back space that is reserved beyond the end of the part.
    fn give_back(&self) {
        let Some(file) = &self.file else { return };
        let Ok(stat) = fstat(file) else { return };
        let (blocks, len) = (u64::try_from(stat.st_blocks), u64::try_from(stat.st_size));
        if blocks.unwrap_or(0).saturating_mul(512) > len.unwrap_or(0).saturating_add(SLACK) {
            disk_space::release(file);
        }
    }
}

/// The state of a part that no connection resumes.
enum PartState {
    /// It has waited too long for its rest.
    Stale,
    /// It has waited since then.
    Waiting(SystemTime),
    /// A change has moved it aside.
    Aside,
    Other,
}

/// Returns the time since which a part has waited. Its mtime can be that of its original, once it
/// is about to get its final name.
pub(crate) fn waiting_since(version: &Version) -> SystemTime {
    open_files::modified(version).max(changed(version))
}

fn changed(version: &Version) -> SystemTime {
    SystemTime::UNIX_EPOCH + since_1970(version.changed())
}

fn part_state(folder: &OwnedFd, name: &[u8], expiry: Duration) -> PartState {
    if is_aside(name) {
        return PartState::Aside;
    }
    let Ok(stat) = statat(folder, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) else {
        return PartState::Other;
    };
    let version = Version::from_stat(&stat);
    let age = |since| SystemTime::now().duration_since(since).unwrap_or_default();
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let since = waiting_since(&version);
            if age(since) >= expiry { PartState::Stale } else { PartState::Waiting(since) }
        }
        // Left by a change that was killed. Only its ctime is its own, the other times are those of
        // the original.
        FileType::Directory | FileType::Symlink => {
            let since = changed(&version);
            if age(since) >= COPIES_EXPIRE { PartState::Stale } else { PartState::Other }
        }
        _ => PartState::Other,
    }
}

/// Registers a part that waits for its rest, and removes those that are now too many.
pub(crate) fn add_part(
    site: &Site,
    folder: impl AsFd,
    path: Vec<u8>,
    name: &[u8],
    since: SystemTime,
) {
    let (Some(owner), Ok(stat)) = (owner_tag(name), fstat(folder)) else { return };
    for surplus in site.unfinished.insert(path, owner, stat.st_dev, since) {
        remove(site, &surplus);
    }
}

/// Removes parts that have waited too long for their rest, if there are any, in a separate thread:
/// an unresponsive file system blocks only that, and no other is started for it.
pub(crate) fn expire(site: &Arc<Site>) {
    if site.unfinished.is_due(site.settings.changes.expiry) {
        let site = Arc::clone(site);
        // Without a thread, they wait for the next second.
        let thread = thread::Builder::new().name("stale-uploads".to_owned()).stack_size(STACK);
        let _ = thread.spawn(move || expire_all(&site));
    }
}

fn expire_all(site: &Site) {
    let expiry = site.settings.changes.expiry;
    while let Some(due) = site.unfinished.take_due(expiry) {
        let path = &due.path;
        let Ok(Some((folder, name))) = site.root.parent_of(path) else { continue };
        // A connection that resumes it adds it again.
        let Some(idle) = lock_idle(site, &folder, name.as_bytes()) else { continue };
        match part_state(&folder, name.as_bytes(), expiry) {
            // A part that cannot be removed now is found again later.
            PartState::Stale => drop(unlinkat(&folder, name, AtFlags::empty())),
            // It has grown meanwhile.
            PartState::Waiting(since) => {
                drop(idle);
                add_part(site, &folder, path.clone(), name.as_bytes(), since);
            }
            PartState::Aside | PartState::Other => {}
        }
    }
}

/// Removes a part, unless a connection resumes it.
fn remove(site: &Site, path: &[u8]) {
    let Ok(Some((folder, name))) = site.root.parent_of(path) else { return };
    let idle = lock_idle(site, &folder, name.as_bytes());
    if idle.is_some() {
        // A part that cannot be removed now is found again later.
        let _ = unlinkat(&folder, name, AtFlags::empty());
    }
}

/// The time that copying a folder or a link may take, whatever the expiry of uploads is.
const COPIES_EXPIRE: Duration = Duration::from_secs(24 * 60 * 60);

/// The interval at which the searching thread checks whether a search is due.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which folders are searched for stale uploads.
const WALK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The maximum number of bytes of paths of folders that are still to be searched.
const MAX_PENDING: usize = 32 << 20;

/// The number of bytes of names that are read at once.
const BUFFER: usize = 32 << 10;

/// The number of bytes for the stack of the searching thread.
const STACK: usize = 512 << 10;

/// The space that file systems may allocate for a file beyond its length.
const SLACK: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    use underpass_engine::atomic_file::hidden_name;

    use super::*;

    #[test]
    fn a_folder_copy_left_by_a_killed_change_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(File::open(parent.path()).unwrap());
        let remove = |name: &CStr| {
            // Permissions do not apply to root.
            let mut own = capabilities(None).unwrap();
            own.effective -= CapabilitySet::DAC_OVERRIDE;
            set_capabilities(None, own).unwrap();
            remove_hidden(&folder, name);
        };
        let is_removed = |name: &OsStr, is_locked: bool| {
            let path = parent.path().join(name);
            fs::create_dir_all(path.join("deep")).unwrap();
            fs::write(path.join("deep/file"), "x").unwrap();
            // Its original has this mode.
            fs::set_permissions(path.join("deep"), fs::Permissions::from_mode(0o555)).unwrap();
            let copy = File::open(&path).unwrap();
            if is_locked {
                flock(&copy, FlockOperation::LockExclusive).unwrap();
            }
            let name = CString::new(name.as_bytes()).unwrap();
            thread::scope(|scope| scope.spawn(|| remove(&name)).join().unwrap());
            !path.exists()
        };
        let of_change = ".to.0123456789abcdef0123456789abcdef.upload";
        let [ours, other] = [of_change, "to"].map(|name| hidden_name(name.as_ref(), Some(7)));
        assert!(!is_removed(&ours, true), "a process is still at it");
        assert!(is_removed(&ours, false));
        // This one belongs to cp, which will continue it.
        assert!(!is_removed(&other, false));
    }
}
