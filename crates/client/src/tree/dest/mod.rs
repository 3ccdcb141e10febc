//! Creates files, folders and links beneath one folder only.
//!
//! The kernel opens every folder of a path beneath the target and never through a link
//! (openat2(2)); new entries have a single name in such a folder.

mod attributes;
mod links;
mod partial;
mod placed;
mod superseded;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, fchmod, fstat, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    self, AtomicFile, Existing, folder_at, is_of_stranger, reopen_folder, stat_entry,
};
use underpass_engine::{Report, buffered, close, errno, is_file, is_folder, kept_time, mtime};
use underpass_sys::open_beneath;

use self::placed::PlacedFiles;
pub(crate) use self::placed::ignores_case;
use super::error::{FOLDER_OF_OTHER_USER, SPECIAL_FILE, TargetFolderError, TreeError};
use super::paths::WRITE_LOG;
use super::write_log::WriteLog;

/// Permissions and time of a folder, which are set once its contents are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderAttrs {
    pub(super) path: Vec<u8>,
    pub(super) mode: u32,
    pub(super) modified: Timespec,
}

/// The treatment of an existing name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExistingEntry {
    /// It belongs to this download, because the folder has a temporary name.
    Ours,
    /// It is kept if it is a different file.
    Stays,
    /// It is replaced atomically.
    Replaced,
}

/// The outcome for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DestOutcome {
    /// It was created.
    New,
    /// It existed already.
    Same,
}

/// A folder in which files, folders and links are created.
#[derive(Debug)]
pub(super) struct DestFolder {
    root: OwnedFd,
    pub(super) if_exists: ExistingEntry,
    /// Whether a file of the right size and time is treated as complete.
    pub(super) trusts: bool,
    /// The log of when files were written, in a folder that has its final name.
    log: Option<WriteLog>,
    /// The folder of an older archive, from which unchanged files are moved.
    old: Option<Box<DestFolder>>,
    /// The files that this download has put in place.
    placed: PlacedFiles,
    /// The umask, which also limits what the server can grant.
    umask: u32,
    /// Why permissions or a time were refused, if they were.
    refused: OnceLock<Errno>,
    /// The folder that was used last: successive members often share their folder.
    last: Mutex<Option<(Vec<u8>, OwnedFd)>>,
}

impl DestFolder {
    pub(super) fn new(root: OwnedFd, if_exists: ExistingEntry, old: Option<OwnedFd>) -> Self {
        let old = old.map(|old| Box::new(Self::new(old, ExistingEntry::Ours, None)));
        Self {
            placed: PlacedFiles::of(&root),
            root,
            if_exists,
            trusts: true,
            log: None,
            old,
            // If it is unknown, others get no permissions.
            umask: atomic_file::umask().unwrap_or(0o077),
            refused: OnceLock::new(),
            last: Mutex::new(None),
        }
    }

    /// Opens a folder that has its final name, in which files of earlier runs may have lost their
    /// bytes. `path` is for the error if another process is fetching the same folder.
    pub(super) fn with_log(
        root: OwnedFd,
        if_exists: ExistingEntry,
        path: &Path,
    ) -> Result<Self, TreeError> {
        let log = match WriteLog::open(&root) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(TargetFolderError::Busy { path: path.to_owned() }.into());
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(
                    TargetFolderError::Foreign { path: path.join(WRITE_LOG), url: None }.into()
                );
            }
            // Where no file can be created, an interrupted run cannot have left any.
            Err(_) if is_missing(&root, WRITE_LOG) => None,
            Err(source) => {
                let path = path.join(WRITE_LOG);
                return Err(TreeError::Io { action: "opening".into(), path, source });
            }
            Ok(log) => Some(log),
        };
        Ok(Self { log, ..Self::new(root, if_exists, None) })
    }

    /// Returns the log of when files were written, if there is one.
    pub(super) fn log(&self) -> Option<&WriteLog> {
        self.log.as_ref()
    }

    /// Removes the log, after everything was fetched or left out.
    pub(super) fn finish(&mut self, has_left_out: bool) -> Result<(), Errno> {
        match self.log.take() {
            // Entries that were left out may exist without their bytes.
            Some(log) if !has_left_out || log.all_complete() => log.remove(),
            _ => Ok(()),
        }
    }

    /// Removes the log if this run created it, after nothing was fetched.
    pub(super) fn abandon(&mut self) {
        if let Some(log) = self.log.take_if(|log| log.is_new()) {
            // A remaining log only makes a later run fetch more than necessary.
            let _ = log.remove();
        }
    }

    pub(super) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Calls `make` with the parent folder of a path, which is created if missing, and the last
    /// name of the path.
    fn within<T>(
        &self,
        path: &[u8],
        make: impl FnOnce(&OwnedFd, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            None => return make(&self.root, path),
            Some(slash) => (&path[..slash], &path[slash + 1..]),
        };
        // All threads share this slot; each may find the folder of another one.
        let kept = self.last.lock().ok().and_then(|mut last| last.take());
        let kept = match kept.filter(|(path, _)| path == parent) {
            Some(kept) => kept,
            None => (parent.to_vec(), self.folder(parent)?),
        };
        let outcome = make(&kept.1, name);
        if let Ok(mut last) = self.last.lock() {
            *last = Some(kept);
        }
        outcome
    }

    /// Opens a folder, and creates the missing folders of its path.
    fn folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = open_beneath(self.root.as_fd(), b"", FOLDER)?;
        for part in path.split(|byte| *byte == b'/') {
            at = match enter(&at, part) {
                Err(Errno::NOENT) => {
                    match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(errno),
                    }
                    enter(&at, part)?
                }
                entered => entered?,
            };
        }
        Ok(at)
    }

    /// Makes a folder writable so that its contents can be removed.
    pub(super) fn make_writable(&self, path: &[u8]) -> Result<(), Errno> {
        self.within(path, |parent, name| make_writable(&enter(parent, name)?))
    }

    /// Creates a folder that is writable until it gets its permissions. An existing one may have
    /// them from an earlier run; if there are none to set, it stays as it is.
    pub(super) fn make_folder(&self, path: &[u8], gets_mode: bool) -> Result<DestOutcome, Errno> {
        if path.is_empty() {
            return Ok(DestOutcome::Same);
        }
        self.within(path, |parent, name| {
            loop {
                match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => return Ok(DestOutcome::New),
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
                match enter(parent, name) {
                    Ok(folder) if gets_mode => {
                        return make_writable(&folder).map(|()| DestOutcome::Same);
                    }
                    Ok(_) => return Ok(DestOutcome::Same),
                    Err(Errno::NOTDIR | Errno::LOOP) if self.if_exists == ExistingEntry::Ours => {
                        unlinkat(parent, name, AtFlags::empty())?;
                    }
                    Err(errno) => return Err(errno),
                }
            }
        })
    }

    /// Creates a file with contents from memory.
    pub(super) fn make_small(
        &self,
        path: &[u8],
        contents: &[u8],
        mode: u32,
        modified: Timespec,
        report: &mut Report,
    ) -> Result<DestOutcome, Errno> {
        let size = contents.len() as u64;
        let mut fill = |file: &File| {
            // The contents took one call to receive.
            buffered::write_received(file, contents, 0, 1, report)
        };
        if self.if_exists == ExistingEntry::Ours && self.old.is_none() {
            // The folder is renamed when it is complete, and the times show which files are: they
            // need no temporary names.
            let made = self.within(path, |parent, name| {
                let file = File::from(create(parent, name, mode)?);
                fill(&file)?;
                self.set_metadata(&file, mode, modified)?;
                self.placed.insert(path, &fstat(&file)?);
                // Its time would mark it as complete.
                close(file.into()).inspect_err(|_| _ = unlinkat(parent, name, AtFlags::empty()))
            });
            if made != Err(Errno::EXIST) {
                return made.map(|()| DestOutcome::New);
            }
        }
        if self.has(path, size, modified)? {
            return Ok(DestOutcome::Same);
        }
        let atomic = self.create_temporary(path, mode)?;
        fill(atomic.file())?;
        self.set_file_attributes(path, atomic.file(), Some(mode), Some(modified))?;
        self.commit(path, atomic)?;
        Ok(DestOutcome::New)
    }

    /// Gives a complete file its name.
    pub(super) fn commit(&self, path: &[u8], file: AtomicFile) -> Result<(), Errno> {
        self.name(path, || file.commit(self.existing()).map_err(errno::of))
    }

    /// Gives a file its name by calling `make`, unless that would replace another file of this
    /// download whose name differs in case only.
    pub(super) fn name<T, E: From<Errno>>(
        &self,
        path: &[u8],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(_naming) = self.placed.begin_naming() else { return make() };
        if let Some(there) = self.stat(path)? {
            self.placed.check(path, &there)?;
        }
        let made = make()?;
        if let Some(there) = self.stat(path)? {
            self.placed.insert(path, &there);
        }
        Ok(made)
    }

    /// Creates a temporary file, which disappears with this process unless it is committed.
    pub(super) fn create_temporary(&self, path: &[u8], mode: u32) -> Result<AtomicFile, Errno> {
        self.within(path, |parent, name| {
            let folder = rustix::io::fcntl_dupfd_cloexec(parent, 0)?;
            AtomicFile::create_in(folder, OsStr::from_bytes(name), mode | OWNER).map_err(errno::of)
        })
    }

    /// Returns the open folder of a path, and the name in it.
    pub(super) fn parted<'p>(&self, path: &'p [u8]) -> Result<(OwnedFd, &'p [u8]), Errno> {
        let folder = self.within(path, |parent, _| rustix::io::fcntl_dupfd_cloexec(parent, 0))?;
        Ok((folder, path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()))
    }

    /// Opens a file for reading.
    pub(super) fn open_file(&self, path: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        open_beneath(self.root.as_fd(), path, flags).map(File::from)
    }

    /// Returns what happens to an existing file of the name.
    pub(super) fn existing(&self) -> Existing {
        match self.if_exists {
            ExistingEntry::Stays => Existing::Keep,
            ExistingEntry::Ours | ExistingEntry::Replaced => Existing::Replace,
        }
    }

    /// Returns the permissions of a new entry that has this mode on the server.
    pub(super) fn permissions(&self, mode: u32) -> u32 {
        mode & !self.umask
    }

    /// Returns the permissions of a folder that `make_folder` created or found: one that existed
    /// before this download grants others no more than before.
    pub(super) fn folder_mode(&self, path: &[u8], made: DestOutcome, mode: u32) -> u32 {
        if made == DestOutcome::New || self.if_exists == ExistingEntry::Ours {
            return self.permissions(mode);
        }
        let found = if path.is_empty() { fstat(&self.root).map(Some) } else { self.stat(path) };
        // If it is gone, setting them fails.
        found.ok().flatten().map_or(mode, |stat| mode & (stat.st_mode | 0o7700))
    }

    /// Returns whether a file that is not of this download has this name.
    pub(super) fn replaces(&self, path: &[u8]) -> Result<bool, Errno> {
        let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok(self.if_exists == ExistingEntry::Replaced && self.stat(path)?.is_some_and(is_file))
    }

    /// Returns the properties of the file with this name, if there is one.
    pub(super) fn stat(&self, path: &[u8]) -> Result<Option<Stat>, Errno> {
        self.within(path, |parent, name| stat_entry(parent, name))
    }

    /// Returns whether a file of this size and time exists already, or was moved from an older
    /// archive; a different one is an error if it is to be kept.
    pub(super) fn has(&self, path: &[u8], size: u64, modified: Timespec) -> Result<bool, Errno> {
        let is_same = |folder: &Self, stat: &Stat| is_same(&folder.root, stat, size, modified);
        // An existing entry counts as named, too.
        let naming = self.placed.begin_naming();
        let found = self.stat(path)?;
        if let Some(stat) = &found {
            self.placed.check(path, stat)?;
        }
        match found {
            Some(stat)
                if self.is_complete(&stat)
                    && is_same(self, &stat)
                    && !self.within(path, |parent, _| Ok(is_of_stranger(&stat, parent)))? =>
            {
                self.placed.insert(path, &stat);
                return Ok(true);
            }
            Some(stat) if is_folder(&stat) => {
                return Err(Errno::ISDIR);
            }
            Some(_) if self.if_exists == ExistingEntry::Stays => return Err(Errno::EXIST),
            Some(stat) => self.refuse_special(&stat)?,
            None => {}
        }
        drop(naming);
        let Some(old) = self.old.as_ref().filter(|_| self.trusts) else { return Ok(false) };
        // Any error means no file: where the old archive had a file, there may now be a folder.
        if !matches!(old.stat(path), Ok(Some(stat)) if is_same(old, &stat)) {
            return Ok(false);
        }
        self.name(path, || {
            old.within(path, |from, name| {
                self.within(path, |to, _| renameat(from, name, to, name).map(|()| true))
            })
        })
    }

    /// Refuses to replace an entry that this download has made under another name, and devices,
    /// FIFOs and sockets.
    pub(super) fn refuse_to_replace(&self, path: &[u8], here: &Stat) -> Result<(), Errno> {
        self.placed.check(path, here)?;
        self.refuse_special(here)
    }

    /// Refuses to replace a device, FIFO or socket that is not of this download.
    fn refuse_special(&self, here: &Stat) -> Result<(), Errno> {
        match FileType::from_raw_mode(here.st_mode) {
            FileType::RegularFile | FileType::Symlink | FileType::Directory => Ok(()),
            _ if self.if_exists == ExistingEntry::Ours => Ok(()),
            _ => Err(SPECIAL_FILE),
        }
    }

    /// Returns whether a file is trusted to have the bytes that were written to it.
    fn is_complete(&self, stat: &Stat) -> bool {
        self.trusts && self.log.as_ref().is_none_or(|log| log.is_complete(stat))
    }

    /// Removes a file, a link or an empty folder.
    pub(super) fn remove(&self, path: &[u8], is_folder: bool) -> Result<(), Errno> {
        let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.within(path, |parent, name| unlinkat(parent, name, flags))
    }

    /// Sets the permissions of a file that existed already, if it is of this download.
    pub(super) fn adopt(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        if self.if_exists != ExistingEntry::Ours {
            return Ok(());
        }
        let mode = self.permissions(mode);
        self.within(path, |parent, name| {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK;
            let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if stat.st_mode & 0o7777 == mode {
                return Ok(());
            }
            // fchmodat(2) would follow a link that has taken the name.
            let file = open_beneath(parent.as_fd(), name, flags)?;
            self.tolerate(fchmod(file, Mode::from_raw_mode(mode)))
        })
    }
}

/// Opens the existing folder at a path, unless another user has put it, or the link to it, into a
/// shared folder: that user could replace everything in it.
pub(super) fn open_root(path: &Path) -> Result<OwnedFd, TreeError> {
    let failed = |errno: Errno| TreeError::io("opening", path, errno);
    let open = |path: &Path| folder_at(CWD, path).map_err(failed);
    let root = open(path)?;
    if let Some(name) = path.file_name() {
        let parent = open(atomic_file::folder_of(path))?;
        let named = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if is_of_stranger(&named, &parent) {
            return Err(TargetFolderError::Foreign { path: path.to_owned(), url: None }.into());
        }
    }
    Ok(root)
}

/// Opens a folder in `parent`, unless `parent` is shared, as /tmp is, and another user has put the
/// folder there.
fn enter(parent: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let folder = open_beneath(parent.as_fd(), name, FOLDER)?;
    if is_of_stranger(&fstat(&folder)?, parent) { Err(FOLDER_OF_OTHER_USER) } else { Ok(folder) }
}

/// Makes a folder writable, if it is this user's.
fn make_writable(folder: &OwnedFd) -> Result<(), Errno> {
    if Mode::from_raw_mode(fstat(folder)?.st_mode).contains(Mode::RWXU) {
        return Ok(());
    }
    // If this fails, creating entries in the folder fails later.
    reopen_folder(folder).map_or(Ok(()), atomic_file::make_writable)
}

/// Returns whether an entry is a file of this size and time.
fn is_same(folder: impl AsFd, stat: &Stat, size: u64, modified: Timespec) -> bool {
    is_file(stat)
        && u64::try_from(stat.st_size) == Ok(size)
        && kept_time(modified, stat, folder) == mtime(stat)
}

fn create(parent: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::from_raw_mode(mode | OWNER))
}

/// Returns whether the name does not exist.
fn is_missing(folder: &OwnedFd, name: &str) -> bool {
    matches!(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// The permissions of a file that is being written.
const OWNER: u32 = 0o600;
