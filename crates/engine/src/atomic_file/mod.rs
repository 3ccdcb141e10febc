//! A file that appears under its name only when it is complete.
//!
//! The bytes are written to an unnamed file (`O_TMPFILE`) in the target's folder. Until the commit,
//! an existing file of that name is unchanged; if the process dies, the kernel removes the unnamed
//! file. On file systems without unnamed files, a hidden name is used instead; if the process is
//! killed, the hidden file is removed the next time the same name is written.

mod case;
mod follow;
mod hidden;
mod name;
mod names;
mod new_folders;
mod open;
mod permissions;
mod remove;
mod reserve;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, Stat, fstat, fsync, linkat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use underpass_sys::close;

use crate::integrity::{FileId, mtime, reopen};

pub use case::{fold_case, ignores_case, listed_name};
pub use follow::{check_link, check_links, follow};
pub use hidden::{
    WRITABLE_BY_OTHERS, is_of_stranger, is_ours, is_ours_alone, lacks_links, lock_file, lock_named,
    new_file, number_of, only_adds, remove_left_over, rename_new, try_lock, was_made_in,
};
pub use name::{
    MAX_HIDDEN, MAX_NAME, MAX_SHORT_NAME, beginning, fingerprint, folder_of, hidden_name,
    name_of_hidden, names_folder, shortened,
};
pub use names::{for_each_name, names};
pub use new_folders::NewFolders;
pub use open::{folder_at, open_entry, open_file, open_past_lease, reopen_folder, stat_entry};
pub use permissions::{
    KeptOwner, acl_entry, remove_attribute, remove_attribute_at, set_mode, take_over,
    take_over_named, try_without_acl, without_acl,
};
pub use remove::{is_mounted, make_writable, remove_folder};
pub(crate) use reserve::reserve;

/// What happens to an existing file of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is kept, and the commit fails.
    Keep,
    /// It is replaced atomically: the name always refers to the whole old or the whole new file.
    Replace,
}

/// A new file that gets its name when it is committed.
///
/// ```
/// use std::io::Write;
/// use underpass_engine::atomic_file::{Existing, AtomicFile};
///
/// # let folder = std::env::temp_dir().join(format!("atomic-file-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let target = folder.join("file");
/// let file = AtomicFile::create(&target, 0o666)?;
/// file.file().write_all(b"whole")?;
/// assert!(!target.exists());
/// file.commit(Existing::Keep)?;
/// assert_eq!(std::fs::read(&target)?, b"whole");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    file: File,
    folder: OwnedFd,
    name: OsString,
    /// The file's hidden name until the commit, on file systems without unnamed files or if the
    /// file must outlive this process.
    hidden: Option<OsString>,
    /// Whether the file keeps the hidden name if it is never committed.
    is_kept: bool,
    /// Whether leftovers of earlier processes are kept.
    keeps_leftovers: bool,
    /// Whether the file is synced to the disk before it gets its name, and the folder afterwards.
    is_durable: bool,
    /// Whether the descriptor for writing is closed, which has reported the errors of all writes.
    has_ended_writes: bool,
}

impl AtomicFile {
    /// Creates the file for `target`, with these permissions less the process's umask.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the path ends in no name, `ENOTDIR` if it ends in a slash, and as open(2) in the
    /// target's folder.
    pub fn create(target: &Path, mode: u32) -> io::Result<Self> {
        let name = target.file_name().ok_or(Errno::INVAL)?.to_owned();
        if names_folder(target) {
            return Err(Errno::NOTDIR.into());
        }
        Self::create_in(folder_at(CWD, folder_of(target))?, &name, mode)
    }

    /// Creates the file for a name in an open folder.
    ///
    /// # Errors
    ///
    /// As open(2).
    pub fn create_in(folder: OwnedFd, name: &OsStr, mode: u32) -> io::Result<Self> {
        Self::create_with(folder, name, mode, false)
    }

    /// Creates the file as [`create_in`](Self::create_in) does,
    /// [`keeping_leftovers`](Self::keeping_leftovers).
    ///
    /// # Errors
    ///
    /// As open(2).
    pub fn create_keeping_leftovers(folder: OwnedFd, name: &OsStr, mode: u32) -> io::Result<Self> {
        Self::create_with(folder, name, mode, true)
    }

    fn create_with(
        folder: OwnedFd,
        name: &OsStr,
        mode: u32,
        keeps_leftovers: bool,
    ) -> io::Result<Self> {
        let name = name.to_owned();
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let (file, hidden) = match openat(&folder, ".", flags, mode) {
            Ok(file) => (file, None),
            // The file system or the kernel has no unnamed files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
                let (file, hidden) = hidden::create(&folder, &name, mode, keeps_leftovers)?;
                (file, Some(hidden))
            }
            // This is how ext4 reports a removed folder.
            Err(Errno::PERM) if fstat(&folder)?.st_nlink == 0 => return Err(Errno::NOENT.into()),
            Err(errno) => return Err(errno.into()),
        };
        let file = file.into();
        let mut new_file = Self::new(file, folder, name, hidden);
        new_file.keeps_leftovers = keeps_leftovers;
        Ok(new_file)
    }

    /// Keeps the leftovers of earlier processes, for callers that copy entries with hidden names.
    #[must_use]
    pub fn keeping_leftovers(mut self) -> Self {
        self.keeps_leftovers = true;
        self
    }

    /// Creates or continues a file that outlives this process under the name `partial` until it is
    /// complete. If it is dropped without a [`commit`](Self::commit), it is kept.
    ///
    /// # Errors
    ///
    /// As open(2); `ELOOP` if the partial name is a link, and `EPERM` if the existing file is not
    /// [of this user](is_ours) alone: others could still write to the complete file.
    pub fn partial(
        folder: OwnedFd,
        name: &OsStr,
        partial: &OsStr,
        mode: u32,
        existing: Existing,
    ) -> io::Result<Self> {
        let file = hidden::open_or_create(&folder, partial, Mode::from_raw_mode(mode), existing)?;
        let mut new_file = Self::new(file, folder, name.to_owned(), Some(partial.to_owned()));
        new_file.is_kept = true;
        Ok(new_file)
    }

    fn new(file: File, folder: OwnedFd, name: OsString, hidden: Option<OsString>) -> Self {
        let (is_kept, keeps_leftovers, is_durable, has_ended_writes) = (false, false, false, false);
        Self { file, folder, name, hidden, is_kept, keeps_leftovers, is_durable, has_ended_writes }
    }

    /// Gives an unnamed file a name under which it outlives this process, so that
    /// [`partial`](Self::partial) can continue it.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the name is taken, `EPERM` if the folder is append-only, so that the file could
    /// not be renamed later, and as linkat(2) and rename(2).
    pub fn keep_as(mut self, partial: &OsStr) -> io::Result<()> {
        if only_adds(&self.folder) {
            return Err(Errno::PERM.into());
        }
        match self.hidden.take() {
            None => hidden::link(&self.file, &self.folder, partial)?,
            Some(hidden) => {
                rename_new(&self.folder, &*hidden, &self.folder, partial)
                    .inspect_err(|_| self.hidden = Some(hidden))?;
            }
        }
        Ok(())
    }

    /// Renames a file that already has a hidden name, replacing an older file of the new name. The
    /// new name is kept just as the old one was. An unnamed file stays unnamed.
    ///
    /// # Errors
    ///
    /// As rename(2); the file then keeps its old name.
    pub fn rename_partial(&mut self, partial: &OsStr) -> io::Result<()> {
        if let Some(hidden) = &mut self.hidden {
            renameat(&self.folder, &*hidden, &self.folder, partial)?;
            *hidden = partial.to_owned();
        }
        Ok(())
    }

    /// Undoes [`partial`](Self::partial): from now on the file does not outlive this process, and
    /// if this process is killed, the next one removes the file.
    ///
    /// # Errors
    ///
    /// As rename(2); the file then keeps its old name, and is kept.
    pub fn end_partial(&mut self) -> io::Result<()> {
        if let Some(hidden) = self.hidden.as_mut().filter(|_| self.is_kept) {
            let (file, folder) = (&self.file, &self.folder);
            *hidden = hidden::rename(file, folder, hidden, &self.name, self.keeps_leftovers)?;
            self.is_kept = false;
        }
        Ok(())
    }

    /// Removes the file, even one that [`partial`](Self::partial) would keep.
    pub fn discard(mut self) {
        self.is_kept = false;
    }

    /// Makes [`commit`](Self::commit) durable: a power cut afterwards leaves the whole file under
    /// its name. It calls fsync(2) on the file before, and on the folder after.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.is_durable = true;
        self
    }

    /// Returns the open file, for writing.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns whether no other process can see the file yet: it has not even a hidden name.
    #[must_use]
    pub const fn is_unnamed(&self) -> bool {
        self.hidden.is_none()
    }

    /// Reserves space for `len` bytes, where the file system can, so that a full disk is noticed
    /// before the first byte.
    ///
    /// # Errors
    ///
    /// `ENOSPC`, `EDQUOT` or `EFBIG`, as fallocate(2).
    pub fn reserve(&self, len: u64) -> io::Result<()> {
        Ok(reserve(&self.file, 0, len)?)
    }

    /// Waits until the file is on the disk, as a [`durable`](Self::durable) file does before it
    /// gets its name.
    ///
    /// # Errors
    ///
    /// As fsync(2) and [`check_writes`].
    ///
    /// # On failure
    ///
    /// Any of its bytes may be lost. The file is removed when it is dropped, even one that
    /// [`partial`](Self::partial) would keep.
    pub fn sync(&mut self) -> io::Result<()> {
        self.settle(true)
    }

    /// Keeps the file open for reading only, where the kernel can reopen it, so that a reader of
    /// its new name does not find a file that is open for writing.
    ///
    /// # Errors
    ///
    /// As close(2): see [`check_writes`].
    ///
    /// # On failure
    ///
    /// As for [`sync`](Self::sync).
    pub fn end_writes(&mut self) -> io::Result<()> {
        // The lock on an ordinary hidden name would end with the first descriptor.
        if (self.is_unnamed() || self.is_kept)
            && let Ok(file) = reopen(self.file.as_fd())
        {
            let written = std::mem::replace(&mut self.file, file.into());
            close(written.into()).inspect_err(|_| self.is_kept = false)?;
            self.has_ended_writes = true;
        }
        Ok(())
    }

    fn settle(&mut self, is_synced: bool) -> io::Result<()> {
        let synced = if is_synced { self.file.sync_all() } else { Ok(()) };
        let settled = if self.has_ended_writes {
            synced
        } else {
            synced.and_then(|()| Ok(check_writes(&self.file)?))
        };
        settled.inspect_err(|_| self.is_kept = false)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the name is taken and [`Existing::Keep`] was requested, `ESTALE` if another file
    /// has the hidden name now, and as [`check_writes`], linkat(2) and rename(2); if it is
    /// [`durable`](Self::durable), also as fsync(2).
    ///
    /// # On failure
    ///
    /// The name is as it was before. Nothing else is left, except what [`partial`](Self::partial)
    /// keeps, and not even that if bytes may be lost. If only the fsync(2) of the folder failed,
    /// the name has the new file, which is whole and on the disk, and a power cut may give the name
    /// back to the old one.
    pub fn commit(mut self, existing: Existing) -> io::Result<()> {
        self.settle(self.is_durable)?;
        self.give_name(existing)?;
        if self.is_durable {
            sync_folder(&self.folder, fsync)?;
        }
        Ok(())
    }

    /// Gives the file its name by calling `rename` with the folder, a hidden name that the file has
    /// until then, and the final name. It is for replacing in several steps.
    ///
    /// # Errors
    ///
    /// Those of `rename`, as linkat(2) in the folder, as [`check_writes`], and as fsync(2) if it is
    /// [`durable`](Self::durable).
    ///
    /// # On failure
    ///
    /// The hidden name is removed, if the file still has it.
    pub fn commit_by<T>(
        mut self,
        rename: impl FnOnce(BorrowedFd<'_>, &OsStr, &OsStr) -> io::Result<T>,
    ) -> io::Result<T> {
        self.settle(self.is_durable)?;
        let hidden = match self.hidden.take() {
            Some(hidden) => hidden,
            None => hidden::name(&self.file, &self.folder, &self.name, self.keeps_leftovers)?,
        };
        self.hidden = Some(hidden.clone());
        let renamed = rename(self.folder.as_fd(), &hidden, &self.name)?;
        self.hidden = None;
        Ok(renamed)
    }

    /// Gives the file its name, and removes the hidden one.
    fn give_name(&mut self, existing: Existing) -> Result<(), Errno> {
        let (file, folder) = (&self.file, &self.folder);
        if self.hidden.take_if(|hidden| is_replaced(file, folder, hidden)).is_some() {
            return Err(Errno::STALE);
        }
        let folder = &self.folder;
        match (self.hidden.clone(), existing) {
            (None, Existing::Keep) => hidden::link(&self.file, folder, &self.name)?,
            (None, Existing::Replace) => {
                // An unnamed file can only be linked to a free name, and only a rename replaces.
                match hidden::link(&self.file, folder, &self.name) {
                    Err(Errno::EXIST) => {
                        let hidden =
                            hidden::name(&self.file, folder, &self.name, self.keeps_leftovers)?;
                        self.hidden = Some(hidden.clone());
                        renameat(folder, &hidden, folder, &self.name)?;
                    }
                    linked => linked?,
                }
            }
            (Some(hidden), Existing::Keep) => {
                let flags = RenameFlags::NOREPLACE;
                match renameat_with(folder, &hidden, folder, &self.name, flags) {
                    // This file system cannot rename without replacing: link to the new name, and
                    // let `drop` remove the old one.
                    Err(Errno::INVAL | Errno::NOSYS) => {
                        match linkat(folder, &hidden, folder, &self.name, AtFlags::empty()) {
                            // There are no hard links either.
                            Err(errno) if lacks_links(errno, folder) => {
                                rename_new(folder, &*hidden, folder, &*self.name)?;
                                self.hidden = None;
                            }
                            linked => linked?,
                        }
                        self.is_kept = false;
                        return Ok(());
                    }
                    renamed => renamed?,
                }
            }
            (Some(hidden), Existing::Replace) => renameat(folder, &hidden, folder, &self.name)?,
        }
        self.hidden = None;
        Ok(())
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(hidden) = self.hidden.as_ref().filter(|_| !self.is_kept) {
            // Nothing can be done about a file that cannot be removed; its name shows that it is
            // incomplete.
            let _ = unlinkat(&self.folder, hidden, AtFlags::empty());
        }
    }
}

/// Closes a duplicate of the descriptor to see the errors of earlier writes.
///
/// # Errors
///
/// As close(2): network file systems and FUSE may report `EDQUOT`, `EIO` or `ENOSPC` only at the
/// close of a descriptor. As fcntl(2) for `F_DUPFD`.
pub fn check_writes(file: impl AsFd) -> Result<(), Errno> {
    close(fcntl_dupfd_cloexec(file, 0)?)
}

/// Syncs the names in a folder to the disk by `sync`, fsync(2) or syncfs(2).
///
/// # Errors
///
/// As openat(2) and `sync`. A folder that may be written to but not read, or a file system that
/// cannot sync a folder, is no error.
pub fn sync_folder(
    folder: impl AsFd,
    sync: impl FnOnce(OwnedFd) -> Result<(), Errno>,
) -> Result<(), Errno> {
    match reopen_folder(folder).and_then(sync) {
        Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Returns whether a name now belongs to another file: a rename would give that one the final name.
fn is_replaced(file: &File, folder: &OwnedFd, name: &OsStr) -> bool {
    let (Ok(own), Ok(named)) = (fstat(file), statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
    else {
        return false;
    };
    // Some file systems do not give a file the same inode number each time.
    let facts = |stat: &Stat| (stat.st_mode, stat.st_size, mtime(stat));
    FileId::of(&own) != FileId::of(&named) && facts(&own) != facts(&named)
}

/// Reads the umask of the process, the bits that the kernel clears in the mode of new files; `None`
/// without `/proc`. umask(2) could read it only by changing it for a moment, which other threads
/// would notice.
#[must_use]
pub fn umask() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(mask.trim(), 8).ok()
}
