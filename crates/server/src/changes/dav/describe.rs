//! The properties of files and folders, as a `PROPFIND` requests them.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::MutexGuard;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, StatxFlags, fstat, fstatvfs, statx};
use rustix::io::Errno;
use underpass_dav::locks::{Lock, LockTable, MAX_COVERING, parent};
use underpass_dav::multistatus;
use underpass_dav::property::{HeldLock, Live, Quota, Resource};
use underpass_dav::request::Propfind;
use underpass_engine::wait::lock;
use underpass_engine::{Version, birth_time};
use underpass_listing::Describe;

use crate::auth::Right;
use crate::changes::dav::dead_properties;
use crate::digest::stored;
use crate::files::open_files::{is_missing, modified};
use crate::files::root::{DiskWait, last_name};
use crate::server::sites::site::Site;
use underpass_protocol::encode_path;

/// Writes the properties that one request wants. It may wait for the disk.
pub(crate) struct Describer<'a> {
    pub(crate) site: &'a Site,
    pub(crate) request: &'a Propfind,
    pub(crate) user: Option<&'a str>,
}

impl Describe for Describer<'_> {
    fn begin(&self, out: &mut Vec<u8>) {
        multistatus::begin(out);
    }

    fn describe(&self, path: &[u8], is_folder: bool, out: &mut Vec<u8>) -> io::Result<()> {
        if let Some(resource) = self.resource(path)? {
            let link = link(self.site, path, is_folder);
            multistatus::push_properties(&link, &resource, self.request, out);
        }
        Ok(())
    }

    fn end(&self, out: &mut Vec<u8>) {
        multistatus::end(out);
    }
}

impl Describer<'_> {
    /// Opens a path for the requested properties, and returns the resolved path if it is another
    /// one.
    fn open(&self, path: &[u8]) -> Result<(OwnedFd, Option<Vec<u8>>), Errno> {
        let root = &self.site.root;
        if self.request.wants(Live::Etag) || self.request.wants_stored() {
            match root.open_reached(path, DiskWait::Allowed) {
                // Attributes are available for unreadable entries, too.
                Err(errno) if !is_shortage(errno) => {}
                opened => return opened,
            }
        }
        root.open_path(path).map(|file| (file, None))
    }

    /// Returns the requested properties of the file or folder at a path; `None` if there is none,
    /// or the server may not access it.
    fn resource<'p>(&'p self, path: &'p [u8]) -> Result<Option<Resource<'p>>, Errno> {
        let root = &self.site.root;
        let (file, reached) = match self.open(path) {
            Err(errno) if is_missing(errno) => return Ok(None),
            Err(Errno::ACCESS | Errno::PERM) => return Ok(None),
            opened => opened?,
        };
        let stat = fstat(&file)?;
        let is_folder = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => true,
            FileType::RegularFile => false,
            _ => return Ok(None),
        };
        let access = &self.site.settings.access;
        let name = last_name(path);
        let version = Version::from_stat(&stat);
        // A folder that only leads to readable ones reveals only that it is a folder.
        let may_read = |path: &[u8]| access.can(self.user, path, Right::Read);
        let is_readable = may_read(path) && reached.as_deref().is_none_or(may_read);
        let wants = |live| is_readable && self.request.wants(live);
        Ok(Some(Resource {
            is_folder,
            name,
            len: version.size(),
            modified: is_readable.then(|| modified(&version)),
            created: wants(Live::CreationDate).then(|| created(&file)).flatten(),
            etag: (!is_folder && wants(Live::Etag)).then(|| stored::etag(&file, &version)),
            media_type: if is_folder { Cow::default() } else { root.media_type(name) },
            is_lockable: self.site.settings.changes.upload
                && access.can(self.user, path, Right::Write),
            locks: if wants(Live::LockDiscovery) { self.locks(path, &file) } else { Vec::new() },
            quota: (is_folder && (wants(Live::QuotaAvailable) || wants(Live::QuotaUsed)))
                .then(|| quota(&file))
                .flatten(),
            stored: if is_readable && self.request.wants_stored() {
                dead_properties::load(&file)
            } else {
                Vec::new()
            },
        }))
    }

    /// Returns the locks on a path or on the file that it resolves to, those on the path first.
    fn locks(&self, path: &[u8], file: &OwnedFd) -> Vec<HeldLock> {
        if locks(self.site).is_empty() {
            return Vec::new();
        }
        let root = &self.site.root;
        let reached = root.reached(file).ok().flatten().filter(|reached| *reached != path);
        let path = root.disk_path(path);
        let reached = reached.map(|reached| root.disk_path(&reached));
        let now = Instant::now();
        let mut covering: Vec<Lock> = Vec::new();
        // Changes wait for the table, so the links, which take long, are made afterwards.
        let table = locks(self.site);
        for lock in [Some(&path), reached.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|at| table.covering(at, now))
        {
            if !covering.iter().any(|known| known.token == lock.token) {
                covering.push(lock.clone());
            }
        }
        drop(table);
        covering.truncate(MAX_COVERING);
        covering.into_iter().map(|lock| held(self.site, lock, now)).collect()
    }
}

/// Locks the table of locks, even if another thread has panicked: nothing in it is half-written.
pub(crate) fn locks(site: &Site) -> MutexGuard<'_, LockTable> {
    lock(&site.shared.dav_locks)
}

/// Returns a lock in the form in which responses describe it.
pub(super) fn held(site: &Site, lock: Lock, now: Instant) -> HeldLock {
    let root = lock_link(site, &lock);
    let left = lock.expires.saturating_duration_since(now);
    // Rounded up, so that a new lock shows all of its time.
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    HeldLock { lock, root, seconds }
}

/// Returns the link to the locked entry. A lock of another site may hold for more than this one
/// serves, or an entry that is hidden here: then the client only learns the closest visible folder.
pub(super) fn lock_link(site: &Site, lock: &Lock) -> String {
    let locked = site.root.served_path(&lock.root);
    let mut shown = locked.unwrap_or_default();
    while site.root.hides(shown) {
        shown = parent(shown).unwrap_or_default();
    }
    link(site, shown, lock.is_folder || locked != Some(shown))
}

/// Returns the link to a path.
pub(crate) fn link(site: &Site, path: &[u8], is_folder: bool) -> String {
    let mut link = encode_path(site.settings.path_prefix.as_bytes());
    if !path.is_empty() {
        link.push('/');
        link.push_str(&encode_path(path));
    }
    if is_folder || link.is_empty() {
        link.push('/');
    }
    link
}

/// Returns whether an error means that the system lacks something now, whatever is opened.
fn is_shortage(errno: Errno) -> bool {
    // Not `EAGAIN`: a file with a lease of another program has attributes, too.
    matches!(errno, Errno::MFILE | Errno::NFILE | Errno::NOMEM)
}

/// Returns when a file was created, if its file system knows.
fn created(file: impl AsFd) -> Option<SystemTime> {
    let facts = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let (seconds, _) = birth_time(&facts)?;
    let since = Duration::from_secs(seconds.try_into().ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// Returns the space of the file system of a folder.
fn quota(folder: &OwnedFd) -> Option<Quota> {
    let facts = fstatvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    let used = bytes(facts.f_blocks.saturating_sub(facts.f_bfree));
    Some(Quota { available: bytes(facts.f_bavail), used })
}
