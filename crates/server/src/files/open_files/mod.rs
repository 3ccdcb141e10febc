//! Recently requested files, kept open with the attributes that their responses need.
//!
//! Opening a file costs three system calls and a walk along its path, which is more than sending a
//! small one. So each worker keeps the files it opened for at most [`LIFETIME`]. Each response
//! compares versions with one fstat(2), at the latest when the bytes of a small file are read: the
//! very next request opens a file again that was written to, replaced or removed. A change

mod packed;
mod remote;

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FileType, Stat, Timespec, fstat, stat};
use rustix::io::Errno;
use underpass_engine::wait::lock;
use underpass_engine::{Integrity, Version, is_resident, since_1970};

use crate::digest::stored;
use crate::files::root::{DiskWait, Root, is_local, is_of_kind, last_name, path_of};
use crate::files::version::etag_since;
use crate::files::writer_checks::{AGAIN_LATER, CheckedVersion, StableVersions, WriterChecks};
use crate::server::limits::helper_shares::HelperShares;
use crate::server::settings::Settings;
pub(crate) use remote::RemoteFiles;
use underpass_protocol::digest::Digest;
use underpass_protocol::request::ClientNet;
use underpass_protocol::request::negotiate::Coding;

/// The time for which an open file is used without looking its path up again.
pub(crate) const LIFETIME: Duration = Duration::from_secs(1);

/// An open regular file, with the values for its responses.
#[derive(Debug)]
pub(crate) struct ServedFile {
    pub(crate) file: Arc<OwnedFd>,
    /// The resolved path, if links led to another one.
    pub(crate) reached: Option<Vec<u8>>,
    pub(crate) version: Version,
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    /// The time of the last change of anything but the stored digest.
    pub(crate) changed: SystemTime,
    pub(crate) media_type: Cow<'static, str>,
    /// The fields of the usual response, once it was sent.
    pub(crate) fields: OnceCell<Arc<[u8]>>,
    /// The digests that are stored with it.
    pub(crate) digests: Vec<Digest>,
    /// The compressed forms of its contents, each in a separate file.
    pub(crate) packed: Vec<(Coding, ServedFile)>,
    /// The time until which all of it counts as cached.
    pub(crate) resident_until: ResidentUntil,
    /// Whether a program has it open for writing, and may begin to write at any moment.
    has_writer: bool,
    /// Whether it was at rest in its version, so that each change can be detected.
    pub(crate) is_stable: bool,
    /// Whether it and its compressed forms are on a local file system; otherwise helpers check its
    /// version.
    pub(crate) is_local: bool,
}

/// The time until which a whole file counts as being in the page cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResidentUntil(Arc<Mutex<Option<Instant>>>);

impl ResidentUntil {
    /// Records that all of it was found there at this time.
    pub(crate) fn set(&self, at: Instant) {
        *lock(&self.0) = Some(at + LIFETIME);
    }

    /// Returns whether that was less than [`LIFETIME`] ago.
    fn is_noted(&self, now: Instant) -> bool {
        let end = *lock(&self.0);
        end.is_some_and(|end| now < end)
    }
}

/// The entry found at a path.
#[derive(Debug)]
pub(crate) enum FoundEntry {
    /// A regular file.
    File(Box<ServedFile>),
    /// A folder, open, with the path that was reached if links led to another one.
    Folder(OwnedFd, Option<Vec<u8>>),
    /// A file of procfs or sysfs, whose size is not known before it is read.
    Unsized(OwnedFd, Option<Vec<u8>>),
}

impl FoundEntry {
    /// Returns the path that was reached, if links led to another one.
    pub(crate) fn reached(&self) -> Option<&[u8]> {
        match self {
            Self::File(served) => served.reached.as_deref(),
            Self::Folder(_, reached) | Self::Unsized(_, reached) => reached.as_deref(),
        }
    }
}

impl ServedFile {
    /// Returns the size of the file in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.version.size()
    }

    /// Returns whether the whole file is known to be in the page cache; for a small file, it
    /// checks.
    pub(crate) fn is_resident(&self, now: Instant) -> bool {
        if self.resident_until.is_noted(now) {
            return true;
        }
        let is_resident = self.len() <= WHOLE && is_resident(&self.file, 0, self.len());
        if is_resident {
            self.resident_until.set(now);
        }
        is_resident
    }

    /// Returns whether the file was changed so recently that a program may still be writing to it,
    /// or is open for writing.
    pub(crate) fn is_unsettled(&self, now: SystemTime) -> bool {
        self.has_writer || is_recent(self.version.changed(), now)
    }

    /// Returns whether the file had a name when its version was read. If not, it was replaced or
    /// removed right after it was opened, and will never change again.
    pub(crate) fn has_name(&self) -> bool {
        self.version.links() > 0
    }

    /// Returns whether the file is still the one that was opened, in the same version. An unlinked
    /// file is not: it may have been replaced between being opened and the reading of its version.
    ///
    /// The file must be local: for any other, this could wait for a file server.
    pub(crate) fn is_current_locally(&self) -> bool {
        self.with_packed().all(|one| one.has_name() && is_in_version(&one.file, &one.version))
    }

    /// Returns the file and the compressed forms of its contents.
    fn with_packed(&self) -> impl Iterator<Item = &Self> {
        [self].into_iter().chain(self.packed.iter().map(|(_, packed)| packed))
    }

    /// Checks the same as [`is_current_locally`](Self::is_current_locally), for a file on any file
    /// system. The link count of a remote file is ignored, as some file systems in user space
    /// report none.
    pub(crate) async fn is_current(&self, helpers: &HelperShares, client: ClientNet) -> bool {
        if self.is_local {
            return self.is_current_locally();
        }
        let all = self.with_packed().map(|one| (Arc::clone(&one.file), one.version));
        let all: Vec<_> = all.collect();
        let are_current = move || all.iter().all(|(file, version)| is_in_version(file, version));
        helpers.run(client, are_current).await.unwrap_or(false)
    }

    fn new(
        file: OwnedFd,
        checked: CheckedVersion,
        media_type: Cow<'static, str>,
        disk_wait: DiskWait,
    ) -> Self {
        let CheckedVersion { version, has_writer, is_stable } = checked;
        let kept = stored::load_digest(&file, &version);
        let is_local = disk_wait == DiskWait::Never || is_local(&file);
        let changed =
            kept.as_ref().map_or_else(|| version.changed(), stored::StoredDigest::changed);
        Self {
            file: Arc::new(file),
            reached: None,
            version,
            etag: etag_since(&version, changed),
            modified: modified(&version),
            changed: whole_second(changed.tv_sec),
            media_type,
            fields: OnceCell::new(),
            digests: kept.map(stored::StoredDigest::into_digests).unwrap_or_default(),
            packed: Vec::new(),
            resident_until: ResidentUntil::default(),
            has_writer,
            is_stable,
            is_local,
        }
    }
}

/// The open files of one site and one worker.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// Each file with the time at which its path is looked up again.
    open: HashMap<Box<[u8]>, (Instant, Rc<ServedFile>)>,
    of_all_sites: Rc<OpenCount>,
    /// The number of changes of names when these files were looked up.
    changes: u64,
}

/// The number of files that a worker keeps open, for all its sites.
#[derive(Debug)]
pub(crate) struct OpenCount {
    now: Cell<usize>,
    max: usize,
}

impl OpenCount {
    /// Creates the count of one worker. The workers share the permitted descriptors like the
    /// connections.
    pub(crate) fn new(settings: &Settings) -> Rc<Self> {
        let share = settings.max_connections / 4 / settings.workers.max(1);
        Rc::new(Self { now: Cell::new(0), max: share.clamp(MIN_OPEN, MAX_OPEN) })
    }

    fn is_full(&self) -> bool {
        self.now.get() >= self.max
    }
}

impl OpenFiles {
    /// Creates the store of a site; `of_all_sites` counts the files of all sites.
    pub(crate) fn new(of_all_sites: &Rc<OpenCount>) -> Self {
        Self { open: HashMap::new(), of_all_sites: Rc::clone(of_all_sites), changes: 0 }
    }

    /// Returns the file at a path, if it was opened recently. The caller must check whether it has
    /// changed.
    pub(crate) fn get(&self, path: &[u8], now: Instant) -> Option<Rc<ServedFile>> {
        let (end, served) = self.open.get(path)?;
        (now < *end).then(|| Rc::clone(served))
    }

    /// Closes a file that turned out to have changed.
    pub(crate) fn forget(&mut self, path: &[u8]) {
        let before = self.open.len();
        self.open.remove(path);
        self.count_from(before);
    }

    /// Closes all files if requests have changed names since: a file may have another path now, or
    /// a path another file.
    pub(crate) fn forget_if_changed(&mut self, changes: u64) {
        if self.changes != changes {
            self.changes = changes;
            self.forget_all();
        }
    }

    /// Closes all files.
    pub(crate) fn forget_all(&mut self) {
        let before = self.open.len();
        self.open.clear();
        self.count_from(before);
    }

    /// Keeps a file for later requests.
    pub(crate) fn put(&mut self, path: &[u8], served: &Rc<ServedFile>, now: Instant) {
        if self.of_all_sites.is_full() {
            self.expire(now);
        }
        if !self.of_all_sites.is_full() {
            let before = self.open.len();
            self.open.insert(path.into(), (now + LIFETIME, Rc::clone(served)));
            self.count_from(before);
        }
    }

    /// Closes files that were not requested recently, so that a removed file frees its space.
    pub(crate) fn expire(&mut self, now: Instant) {
        let before = self.open.len();
        self.open.retain(|_, (end, _)| now < *end);
        self.count_from(before);
    }

    /// Adjusts the count for the files opened or closed since there were `before`.
    fn count_from(&self, before: usize) {
        let count = &self.of_all_sites.now;
        count.set(count.get() - before + self.open.len());
    }
}

impl Drop for OpenFiles {
    fn drop(&mut self) {
        self.forget_all();
    }
}

/// Opens the entry at a path, with its compressed neighbours.
///
/// # Errors
///
/// The errors of openat2(2) below the root; `ENOENT` if it is neither a file nor a folder,
/// `AGAIN_LATER` if a program may be writing to it, `EBUSY` if one is.
pub(crate) fn open(
    root: &Root,
    stable_versions: &StableVersions,
    path: &[u8],
    disk_wait: DiskWait,
    checks: &mut WriterChecks,
) -> Result<FoundEntry, Errno> {
    let (file, reached) = root.open_reached(path, disk_wait)?;
    let stat = fstat(&file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    match kind {
        FileType::Directory => return Ok(FoundEntry::Folder(file, reached)),
        FileType::RegularFile => {}
        // Reading a fifo, a device or a socket may never end.
        _ => return Err(Errno::NOENT),
    }
    // The file offset, at which such a file is read, has not moved yet.
    if may_be_made_when_read(&stat) && is_made_when_read(&file) {
        if may_have_passwords(&file) {
            return Err(Errno::NOENT);
        }
        return Ok(FoundEntry::Unsized(file, reached));
    }
    let checked = checks.check(stable_versions, path, &file, &stat, disk_wait)?;
    let name = last_name(path);
    let served = ServedFile::new(file, checked, root.media_type(name), disk_wait);
    let mut served = ServedFile { reached, ..served };
    for coding in Coding::ALL {
        if let Some(packed) =
            packed::open(root, stable_versions, path, coding, &served, disk_wait, checks)?
        {
            served.is_local &= packed.is_local;
            served.packed.push((coding, packed));
        }
    }
    Ok(FoundEntry::File(Box::new(served)))
}

/// Returns whether a file of procfs is the environment or the command line of this process, which
/// may contain passwords.
fn may_have_passwords(file: &OwnedFd) -> bool {
    // The process or thread may have ended.
    let Ok(path) = path_of(file) else { return true };
    if ![&b"/environ"[..], b"/cmdline"].iter().any(|name| path.ends_with(name)) {
        return false;
    }
    let id = path.strip_prefix(b"/proc/").and_then(|rest| rest.split(|&byte| byte == b'/').next());
    // Each thread of the process also has a folder. `/proc/cmdline` is the kernel's.
    let is_thread = |id: &[u8]| {
        id.iter().all(u8::is_ascii_digit) && stat([b"/proc/self/task/", id].concat()).is_ok()
    };
    id.is_some_and(is_thread)
}

/// Returns whether a file is in this version.
fn is_in_version(file: &OwnedFd, version: &Version) -> bool {
    Version::of(file).is_ok_and(|now| now == *version)
}

/// Opens the entry at a path without waiting for a disk or a writer.
///
/// # Errors
///
/// The errors of [`open`]; `EAGAIN` if it would have to wait.
pub(crate) fn open_at_once(
    root: &Root,
    stable_versions: &StableVersions,
    integrity: Integrity,
    path: &[u8],
) -> Result<FoundEntry, Errno> {
    let mut checks = WriterChecks::new(integrity);
    match open(root, stable_versions, path, DiskWait::Never, &mut checks) {
        // `EINVAL` comes from kernels before 5.12, which cannot open only cached paths.
        Err(Errno::INVAL | AGAIN_LATER) => Err(Errno::AGAIN),
        found => found,
    }
}

/// Returns whether the contents may be generated: procfs reports a size of zero, sysfs a page, and
/// neither reports blocks.
fn may_be_made_when_read(stat: &Stat) -> bool {
    stat.st_blocks == 0 && matches!(stat.st_size, 0 | 4096)
}

/// Returns whether a file's contents are generated by reading it, so that its size is meaningless.
fn is_made_when_read(file: impl AsFd) -> bool {
    is_of_kind(file, &MADE_WHEN_READ)
}

/// Returns whether a change at this time is so recent that a program may still be writing.
fn is_recent(changed: Timespec, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now < since_1970(changed).saturating_add(SETTLED_AFTER)
}

/// Returns whether an error means that the client cannot see anything at a path.
pub(crate) fn is_missing(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::NOTDIR // a file in the middle of the path
            | Errno::LOOP // links in a circle, or a link of procfs
            | Errno::NAMETOOLONG
            | Errno::XDEV // a link leads out of the root
            | Errno::NXIO // a socket
            | Errno::NODEV // a device without a driver
    )
}

/// Returns the modification time of a version, as far as this system can represent it.
pub(crate) fn modified(version: &Version) -> SystemTime {
    whole_second(version.modified().tv_sec)
}

fn whole_second(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(since)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(since)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The maximum size of a file of which all pages are looked up, once a [`LIFETIME`].
const WHOLE: u64 = 1 << 20;

/// The time without changes after which a file is assumed to stay unchanged during a response.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// The maximum number of files that a worker keeps open: fewer if there are few descriptors.
const MAX_OPEN: usize = 256;

/// The number that it may keep open in any case, however many workers there are.
const MIN_OPEN: usize = 8;

/// The file systems that generate contents: `PROC_SUPER_MAGIC`, `SYSFS_MAGIC`,
/// `CGROUP_SUPER_MAGIC`, `CGROUP2_SUPER_MAGIC`, `DEBUGFS_MAGIC`, `TRACEFS_MAGIC` and
/// `SECURITYFS_MAGIC` of linux/magic.h.
const MADE_WHEN_READ: [u32; 7] =
    [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270, 0x6462_6720, 0x7472_6163, 0x7363_6673];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_settled_two_whole_seconds_after_its_change() {
        let at =
            |seconds, nanoseconds| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        let changed = time(1_000, 900_000_000);
        assert!(is_recent(changed, at(1_000, 900_000_001)));
        assert!(is_recent(changed, at(1_002, 0)) && is_recent(changed, at(1_002, 899_999_999)));
        assert!(!is_recent(changed, at(1_002, 900_000_000)));
        // The clock may have been set back, and a time may be before 1970.
        assert!(is_recent(changed, at(10, 0)) && !is_recent(time(-5, 0), at(10, 0)));
    }
}
