//! A part of a file that waits for its rest, under a name that is never served.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, Mode, StatxFlags, fchmod, fstat, statat, statx, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{AtomicFile, Existing, open_entry, rename_new, try_lock};
use underpass_engine::{Sink, Source, Transfer, Version, birth_time};

use crate::auth::Right;
use crate::routing::response::RETRY_SOON;
use crate::server::sites::site::Site;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::parts::stale_uploads;
use crate::uploads::parts::target::{NEW_FILE, UploadTarget};
use crate::uploads::refusal::{Result, UploadRefusal};
use crate::uploads::state::locks::{
    MAX_WAIT, NewestUpload, PartReceiver, UploadLock, UploadLockError,
};
use crate::uploads::state::part_versions::PartVersion;
use underpass_protocol::request::Method;
use underpass_protocol::upload::{PartId, partial_name};

/// A part of a file, and the lock to resume it.
#[derive(Debug)]
pub(crate) struct PartialUpload<'a> {
    site: &'a Site,
    /// The path from the root.
    path: Vec<u8>,
    complete_path: Vec<u8>,
    name: Vec<u8>,
    /// The name while the complete part gets its final name.
    complete: Vec<u8>,
    lock: UploadLock<'a>,
}

impl Drop for PartialUpload<'_> {
    /// Registers a part that still exists as waiting, or removes it if it is void.
    fn drop(&mut self) {
        for (path, name) in [(&self.path, &self.name), (&self.complete_path, &self.complete)] {
            let Ok(Some((folder, file))) = self.site.root.parent_of(path) else { continue };
            if self.lock.is_void() {
                let _ = unlinkat(&folder, file, AtFlags::empty());
            } else if statat(&folder, file, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                let now = SystemTime::now();
                stale_uploads::add_part(self.site, &folder, path.clone(), name, now);
            }
        }
    }
}

impl<'a> PartialUpload<'a> {
    /// Takes over the part with this id, whether it exists or not.
    pub(crate) fn acquire(
        upload: &ActiveUpload<'a>,
        target: &UploadTarget,
        id: PartId,
    ) -> Result<Self> {
        let name = partial_name(target.name.as_bytes(), id);
        let locks = &upload.site.shared.uploads.locks;
        let lock = locks.acquire(&target.folder, &name, upload.connection())?;
        let (site, path) = (upload.site, target.path_of(&name));
        let complete = complete_name(site, target, id);
        let complete_path = target.path_of(&complete);
        site.unfinished.remove(&path);
        site.unfinished.remove(&complete_path);
        let part = Self { site, path, complete_path, name, complete, lock };
        part.take_back(target)?;
        Ok(part)
    }

    /// Gives a complete part its partial name back if the server was killed before the part got its
    /// final one.
    fn take_back(&self, target: &UploadTarget) -> Result<()> {
        let Some(complete) = open_part(target, &self.complete)? else { return Ok(()) };
        if !try_lock(&complete, &target.folder, &*self.complete) {
            // Another process is about to do that.
            return Ok(());
        }
        let uploads = &self.site.shared.uploads;
        uploads.synced.record(&complete, 0);
        // Its record was removed. The part may begin with a copy of the file that it is to replace.
        let version = target.part_version(complete.metadata()?.len());
        uploads.versions.record(&complete, PartVersion { is_copied: true, ..version });
        let [from, to] = [&self.complete, &self.name].map(|name| OsStr::from_bytes(name));
        match rename_new(&target.folder, from, &target.folder, to) {
            // A later upload has left a part.
            Err(Errno::EXIST) => Ok(unlinkat(&target.folder, from, AtFlags::empty())?),
            renamed => Ok(renamed?),
        }
    }

    /// Renames a complete part, and removes its records, which a complete file does not have. As
    /// long as the returned lock lives, the name marks the part as complete.
    pub(crate) fn complete(
        &self,
        target: &UploadTarget,
        new_file: &mut AtomicFile,
    ) -> Result<Option<UploadLock<'a>>> {
        let locks = &self.site.shared.uploads.locks;
        let lock = locks.try_acquire(&target.folder, &self.complete, &target.folder);
        // The lock ended with the descriptor for writing. A process that another thread has just
        // started has a copy of that descriptor until it executes its program.
        let attempt = || Ok(try_lock(new_file.file(), &target.folder, &*self.name).then_some(()));
        self.wait_for_lock(MAX_START, attempt)?.ok_or_else(UploadRefusal::superseded)?;
        let renamed = new_file.rename_partial(OsStr::from_bytes(&self.complete));
        if self.lock.is_void() {
            return Err(UploadRefusal::superseded());
        }
        renamed?;
        let uploads = &self.site.shared.uploads;
        uploads.synced.remove_record(new_file.file());
        uploads.versions.remove(new_file.file());
        Ok(lock)
    }

    /// Returns the number of bytes that can be resumed; `None` if there is no such part.
    pub(crate) fn len(&self, target: &UploadTarget) -> Result<Option<u64>> {
        len_of(self.site, target, &self.name)
    }

    /// Returns the version of the file that the part is of, if that is known.
    pub(crate) fn version(&self, target: &UploadTarget) -> Result<Option<PartVersion>> {
        version_of(self.site, target, &self.name)
    }

    /// Opens or creates the part, truncated to the `len` bytes at its front that are to be kept.
    ///
    /// Fails if the part has become shorter than the offset sent to the client, after a failed sync
    /// or by another program: bytes would be missing before the new ones.
    pub(crate) fn open(&self, target: &UploadTarget, len: u64) -> Result<AtomicFile> {
        let new_file = self.open_locked(target)?;
        let synced = &self.site.shared.uploads.synced;
        if synced.trusted_len(new_file.file())? < len {
            let detail = "the unfinished upload has become shorter; query its offset again";
            return Err(UploadRefusal::new(503, detail).with("Retry-After", RETRY_SOON));
        }
        synced.truncate(new_file.file(), len)?;
        Ok(new_file)
    }

    /// Opens or creates the part once no other process holds it, and locks it for this one: another
    /// server may serve the same folder, such as one that is about to be replaced.
    fn open_locked(&self, target: &UploadTarget) -> Result<AtomicFile> {
        let name = OsStr::from_bytes(&self.name);
        let attempt = || {
            let folder = target.folder.as_fd().try_clone_to_owned()?;
            let new_file =
                AtomicFile::partial(folder, &target.name, name, PART, Existing::Replace)?;
            let is_locked = try_lock(new_file.file(), &target.folder, name);
            Ok(is_locked.then_some(new_file))
        };
        self.wait_for_lock(MAX_WAIT, attempt)?.ok_or_else(|| UploadLockError::Kept.into())
    }

    /// Repeats an attempt to lock the part until it succeeds; `None` if none does within `max`.
    fn wait_for_lock<T>(
        &self,
        max: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now() + max;
        loop {
            if let Some(locked) = attempt()? {
                return Ok(Some(locked));
            }
            if self.receiver().is_superseded() {
                return Err(UploadRefusal::superseded());
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOCK_INTERVAL);
        }
    }

    /// Gives an unnamed file the name of the part, so that it outlives the server.
    pub(crate) fn name(&self, target: &UploadTarget, new_file: AtomicFile) -> Result<AtomicFile> {
        set_permissions(new_file.file(), PART)?;
        new_file.keep_as(OsStr::from_bytes(&self.name))?;
        self.open(target, 0)
    }

    /// Removes the part; returns whether there was any.
    pub(crate) fn remove(&self, target: &UploadTarget) -> Result<bool> {
        match unlinkat(&target.folder, OsStr::from_bytes(&self.name), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the connection that sends the part.
    pub(crate) fn receiver(&self) -> Arc<PartReceiver> {
        self.lock.receiver()
    }
}

/// Gives a complete part that replaces nothing the permissions of a new file, which depend on the
/// umask, or on the default ones of the folder.
pub(crate) fn permit(target: &UploadTarget, part: &File) -> Result<()> {
    let folder = target.folder.as_fd().try_clone_to_owned()?;
    let usual = AtomicFile::create_in(folder, &target.name, NEW_FILE)?;
    let mode = fstat(usual.file())?.st_mode & NEW_FILE;
    Ok(set_permissions(part, mode)?)
}

/// Sets the permissions of a part, unless the file system has its own for all files.
fn set_permissions(part: &File, mode: u32) -> std::result::Result<(), Errno> {
    match fchmod(part, Mode::from_raw_mode(mode)) {
        // Files belong to the user of the mount, or have no permissions.
        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        changed => changed,
    }
}

/// Returns the number of bytes of a part without taking it away from the connection that resumes
/// it; `None` if there is no such part.
pub(crate) fn part_len(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    id: PartId,
) -> Result<Option<u64>> {
    let len = len_of(upload.site, target, &partial_name(target.name.as_bytes(), id))?;
    if len.is_some() {
        return Ok(len);
    }
    complete_len(upload, target, id)
}

/// Returns the number of bytes of a complete part that only lacks its final name: the server was
/// killed before it had that, and the file of this name is the same as then.
pub(crate) fn complete_len(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    id: PartId,
) -> Result<Option<u64>> {
    let complete = open_part(target, &complete_name(upload.site, target, id))?;
    complete.map(|part| Ok(part.metadata()?.len())).transpose()
}

/// Returns the time for which a part has waited for its rest; zero if there is none.
pub(crate) fn part_age(target: &UploadTarget, id: PartId) -> Duration {
    let name = partial_name(target.name.as_bytes(), id);
    let stat = statat(&target.folder, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(Duration::ZERO, |stat| {
        let since = stale_uploads::waiting_since(&Version::from_stat(&stat));
        SystemTime::now().duration_since(since).unwrap_or_default()
    })
}

/// Returns the version of the file that a part is of, if that is known.
pub(crate) fn part_version(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    id: PartId,
) -> Result<Option<PartVersion>> {
    version_of(upload.site, target, &partial_name(target.name.as_bytes(), id))
}

fn version_of(site: &Site, target: &UploadTarget, name: &[u8]) -> Result<Option<PartVersion>> {
    let Some(part) = open_part(target, name)? else { return Ok(None) };
    Ok(site.shared.uploads.versions.of(&part)?)
}

/// Returns whether a connection holds a part, which may have no name yet: it gets that with its
/// first byte.
pub(crate) fn is_begun(upload: &ActiveUpload<'_>, target: &UploadTarget, id: PartId) -> bool {
    let name = partial_name(target.name.as_bytes(), id);
    upload.site.shared.uploads.locks.is_held(&target.folder, &name)
}

/// Returns the id of the existing part of a file, or else that of a new one. `id` derives it from
/// the name of the file at the site.
pub(crate) fn id_at_site(
    site: &Site,
    target: &UploadTarget,
    id: impl Fn(&[u8]) -> PartId,
) -> PartId {
    let ids = ids_at_site(site, target, id);
    let is_there = |id: &&PartId| {
        let name = partial_name(target.name.as_bytes(), **id);
        statat(&target.folder, OsStr::from_bytes(&name), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    };
    *ids.iter().find(is_there).unwrap_or(&ids[0])
}

/// Returns the ids that a part may have, first that of a new one. Each is made of a name of the
/// site and that of the file, because another site may serve the same folder; the slash between
/// them is in neither. There is one for each name of the site: names may be added, removed or
/// reordered.
fn ids_at_site(site: &Site, target: &UploadTarget, id: impl Fn(&[u8]) -> PartId) -> Vec<PartId> {
    let file = target.name.as_bytes();
    let mut names: Vec<_> = site.settings.names.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        return vec![id(file)];
    }
    names.sort_unstable();
    names.iter().map(|name| id(&[name.as_bytes(), b"/", file].concat())).collect()
}

/// Returns the name of a complete part, until it has its final one. Once another version has that,
/// there is no part of this name.
fn complete_name(site: &Site, target: &UploadTarget, id: PartId) -> Vec<u8> {
    let mut state = site.shared.uploads.synced.epoch(&target.folder);
    state.push_str(&target.part_version(0).replaces);
    partial_name(target.name.as_bytes(), id.complete_in(state.as_bytes()))
}

/// Returns the number of bytes of a part that can be resumed; `None` if there is none.
fn len_of(site: &Site, target: &UploadTarget, name: &[u8]) -> Result<Option<u64>> {
    let part = open_part(target, name)?;
    Ok(part.map(|part| site.shared.uploads.synced.trusted_len(&part)).transpose()?)
}

/// Opens a part; `None` if there is none.
fn open_part(target: &UploadTarget, name: &[u8]) -> Result<Option<File>> {
    match open_entry(&target.folder, name) {
        Ok(part) if part.metadata()?.is_file() => Ok(Some(part)),
        Ok(_) | Err(Errno::NOENT | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Checks the digest of the body of one part. A body that differs is truncated again, at `at`.
pub(crate) fn check_content(
    upload: &ActiveUpload<'_>,
    new_file: AtomicFile,
    at: u64,
) -> Result<AtomicFile> {
    if let Err(refusal) = upload.verify_content(new_file.file()) {
        let is_begun = at > 0 || upload.request.method != Method::Put;
        let synced = &upload.site.shared.uploads.synced;
        if !is_begun || synced.truncate(new_file.file(), at).is_err() {
            new_file.discard();
        }
        return Err(refusal);
    }
    Ok(new_file)
}

/// Notes how much of a part is on the disk when its connection stops; with `--sync on` that is all
/// of it. A part that cannot be synced is removed when it is dropped: any of its bytes may be lost,
/// and the kernel does not report that a second time.
pub(crate) fn record_synced(
    upload: &ActiveUpload<'_>,
    new_file: &mut AtomicFile,
    len: u64,
) -> Result<()> {
    // A superseded part is synced by the connection that resumes it, or removed.
    if upload.site.settings.changes.sync && !upload.is_superseded() {
        new_file.sync()?;
        upload.site.shared.uploads.synced.record(new_file.file(), len);
    }
    Ok(())
}

/// Removes the part of an earlier upload of a file, now that another one begins from the start: it
/// may be of another version, and the rest of this one must not be appended to it. A connection
/// that holds it is ended, and leaves nothing either.
///
/// This is done before space is checked, because the earlier part takes some.
pub(crate) fn forget_part<'a>(
    upload: &ActiveUpload<'a>,
    target: &UploadTarget,
) -> Result<NewestUpload<'a>> {
    let owner = &upload.params.owner;
    let mut newest = Vec::new();
    for id in ids_at_site(upload.site, target, |name| owner.part_of_name(name)) {
        let name = partial_name(target.name.as_bytes(), id);
        newest.push(upload.site.shared.uploads.locks.begin(&target.folder, &name)?);
        if unlinkat(&target.folder, OsStr::from_bytes(&name), AtFlags::empty()).is_ok() {
            upload.site.unfinished.remove(&target.path_of(&name));
        }
    }
    Ok(newest.swap_remove(0))
}

/// Keeps the received part of a file, so that its client can resume it with the `missing` range,
/// unless a newer upload has begun, whose part may be of another version. That upload can be at
/// another server of the folder, such as the successor of this one.
pub(crate) fn keep_part(
    upload: &ActiveUpload<'_>,
    target: &UploadTarget,
    newest: &NewestUpload<'_>,
    new_file: AtomicFile,
    missing: Range<u64>,
) {
    let name = newest.name();
    let uploads = &upload.site.shared.uploads;
    let Some(lock) = newest.acquire(upload.connection()) else { return };
    let partial = OsStr::from_bytes(name);
    let Ok(file) = new_file.file().try_clone() else { return };
    // This gives back the space that was reserved for the rest.
    let len = missing.start;
    if file.set_len(len).is_err() {
        return;
    }
    let present = open_part(target, name).ok().flatten();
    let age = present.as_ref().map(|present| born(present).zip(born(&file)));
    if age.flatten().is_some_and(|(present, own)| present > own) {
        return;
    }
    let _ = unlinkat(&target.folder, partial, AtFlags::empty());
    if age == Some(None) {
        // It is unknown which of the two is newer.
        return;
    }
    uploads.versions.record(&file, target.part_version(missing.end));
    uploads.synced.record(&file, 0);
    // If it cannot be kept, the client has to start over.
    if set_permissions(&file, PART).is_err() || new_file.keep_as(partial).is_err() {
        return;
    }
    // No other process may continue it before it is synced.
    let _ = try_lock(&file, &target.folder, partial);
    // Syncing may take long; in that time a client can learn the length, and waits for the lock.
    let is_synced = upload.site.settings.changes.sync && !lock.is_void();
    let synced = if is_synced { file.sync_data() } else { Ok(()) };
    if synced.is_err() || lock.is_void() {
        // As in `record_synced`, and a newer upload may have begun before the part had its name.
        if try_lock(&file, &target.folder, partial) {
            let _ = unlinkat(&target.folder, partial, AtFlags::empty());
        }
        return;
    }
    if is_synced {
        uploads.synced.record(&file, len);
    }
    let (path, now) = (target.path_of(name), SystemTime::now());
    stale_uploads::add_part(upload.site, &target.folder, path, name, now);
}

/// Returns the time at which a file was created, in seconds and nanoseconds, if it is recorded.
fn born(file: &File) -> Option<(i64, u32)> {
    birth_time(&statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?)
}

/// Copies the first `len` bytes of the existing file into `file`, by sharing its blocks if the file
/// system supports it.
pub(crate) fn copy_existing(upload: &ActiveUpload<'_>, file: &File, len: u64) -> Result<()> {
    let (root, access) = (&upload.site.root, &upload.site.settings.access);
    let (present, reached) = root.open_unleased(&upload.params.path)?;
    // The path may resolve to another one than when the request was checked.
    let user = upload.params.owner.user();
    if reached.is_some_and(|reached| !access.can(user, &reached, Right::Read)) {
        return Err(UploadRefusal::new(403, "a link leads to a path where you lack permission"));
    }
    let chain = Source::range(&present, 0, len);
    match Transfer::new(chain, Sink::of(file)?).run() {
        Ok(_) => Ok(()),
        Err(underpass_engine::Error::Io { source, .. }) => Err(source.into()),
        Err(_) => Err(UploadRefusal::changed()),
    }
}

/// The permissions of a part: a user who may open it can lock it, and so stop its upload.
const PART: u32 = 0o600;

/// The time for which a process that was just started may have copies of descriptors.
const MAX_START: Duration = Duration::from_secs(1);

/// The interval between attempts to lock a part that another process holds.
const LOCK_INTERVAL: Duration = Duration::from_millis(50);
