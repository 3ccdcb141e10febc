//! The folder of the cache: one process, one format, and for each object one file and one journal
//! next to it.

mod files;
mod scan;

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use files::{name, read_former, remove_bodies, try_read};
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, fsync, ftruncate, mkdirat, openat,
    statat, unlinkat,
};
use rustix::io::Errno;
use underpass_client::journal::{self, Journal, JournalContents};
use underpass_engine::wait::unpoison;
use underpass_protocol::digest::hex;

use super::body::{
    discard_unlisted, is_shortage, is_usable, is_whole, lock_body, open_body, wait_for_lock,
};
use super::head::{StoredHead, millis};
use crate::error::OpenError;
use crate::key::KeyDigest;

/// The open folder of a cache.
#[derive(Debug)]
pub(crate) struct CacheFolder {
    path: PathBuf,
    /// The folder itself.
    top: OwnedFd,
    contents: RwLock<Contents>,
    /// The number of the next file.
    next: AtomicU64,
    /// The number of the first file of this process.
    first: u64,
}

/// The contents of the folder, which another program may remove while this process runs.
#[derive(Debug)]
struct Contents {
    objects: Arc<OwnedFd>,
    lock: Arc<File>,
}

/// The state of a cache folder that does not accept new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restored {
    /// Nothing was removed.
    Present,
    /// Its contents were removed; it is empty now and accepts objects again.
    Empty,
    /// It was removed, or its contents were and cannot be recreated.
    Gone,
}

/// A file with the bytes of an object, and its journal.
#[derive(Debug)]
pub(crate) struct StoredFile {
    pub(crate) file: File,
    pub(crate) journal: Journal<StoredHead>,
}

/// An object that an earlier process has stored.
#[derive(Debug)]
pub(crate) struct LoadedFile {
    pub(crate) file: File,
    pub(crate) journal: Journal<StoredHead>,
    pub(crate) contents: JournalContents<StoredHead>,
}

impl CacheFolder {
    /// Opens or creates the folder, for this process alone.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |action| {
            let path = path.to_owned();
            move |source| OpenError::Io { action, path, source }
        };
        create_folder(path).map_err(|source| match source.kind() {
            // Something other than a folder has the name.
            io::ErrorKind::AlreadyExists => fail("opening")(Errno::NOTDIR.into()),
            _ => fail("creating")(source),
        })?;
        let path = fs::canonicalize(path).map_err(fail("opening"))?;
        let is_empty = |path: &Path| Ok(fs::read_dir(path)?.next().is_none());
        // The file can be empty after a power failure.
        if fs::metadata(path.join(FORMAT)).map_or(0, |it| it.len()) == 0 {
            // Files of other programs must not be treated as objects, or be removed.
            let is_begun = path.join(LOCK).exists();
            if !is_begun && !is_empty(&path).map_err(fail("reading"))? {
                return Err(OpenError::Format(path));
            }
        }
        let lock = openat(CWD, path.join(LOCK), OPEN_OR_CREATE, Mode::RUSR | Mode::WUSR);
        let lock = File::from(lock.map_err(|errno| fail("opening the lock of")(errno.into()))?);
        // A cache that was just closed holds the lock until its last thread has ended.
        if !wait_for_lock(&lock, Duration::from_secs(1))
            .map_err(|errno| fail("locking")(errno.into()))?
        {
            return Err(OpenError::InUse(path));
        }
        let top = OwnedFd::from(File::open(&path).map_err(fail("opening"))?);
        // The lock file may have been removed by hand. Some file systems cannot lock folders.
        if matches!(wait_for_lock(&top, Duration::from_secs(1)), Ok(false)) {
            return Err(OpenError::InUse(path));
        }
        if !has_format(&top).map_err(fail("checking the format of"))? {
            return Err(OpenError::Format(path));
        }
        make_objects(&top).map_err(fail("creating"))?;
        let objects = File::open(path.join(OBJECTS)).map_err(fail("opening"))?;
        let contents = Contents { objects: Arc::new(objects.into()), lock: Arc::new(lock) };
        // Earlier processes' files have other numbers, unless the clock was set back to the same
        // millisecond.
        let first = millis(SystemTime::now()) << 12;
        Ok(Self { path, top, contents: RwLock::new(contents), next: AtomicU64::new(first), first })
    }

    /// Returns its absolute path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the descriptor of a folder on its file system.
    pub(crate) fn objects(&self) -> Arc<OwnedFd> {
        Arc::clone(&unpoison(self.contents.read()).objects)
    }

    /// Recreates the contents if they were removed while this process runs. The folder itself is
    /// not recreated: its path may belong to another folder now, and this process is confined to
    /// the old one.
    pub(crate) fn restore(&self) -> Restored {
        let is_removed = |folder: &OwnedFd| fstat(folder).is_ok_and(|stat| stat.st_nlink == 0);
        if !is_removed(&self.objects()) {
            return Restored::Present;
        }
        let mut contents = unpoison(self.contents.write());
        // Another thread may have recreated them.
        if !is_removed(&contents.objects) {
            return Restored::Present;
        }
        if is_removed(&self.top) {
            return Restored::Gone;
        }
        match self.create_contents(&contents.lock) {
            Ok(created) => {
                *contents = created;
                Restored::Empty
            }
            Err(_) => Restored::Gone,
        }
    }

    /// Recreates the contents, unless another process has begun to use the folder.
    fn create_contents(&self, held: &Arc<File>) -> io::Result<Contents> {
        let top = &self.top;
        let named = statat(top, LOCK, AtFlags::SYMLINK_NOFOLLOW);
        let is_held =
            named.is_ok_and(|named| fstat(held).is_ok_and(|it| it.st_ino == named.st_ino));
        let lock = if is_held {
            Arc::clone(held)
        } else {
            let lock = openat(top, LOCK, OPEN_OR_CREATE, Mode::RUSR | Mode::WUSR)?;
            flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Arc::new(File::from(lock))
        };
        if !has_format(top)? {
            return Err(Errno::EXIST.into());
        }
        make_objects(top)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let objects = Arc::new(openat(top, OBJECTS, flags, Mode::empty())?);
        Ok(Contents { objects, lock })
    }

    /// Creates the file and the journal of an object, replacing those of its older version.
    pub(crate) fn create(
        &self,
        digest: &KeyDigest,
        mut head: StoredHead,
    ) -> io::Result<StoredFile> {
        let shard = self.shard(digest)?;
        let before = read_former(&shard, digest);
        let file = self.create_body(&shard, digest, &mut head)?;
        let body = head.body.clone();
        match Journal::create(shard.try_clone()?, name(digest).as_ref(), head) {
            Ok(journal) => {
                remove_bodies(&shard, digest, before, Some(&body));
                Ok(StoredFile { file, journal })
            }
            Err(error) => {
                let _ = unlinkat(&shard, body.as_str(), AtFlags::empty());
                Err(error)
            }
        }
    }

    /// Creates a file and unlinks it, for a response that is not stored.
    pub(crate) fn create_unnamed(
        &self,
        digest: &KeyDigest,
        head: &mut StoredHead,
    ) -> io::Result<File> {
        let shard = self.shard(digest)?;
        let file = self.create_body(&shard, digest, head)?;
        unlinkat(&shard, head.body.as_str(), AtFlags::empty())?;
        Ok(file)
    }

    fn create_body(
        &self,
        shard: &OwnedFd,
        digest: &KeyDigest,
        head: &mut StoredHead,
    ) -> io::Result<File> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        head.body = format!("{}.{number:016x}", hex(digest));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = openat(shard, head.body.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
        // No other process can have it open.
        lock_body(&file);
        ftruncate(&file, head.size.unwrap_or(0))?;
        head.inode = fstat(&file)?.st_ino;
        Ok(file.into())
    }

    /// Opens a stored object that is not in memory, with the contents of its journal; `None` if
    /// there is no usable one. All of `origins` have the same files, so they are all recorded as
    /// its origins.
    ///
    /// # Errors
    ///
    /// If it cannot be opened or read at the moment. It stays in the folder.
    pub(crate) fn load(
        &self,
        digest: &KeyDigest,
        key: &str,
        origins: &[String],
    ) -> io::Result<Option<LoadedFile>> {
        let shard = match self.shard(digest) {
            Err(error) if is_shortage(&error) => return Err(error),
            // It does not exist, and cannot be created.
            Err(_) => return Ok(None),
            Ok(shard) => shard,
        };
        let Some(found) = try_read(&shard, digest)? else { return Ok(None) };
        let opened = open_body(&shard, found.subject.body.as_ref())?;
        if opened.as_ref().is_some_and(|file| !lock_body(file)) {
            return Ok(None);
        }
        // Read again: only now no other thread writes the journal.
        let Some(mut contents) = try_read(&shard, digest)? else { return Ok(None) };
        let usable = |file: &File| is_usable(file, &contents, key, origins);
        let Some(file) = opened.filter(usable) else {
            let _ = self.remove(digest);
            return Ok(None);
        };
        contents.confirm_later(&file);
        discard_unlisted(&file, &contents.present);
        let is_known = contents.subject.origins == origins;
        contents.subject.origins = origins.to_vec();
        let journal = Journal::reopen(shard, name(digest).as_ref(), contents.clone());
        let is_whole = is_whole(&contents);
        if !is_whole || !is_known {
            let written = journal.describe(|| contents.subject.clone());
            // If the disk does not accept a journal, a whole object is served all the same.
            if written.is_err() && !is_whole {
                return Ok(None);
            }
        }
        Ok(Some(LoadedFile { file, journal, contents }))
    }

    /// Removes an object; returns whether there was one. Readers may have it open.
    pub(crate) fn remove(&self, digest: &KeyDigest) -> io::Result<bool> {
        let shard = self.shard(digest)?;
        let before = read_former(&shard, digest);
        // Without its journal a file is ignored, so the journal is removed first.
        let was_there = journal::remove(&shard, name(digest).as_ref())?;
        remove_bodies(&shard, digest, before, None);
        Ok(was_there)
    }

    /// Evicts an object; returns whether there was one.
    ///
    /// # Errors
    ///
    /// Those of [`remove`](Self::remove), or if there are too many open files to find its bytes,
    /// which would stay without being counted.
    pub(crate) fn evict(&self, digest: &KeyDigest) -> io::Result<bool> {
        match try_read(&self.shard(digest)?, digest) {
            Err(error) if is_shortage(&error) => Err(error),
            _ => self.remove(digest),
        }
    }

    /// Syncs the removal of an object, which could reappear after a power failure otherwise.
    pub(crate) fn sync_removal(&self, digest: &KeyDigest) -> io::Result<()> {
        Ok(fsync(self.shard(digest)?)?)
    }

    /// Removes an object if its bytes are in the file `body`, or if the journal cannot be read: an
    /// unusable object must not reappear at the next start.
    pub(crate) fn remove_version(&self, digest: &KeyDigest, body: &str) -> bool {
        let contents = self.shard(digest).and_then(|shard| try_read(&shard, digest));
        let may_be_it =
            contents.map_or(true, |contents| contents.is_some_and(|it| it.subject.body == body));
        may_be_it && self.remove(digest).is_ok()
    }

    /// Returns whether this process created the file of this number: those of earlier ones may have
    /// later numbers, if the clock was set back.
    fn has_made(&self, number: u64) -> bool {
        (self.first..self.next.load(Ordering::Relaxed)).contains(&number)
    }

    /// Opens the folder that contains an object.
    fn shard(&self, digest: &KeyDigest) -> io::Result<OwnedFd> {
        let name = format!("{:02x}", digest[0]);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let objects = self.objects();
        let open = || openat(&objects, name.as_str(), flags, Mode::empty());
        match open() {
            Err(Errno::NOENT) => match mkdirat(&objects, name.as_str(), Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => Ok(open()?),
                Err(errno) => Err(errno.into()),
            },
            opened => Ok(opened?),
        }
    }
}

/// Creates the folder of the objects if it is missing.
fn make_objects(top: &OwnedFd) -> io::Result<()> {
    match mkdirat(top, OBJECTS, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Creates a folder if it is missing: the sandbox refuses mkdir(2), which `DirBuilder` calls.
fn create_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o700).create(path) }
}

/// Returns whether the folder has our format, which is written and synced if there is none: a
/// folder whose objects survive a power failure must be recognized as a cache afterwards.
fn has_format(top: &OwnedFd) -> io::Result<bool> {
    let mut file = File::from(openat(top, FORMAT, OPEN_OR_CREATE, Mode::RUSR | Mode::WUSR)?);
    match io::read_to_string(&file)?.trim_end() {
        VERSION => return Ok(true),
        "" => {}
        _ => return Ok(false),
    }
    writeln!(file, "{VERSION}")?;
    file.sync_all()?;
    fsync(top)?;
    Ok(true)
}

const OPEN_OR_CREATE: OFlags =
    OFlags::RDWR.union(OFlags::CREATE).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

const LOCK: &str = "lock";

const FORMAT: &str = "format";

const OBJECTS: &str = "objects";

/// The contents of the file `format`.
const VERSION: &str = "underpass cache 1";

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a list of ranges is what is meant
mod tests {
    use underpass_client::journal::OpenPiece;

    use super::*;

    #[test]
    fn a_symlink_instead_of_the_lock_file_is_refused() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join(FORMAT), "x").unwrap();
        std::os::unix::fs::symlink("target", place.path().join(LOCK)).unwrap();
        assert!(CacheFolder::open(place.path()).is_err());
        assert!(!place.path().join("target").exists());
    }

    /// The metadata of `/a` of this length.
    fn head(size: u64) -> StoredHead {
        let now = millis(SystemTime::now());
        StoredHead {
            key: "/a".to_owned(),
            origins: vec!["http://a".to_owned()],
            body: String::new(),
            inode: 0,
            validator: None,
            size: Some(size),
            fields: Vec::new(),
            requested: now,
            received: now,
            epoch: 0,
        }
    }

    #[test]
    fn a_journal_with_bytes_beyond_the_end_is_ignored() {
        let place = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(&place.path().join("cache")).unwrap();
        let (digest, size) = ([7; 32], 100 << 20);
        let stored = folder.create(&digest, head(size)).unwrap();
        stored.journal.record_progress(&mut OpenPiece::at(0), size + 1_000_000);
        stored.journal.save(&stored.file).unwrap();
        drop(stored);
        let path = folder.path().join("objects/07").join(name(&digest));
        folder.scan(&mut |_, units| panic!("{} units", units.len()));
        assert!(folder.load(&digest, "/a", &["http://a".to_owned()]).unwrap().is_none());
        assert!(!path.exists());
    }

    #[test]
    fn an_object_is_opened_again_after_its_last_journal_was_written() {
        let place = tempfile::tempdir().unwrap();
        let folder = CacheFolder::open(&place.path().join("cache")).unwrap();
        let (digest, origins) = ([7; 32], ["http://a".to_owned()]);
        let stored = folder.create(&digest, head(10)).unwrap();
        let body = stored.journal.subject().body;
        let shard = folder.shard(&digest).unwrap();
        let try_lock = || {
            let file = open_body(&shard, body.as_ref()).unwrap().unwrap();
            flock(&file, FlockOperation::NonBlockingLockExclusive)
        };
        assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| folder.load(&digest, "/a", &origins).unwrap().unwrap());
            // A record written by an object that leaves memory must count.
            stored.journal.record_progress(&mut OpenPiece::at(0), 10);
            drop(stored);
            let again = loading.join().unwrap();
            assert_eq!(again.contents.present, [0..10]);
            assert_eq!(try_lock(), Err(Errno::WOULDBLOCK));
            drop(again);
        });
        assert_eq!(try_lock(), Ok(()));
    }
}
