//! The destination of an archive: a temporary folder next to the final name, or the existing folder
//! of that name.
//!
//! A new folder `a` is created as `a.part`, with its journal next to it, and is renamed when it is
//! complete. Its files can therefore be created under their own names. In an existing folder, each
//! file appears when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatFs, fstatfs, mkdirat, openat, statat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{folder_at, is_ours, names, only_adds, rename_new};

use super::journal::{ArchiveJournal, remove_stale};
use super::noted::NotedArchive;

use crate::tree::dest::{DestFolder, ExistingEntry, open_root};
use crate::tree::error::{Result, TargetFolderError, TreeError};
use crate::tree::paths::{JOURNAL, SUPERSEDED, as_path};

/// The folder into which an archive is unpacked.
#[derive(Debug)]
pub(super) struct ArchiveDest {
    /// The final path.
    path: PathBuf,
    /// The temporary names; `None` if the folder existed.
    unnamed: Option<UnfinishedFolder>,
    pub(super) dest: DestFolder,
}

#[derive(Debug)]
struct UnfinishedFolder {
    parent: OwnedFd,
    /// The path of the parent, for messages.
    parent_path: PathBuf,
    name: OsString,
    part: OsString,
}

impl ArchiveDest {
    /// Opens the folder and its journal, and creates those that do not exist.
    pub(super) fn open(
        path: &Path,
        url: &str,
        if_exists: ExistingEntry,
    ) -> Result<(Self, ArchiveJournal, Option<NotedArchive>)> {
        match folder_at(CWD, path) {
            Ok(_) => Self::existing(path, open_root(path)?, if_exists),
            Err(Errno::NOENT) => match UnfinishedFolder::of(path)? {
                Some(unnamed) if !keeps_names(&unnamed.parent) => unnamed.open(path, url),
                // Also if the name is too long for that of an unfinished folder.
                _ => {
                    fs::create_dir(path).map_err(|error| TreeError::io("creating", path, error))?;
                    Self::open(path, url, if_exists)
                }
            },
            Err(errno) => Err(TreeError::io("opening", path, errno)),
        }
    }

    /// Opens a folder that exists.
    fn existing(
        path: &Path,
        root: OwnedFd,
        if_exists: ExistingEntry,
    ) -> Result<(Self, ArchiveJournal, Option<NotedArchive>)> {
        let failed = |errno: Errno| TreeError::io("opening", path, errno);
        // A run that completed the folder may have been killed before it removed the journal.
        if let Some(unnamed) = UnfinishedFolder::of(path)?
            && statat(&unnamed.parent, &unnamed.part, AtFlags::SYMLINK_NOFOLLOW).is_err()
        {
            // In a folder that is not writable we cannot have left a journal.
            let _ = remove_stale(&unnamed.parent, &unnamed.journal());
        }
        let folder = rustix::io::fcntl_dupfd_cloexec(&root, 0).map_err(failed)?;
        let (journal, noted) = open_journal(folder, path, OsStr::new(JOURNAL), path)?;
        let dest = DestFolder::with_log(root, if_exists, path)?;
        Ok((Self { path: path.to_path_buf(), unnamed: None, dest }, journal, noted))
    }

    /// Puts the files of an older archive aside; unchanged ones are reused.
    pub(super) fn start_over(&mut self) -> Result<()> {
        let Some(unnamed) = &self.unnamed else { return Ok(()) };
        let trusts = self.dest.trusts;
        self.dest.put_aside().map_err(|errno| unnamed.not_removed("putting aside", errno))?;
        self.dest = unnamed.dest()?;
        self.dest.trusts = trusts;
        Ok(())
    }

    /// Removes the leftovers of an older archive.
    pub(super) fn discard_superseded(&self) -> Result<()> {
        let Some(unnamed) = &self.unnamed else { return Ok(()) };
        let discarded = self.dest.discard_superseded();
        discarded.map_err(|errno| unnamed.not_removed("removing", errno))
    }

    /// Gives the folder its final name, and removes journal and log.
    pub(super) fn finish(&mut self, journal: ArchiveJournal, left_out: u64) -> Result<()> {
        if let Some(unnamed) = &self.unnamed {
            rename_new(&unnamed.parent, &*unnamed.part, &unnamed.parent, &*unnamed.name)
                .map_err(|errno| TreeError::io("naming", &self.path, errno))?;
        }
        let removed = self.dest.finish(left_out > 0).map_err(Into::into);
        removed
            .and_then(|()| journal.remove())
            .map_err(|error| TreeError::io("removing the journal of", &self.path, error))
    }

    /// Returns whether the folder still has its temporary name.
    pub(super) fn is_unnamed(&self) -> bool {
        self.unnamed.is_some()
    }

    /// Returns the final path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl UnfinishedFolder {
    /// Returns the temporary names of a folder; `None` if the name is too long for any.
    fn of(path: &Path) -> Result<Option<Self>> {
        let Some(name) = path.file_name() else { return Ok(None) };
        if name.len() + ".part.journal".len() > NAME_MAX {
            return Ok(None);
        }
        let parent_path = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let failed = |error| TreeError::io("creating", &parent_path, error);
        fs::create_dir_all(&parent_path).map_err(failed)?;
        let parent = folder_at(CWD, &parent_path);
        let parent = parent.map_err(|errno| TreeError::io("opening", &parent_path, errno))?;
        let mut part = name.to_owned();
        part.push(".part");
        Ok(Some(Self { parent, parent_path, name: name.to_owned(), part }))
    }

    fn journal(&self) -> OsString {
        let mut name = self.part.clone();
        name.push(".journal");
        name
    }

    /// Opens the unfinished folder, or creates one.
    fn open(
        self,
        path: &Path,
        url: &str,
    ) -> Result<(ArchiveDest, ArchiveJournal, Option<NotedArchive>)> {
        let at = self.parent_path.join(&self.part);
        let failed = |errno: Errno| TreeError::io("opening", &at, errno);
        let has_journal = match statat(&self.parent, self.journal(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => true,
            Err(Errno::NOENT) => false,
            Err(errno) => return Err(failed(errno)),
        };
        // The journal is always created first, so a folder without one is not ours.
        if !has_journal {
            match openat(&self.parent, &self.part, FOLDER, Mode::empty()) {
                Err(Errno::NOENT) => {}
                Ok(folder) if names(&folder).map_err(failed)?.is_empty() => {}
                Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(TargetFolderError::Foreign { path: at, url: None }.into());
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        let folder = rustix::io::fcntl_dupfd_cloexec(&self.parent, 0).map_err(failed)?;
        let (journal, noted) = open_journal(folder, &self.parent_path, &self.journal(), path)?;
        if let Some(noted) = noted.as_ref().filter(|noted| noted.origin.url != url) {
            let url = Some(noted.origin.url.clone());
            return Err(TargetFolderError::Foreign { path: at, url }.into());
        }
        let dest = self.dest()?;
        Ok((ArchiveDest { path: path.to_path_buf(), unnamed: Some(self), dest }, journal, noted))
    }

    /// Opens the unfinished folder, and creates it if it is missing.
    fn dest(&self) -> Result<DestFolder> {
        let at = self.parent_path.join(&self.part);
        let failed = |errno: Errno| TreeError::io("creating", &at, errno);
        match mkdirat(&self.parent, &self.part, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let root = openat(&self.parent, &self.part, FOLDER, Mode::empty()).map_err(failed)?;
        // Another user could still change its contents.
        if !is_ours(&root, &self.parent).map_err(failed)? {
            return Err(TargetFolderError::Foreign { path: at, url: None }.into());
        }
        let old = openat(&root, SUPERSEDED, FOLDER, Mode::empty()).ok();
        Ok(DestFolder::new(root, ExistingEntry::Ours, old))
    }

    fn not_removed(&self, action: &'static str, errno: Errno) -> TreeError {
        let at = self.parent_path.join(&self.part).join(as_path(SUPERSEDED.to_bytes()));
        match errno {
            // A mount point can be neither renamed nor removed.
            Errno::BUSY => {
                let mounted = "a file system is mounted there (unmount it)";
                TreeError::io(action, at, io::Error::other(mounted))
            }
            errno => TreeError::io(action, at, errno),
        }
    }
}

/// Returns whether a new folder in this one must have its final name from the start. On FUSE,
/// rclone loses unstored files when their folder is renamed, and others cannot rename folders.
fn keeps_names(parent: &OwnedFd) -> bool {
    let is_fuse = |found: StatFs| u64::try_from(found.f_type) == Ok(FUSE);
    only_adds(parent) || fstatfs(parent).is_ok_and(is_fuse)
}

/// Opens the journal of this name in `folder`, whose path is `at`, for the folder at `path`.
fn open_journal(
    folder: OwnedFd,
    at: &Path,
    name: &OsStr,
    path: &Path,
) -> Result<(ArchiveJournal, Option<NotedArchive>)> {
    ArchiveJournal::open(folder, name).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::WOULDBLOCK) => TargetFolderError::Busy { path: path.to_path_buf() }.into(),
        Some(Errno::EXIST) => TargetFolderError::Foreign { path: at.join(name), url: None }.into(),
        _ => TreeError::io("opening the journal of", path, error),
    })
}

const FOLDER: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The type of FUSE file systems.
const FUSE: u64 = 0x6573_5546;

/// The maximum length of a name on Linux file systems, in bytes.
const NAME_MAX: usize = 255;
