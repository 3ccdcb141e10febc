//! Works on whole folder trees through descriptors: no link is followed on the way down, so a name
//! that is replaced by a link at any moment leads nowhere.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, StatxFlags, Timespec, fchmod, fstat, futimens, mkdirat,
    openat, readlinkat, statat, statx, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use underpass_copy::{
    self as copy, CopyError, CopyObserver, CopyOptions, Preserve, PreserveXattrs, copy_folder,
    times,
};
use underpass_engine::atomic_file;
use underpass_engine::wait::{lock, unpoison};
use underpass_engine::{FileId, Integrity, Options, Report, Sink, Source, Transfer, Version};
use underpass_sys::open_beneath;

use crate::changes::dav::dead_properties;
use crate::changes::refusal::{ChangeRefusal, Result};
use underpass_protocol::upload::is_partial_name;

/// Checks a folder for entries that prevent its removal or move.
pub(crate) struct TreeCheck<'a> {
    /// Returns whether an entry must be kept; the flag is true for a folder.
    pub(crate) is_kept: &'a dyn Fn(&[u8], bool) -> bool,
    /// Whether other file systems may be mounted in it.
    pub(crate) crosses_mounts: bool,
}

impl TreeCheck<'_> {
    /// Checks everything in a folder, which lies at `path`.
    ///
    /// # Errors
    ///
    /// If an entry must be kept, or cannot be checked.
    pub(crate) fn run(&self, parent: &OwnedFd, name: &CStr, path: &[u8]) -> Result<()> {
        let folder = open_folder(parent.as_fd(), name)?;
        let mut walk = CheckWalk { check: self, top: folder.as_fd(), path: path.to_vec() };
        walk.folder(mount_of(parent)?, &mut Vec::new(), 0)
    }
}

/// The state of a check.
struct CheckWalk<'c> {
    check: &'c TreeCheck<'c>,
    top: BorrowedFd<'c>,
    /// The path of the current entry, from the root.
    path: Vec<u8>,
}

impl CheckWalk<'_> {
    /// Checks the folder `inside` the top one, whose parent is in the mount `above`.
    fn folder(&mut self, above: u64, inside: &mut Vec<u8>, depth: usize) -> Result<()> {
        let folder = open_inside(self.top, inside)?;
        let mount = mount_of(&folder)?;
        if !self.check.crosses_mounts && mount != above {
            // A mount point is refused before anything is removed from it.
            return Err(Errno::BUSY.into());
        }
        let mut folders = Vec::new();
        let len = self.path.len();
        for name in names(&folder, depth)? {
            if is_partial_name(name.to_bytes()) {
                // It is a part of an upload, which will have no destination then.
                continue;
            }
            let stat = stat_entry(&folder, &name)?;
            let is_folder = stat.is_some_and(|stat| kind(&stat) == FileType::Directory);
            push(&mut self.path, &name);
            let is_kept = (self.check.is_kept)(&self.path, is_folder);
            self.path.truncate(len);
            if is_kept {
                return Err(ChangeRefusal::new(403, "the folder contains hidden entries"));
            }
            if is_folder {
                folders.push(name);
            }
        }
        drop(folder);
        let inside_len = inside.len();
        for name in folders {
            push(&mut self.path, &name);
            push_inside(inside, &name);
            self.folder(mount, inside, depth + 1)?;
            inside.truncate(inside_len);
            self.path.truncate(len);
        }
        Ok(())
    }
}

/// Returns the mount of a folder; 0 on kernels before 5.8, which do not report it.
fn mount_of(folder: &OwnedFd) -> Result<u64, Errno> {
    Ok(statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
}

/// Removes the entry of a name, a folder with everything in it.
///
/// # Errors
///
/// `ENOENT` if there is none; otherwise the errors of the system.
///
/// # On failure
///
/// A part of it may be gone; entries that the system refused to remove, and the folders above them,
/// remain.
pub(crate) fn remove(parent: BorrowedFd<'_>, name: &CStr) -> Result<()> {
    remove_unless(parent, name, &mut |_| false)
}

/// Removes the original of a copy that was begun at this time. What was changed since then, or came
/// since then, may not be in the copy: it remains, and so do the folders above it.
pub(crate) fn remove_copied(parent: BorrowedFd<'_>, name: &CStr, began: SystemTime) -> Result<()> {
    let began = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let began = Timespec::try_from(began).unwrap_or_default();
    let mut linked = HashSet::new();
    let mut is_changed = |stat: &Stat| {
        let version = Version::from_stat(stat);
        // Removing one name of a file changes the ctime of the others.
        let is_known = linked.contains(&FileId::of(stat));
        if version.links() > 1 {
            linked.insert(FileId::of(stat));
        }
        (if is_known { version.modified() } else { version.changed() }) > began
    };
    remove_unless(parent, name, &mut is_changed)
}

/// Removes an entry, in a folder all but the files and links that `keeps` returns true for.
fn remove_unless(
    parent: BorrowedFd<'_>,
    name: &CStr,
    keeps: &mut dyn FnMut(&Stat) -> bool,
) -> Result<()> {
    let stat = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if kind(&stat) != FileType::Directory {
        return Ok(unlinkat(parent, name, AtFlags::empty())?);
    }
    let folder = open_folder(parent, name)?;
    empty(folder.as_fd(), &mut Vec::new(), 0, keeps)?;
    Ok(unlinkat(parent, name, AtFlags::REMOVEDIR)?)
}

/// Removes everything in the folder `inside` the top one that is not kept.
fn empty(
    top: BorrowedFd<'_>,
    inside: &mut Vec<u8>,
    depth: usize,
    keeps: &mut dyn FnMut(&Stat) -> bool,
) -> Result<()> {
    let folder = open_inside(top, inside)?;
    let mut folders = Vec::new();
    // An abandoned copy may be one level deeper than its original.
    for name in names(&folder, depth.saturating_sub(1))? {
        match stat_entry(&folder, &name)? {
            Some(stat) if kind(&stat) == FileType::Directory => folders.push(name),
            Some(stat) if keeps(&stat) => {}
            Some(_) => ignore_missing(unlinkat(&folder, &name, AtFlags::empty()))?,
            None => {}
        }
    }
    drop(folder);
    if folders.is_empty() {
        return Ok(());
    }
    let len = inside.len();
    for name in &folders {
        push_inside(inside, name);
        let emptied = empty(top, inside, depth + 1, keeps);
        inside.truncate(len);
        match emptied {
            Err(refusal) if refusal == Errno::NOENT.into() => {}
            outcome => outcome?,
        }
    }
    let folder = open_inside(top, inside)?;
    for name in &folders {
        ignore_missing(unlinkat(&folder, name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

/// Treats an entry that is gone already as removed.
fn ignore_missing(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

/// Copies folders and files.
pub(crate) struct TreeCopy<'a> {
    /// Returns whether a path is left out; the flag is true for a folder.
    pub(crate) excludes: &'a (dyn Fn(&[u8], bool) -> bool + Sync),
    /// Returns whether a file of this size fits into the file system of the given one.
    pub(crate) has_room: &'a (dyn Fn(BorrowedFd<'_>, u64) -> bool + Sync),
    /// Whether to fail at an entry that cannot be copied, such as a pipe or a device, instead of
    /// leaving it out.
    pub(crate) is_whole: bool,
    /// The report of the moved bytes.
    pub(crate) report: Report,
}

impl<'a> TreeCopy<'a> {
    pub(crate) fn new(
        excludes: &'a (dyn Fn(&[u8], bool) -> bool + Sync),
        has_room: &'a (dyn Fn(BorrowedFd<'_>, u64) -> bool + Sync),
        is_whole: bool,
    ) -> Self {
        Self { excludes, has_room, is_whole, report: Report::default() }
    }

    /// Makes a folder and copies into it the content of another one, which lies at the given path;
    /// with `None`, only the folder itself is copied.
    pub(crate) fn folder(
        &mut self,
        from: &OwnedFd,
        path: Option<&[u8]>,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<()> {
        let Some(path) = path else {
            mkdirat(parent, name, Mode::RWXU)?;
            let folder = open_folder(parent, name)?;
            dead_properties::copy(from, &folder);
            return Ok(finish(&folder, &fstat(from)?)?);
        };
        let options = CopyOptions {
            recursive: true,
            stop_early: true,
            jobs: 1,
            max_open_files: MAX_OPEN_FILES,
            preserve: Preserve {
                xattrs: PreserveXattrs::One(dead_properties::NAME),
                ..Preserve::default()
            },
            ..CopyOptions::default()
        };
        let cancel = AtomicBool::new(false);
        let rules =
            Rules { copying: self, path, to: parent, cancel: &cancel, refusal: Mutex::default() };
        let outcome = copy_folder(&options, from.as_fd(), parent, name, &rules, &cancel)?;
        let refusal = unpoison(rules.refusal.into_inner());
        self.report.add(&outcome.totals.report());
        // The new folder may lie in the one that is copied.
        let is_target = |error: &CopyError| {
            matches!(error, CopyError::Refused(copy::CopyRefusal::IsTarget { .. }))
        };
        let failed = outcome.problems.into_iter().find(|error| !is_target(error));
        refusal.or(failed.map(ChangeRefusal::from)).map_or(Ok(()), Err)
    }

    /// Copies a file, or a link as it is, to a name that is free.
    pub(crate) fn leaf(
        &mut self,
        from: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        to: BorrowedFd<'_>,
        new_name: &CStr,
    ) -> Result<()> {
        if kind(stat) == FileType::Symlink {
            symlinkat(readlinkat(from, name, Vec::new())?, to, new_name)?;
            return Ok(utimensat(to, new_name, &times(stat), AtFlags::SYMLINK_NOFOLLOW)?);
        }
        // This keeps a pipe that was put there meanwhile from waiting for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = openat(from, name, flags, Mode::empty())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target = openat(to, new_name, flags, Mode::RUSR | Mode::WUSR)?;
        self.file(&source, &target)
    }

    /// Copies a file's bytes, mode and times to a new file. Its owner is the server's user, so
    /// set-user-id and set-group-id are not kept.
    pub(crate) fn file(&mut self, from: impl AsFd, to: impl AsFd) -> Result<()> {
        let stat = fstat(&from)?;
        if !(self.has_room)(to.as_fd(), u64::try_from(stat.st_size).unwrap_or(0)) {
            return Err(Errno::NOSPC.into());
        }
        let source = Source::of(from.as_fd())?;
        let options = Options::default().integrity(Integrity::Detect).reserve();
        let transfer = Transfer::new(source, Sink::of(to.as_fd())?).options(options);
        self.report.add(&transfer.run()?);
        fchmod(&to, Mode::from_raw_mode(stat.st_mode & 0o1777))?;
        dead_properties::copy(&from, &to);
        Ok(futimens(&to, &times(&stat))?)
    }
}

/// The rules of copying a folder: which entries are left out, and when to fail.
struct Rules<'a> {
    copying: &'a TreeCopy<'a>,
    /// The path of the folder.
    path: &'a [u8],
    /// The folder that the copy is put in.
    to: BorrowedFd<'a>,
    cancel: &'a AtomicBool,
    /// The reason why the copy was aborted.
    refusal: Mutex<Option<ChangeRefusal>>,
}

impl Rules<'_> {
    fn give_up(&self, refusal: ChangeRefusal) {
        self.cancel.store(true, Ordering::Relaxed);
        lock(&self.refusal).get_or_insert(refusal);
    }
}

impl CopyObserver for Rules<'_> {
    fn filters(&self) -> bool {
        true
    }

    fn excludes(&self, inside: &[u8], kind: FileType) -> bool {
        let path = [self.path, b"/", inside].concat();
        if (self.copying.excludes)(&path, kind == FileType::Directory) {
            return true;
        }
        if inside.iter().filter(|byte| **byte == b'/').count() >= MAX_DEPTH {
            self.give_up(ChangeRefusal::new(409, TOO_DEEP));
        }
        if matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink) {
            return false;
        }
        if self.copying.is_whole {
            let detail = "pipes, sockets and devices cannot be moved to another file system";
            self.give_up(ChangeRefusal::new(403, detail));
        }
        true
    }

    fn has_room(&self, len: u64) -> bool {
        (self.copying.has_room)(self.to, len)
    }
}

/// Gives a new folder the mode and times of its original.
fn finish(to: &OwnedFd, stat: &Stat) -> Result<(), Errno> {
    // Set-group-id is not copied: the new folder inherits it from its parent if needed.
    fchmod(to, Mode::from_raw_mode(stat.st_mode & 0o1777))?;
    futimens(to, &times(stat))
}

/// Opens a folder below another one without following links. Folders are opened again by their path
/// instead of being kept open, so that a deep tree does not take a descriptor for each level.
fn open_inside(top: BorrowedFd<'_>, inside: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(top, inside, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Appends a name to a path.
fn push(path: &mut Vec<u8>, name: &CStr) {
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
}

/// Appends a name to a path that is relative to the top folder and may be empty.
fn push_inside(inside: &mut Vec<u8>, name: &CStr) {
    if !inside.is_empty() {
        inside.push(b'/');
    }
    inside.extend_from_slice(name.to_bytes());
}

/// Returns the type: a file, a folder, a link or something else.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Returns the attributes of the entry of a name; `None` if there is none.
pub(crate) fn stat_entry(folder: impl AsFd, name: &CStr) -> Result<Option<Stat>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    }
}

/// Opens a folder to read the names in it.
pub(crate) fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Returns the names in a folder at this depth; fails if it is too deep.
fn names(folder: &OwnedFd, depth: usize) -> Result<Vec<CString>> {
    if depth >= MAX_DEPTH {
        return Err(ChangeRefusal::new(409, TOO_DEEP));
    }
    Ok(atomic_file::names(folder)?)
}

/// The maximum depth of folders, which bounds the stack.
const MAX_DEPTH: usize = 500;

const TOO_DEEP: &str = "the folders are nested too deeply";

/// The maximum number of descriptors that the copy of a tree may take.
const MAX_OPEN_FILES: u64 = 64;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_came_after_a_copy_was_begun_is_not_removed_with_the_original() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("original/inner")).unwrap();
        fs::write(at("original/file"), "x").unwrap();
        fs::hard_link(at("original/file"), at("original/link")).unwrap();
        fs::write(at("original/inner/file"), "y").unwrap();
        let parent = fs::File::open(folder.path()).unwrap();
        let began = SystemTime::now();
        // Files get the time of the last tick of the clock.
        std::thread::sleep(Duration::from_millis(25));
        fs::write(at("original/inner/new"), "z").unwrap();
        let outcome = remove_copied(parent.as_fd(), c"original", began);
        assert_eq!(outcome, Err(Errno::NOTEMPTY.into()));
        assert_eq!(fs::read(at("original/inner/new")).unwrap(), b"z");
        assert!(!at("original/file").exists() && !at("original/link").exists());
        assert!(!at("original/inner/file").exists());
        let now = SystemTime::now() + Duration::from_secs(1);
        remove_copied(parent.as_fd(), c"original", now).unwrap();
        assert!(!at("original").exists());
    }
}
