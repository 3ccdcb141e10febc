//! Works on whole folder trees through descriptors: no link is followed on the way down, so a name
//! that is replaced by a link at any moment leads nowhere.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, StatxFlags, fchmod, fstat, fsync, ftruncate, futimens,
    mkdirat, openat, readlinkat, statx, symlinkat, utimensat,
};
use rustix::io::Errno;
use underpass_copy::{
    self as copy, CopyError, CopyObserver, CopyOptions, Preserve, PreserveXattrs, copy_folder,
    times,
};
use underpass_engine::atomic_file::{self, check_writes, open_entry, stat_entry, sync_folder};
use underpass_engine::wait::{lock, unpoison};
use underpass_engine::{
    Integrity, Options, Report, Sink, Source, Transfer, Version, data_ranges, errno,
};
use underpass_sys::open_beneath;

use crate::changes::dav::dead_properties;
use crate::changes::hidden_name::is_aside;
use crate::changes::refusal::{ChangeRefusal, FailedEntry, Result, hidden_inside};
use crate::files::root::{is_incomplete, open_unleased};

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
        let folder = open_folder(parent.as_fd(), name).map_err(ChangeRefusal::of_reading)?;
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
        let folder = match open_inside(self.top, inside) {
            Ok(folder) => folder,
            // Another request has removed it.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => {
                let refusal = ChangeRefusal::of_reading(errno);
                let failed = FailedEntry::new(&self.path, true, refusal);
                return Err(ChangeRefusal::of_entries(vec![failed]));
            }
        };
        let mount = mount_of(&folder)?;
        if !self.check.crosses_mounts && mount != above {
            // A mount point is refused before anything is removed from it.
            return Err(Errno::BUSY.into());
        }
        let (mut folders, mut checked) = (Vec::new(), Ok(()));
        let len = self.path.len();
        for_each_name(&folder, depth, &mut |name| {
            if checked.is_ok() {
                checked = self.entry(&folder, name, &mut folders);
                self.path.truncate(len);
            }
        })?;
        checked?;
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

    /// Checks an entry of a folder, and adds it to `folders` if it is one.
    fn entry(&mut self, folder: &OwnedFd, name: &CStr, folders: &mut Vec<CString>) -> Result<()> {
        if is_incomplete(name.to_bytes()) && !is_aside(name.to_bytes()) {
            // A part of an upload, whose destination will be gone then.
            return Ok(());
        }
        let stat = stat_entry(folder, name)?;
        let is_folder = stat.is_some_and(|stat| kind(&stat) == FileType::Directory);
        push(&mut self.path, name);
        if (self.check.is_kept)(&self.path, is_folder) {
            return Err(hidden_inside());
        }
        if is_folder {
            folders.push(name.to_owned());
        }
        Ok(())
    }
}

/// Returns the mount of a folder; 0 on kernels before 5.8, which do not report it.
fn mount_of(folder: &OwnedFd) -> Result<u64, Errno> {
    Ok(statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id)
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
    /// Whether a copied [folder](Self::folder) or [leaf](Self::leaf) is on the disk, except for its
    /// own name, when the call returns. A link is only synced with its folder.
    pub(crate) is_synced: bool,
    /// The report of the moved bytes.
    pub(crate) report: Report,
}

impl<'a> TreeCopy<'a> {
    pub(crate) fn new(
        excludes: &'a (dyn Fn(&[u8], bool) -> bool + Sync),
        has_room: &'a (dyn Fn(BorrowedFd<'_>, u64) -> bool + Sync),
        is_whole: bool,
        is_synced: bool,
    ) -> Self {
        Self { excludes, has_room, is_whole, is_synced, report: Report::default() }
    }

    /// Creates a folder and copies the content of `from` into it, which lies at `path`; with
    /// `None`, only the folder itself is copied.
    pub(crate) fn folder(
        &mut self,
        from: &OwnedFd,
        path: Option<&[u8]>,
        parent: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<()> {
        let Some(path) = path else {
            let mode = mode_of(from.as_fd(), &fstat(from)?);
            mkdirat(parent, name, mode | Mode::RWXU)?;
            let folder = open_folder(parent, name)?;
            dead_properties::copy(from, &folder);
            finish(from.as_fd(), &folder)?;
            let synced = if self.is_synced { sync_folder(&folder, fsync) } else { Ok(()) };
            return Ok(synced?);
        };
        let options = CopyOptions {
            recursive: true,
            stop_early: true,
            sync: self.is_synced,
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
        // The new folder may lie in the copied one.
        let is_target =
            |error: &CopyError| matches!(error, CopyError::Overlap(copy::Overlap::IsTarget { .. }));
        let failed = outcome.problems.into_iter().find(|error| !is_target(error));
        refusal.or(failed.map(|error| not_copied(error, from.as_fd(), name))).map_or(Ok(()), Err)
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
        let source = open_unleased(|| open_entry(from, name)).map_err(ChangeRefusal::of_reading)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target = openat(to, new_name, flags, Mode::RUSR | Mode::WUSR)?;
        self.file(&source, &target)?;
        let synced = if self.is_synced { fsync(&target) } else { Ok(()) };
        Ok(synced?)
    }

    /// Copies a file's bytes, mode and times to a new file. Its owner is the server's user, so
    /// set-user-id and set-group-id are not kept.
    pub(crate) fn file(&mut self, from: impl AsFd, to: impl AsFd) -> Result<()> {
        let stat = fstat(&from)?;
        let version = Version::from_stat(&stat);
        let len = version.size();
        let has_holes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512 < len;
        let ranges = || data_ranges(from.as_fd(), 0..len);
        let needed = if has_holes {
            ranges().try_fold(0, |sum, range| range.map(|(_, len)| sum + len))?
        } else {
            len
        };
        if !(self.has_room)(to.as_fd(), needed) {
            return Err(Errno::NOSPC.into());
        }
        let (source, sink) = (Source::of(from.as_fd())?, Sink::of(to.as_fd())?);
        if has_holes {
            for range in ranges() {
                let (at, len) = range?;
                let source = source.clone().at(at).len(len).version(version);
                self.transfer(source, sink.clone().at(at))?;
            }
            ftruncate(&to, len)?;
            if Version::of(&from)?.differs_from(&version) {
                return Err(ChangeRefusal::written_to());
            }
        } else {
            self.transfer(source, sink)?;
        }
        fchmod(&to, mode_of(from.as_fd(), &stat))?;
        dead_properties::copy(&from, &to);
        futimens(&to, &times(&stat))?;
        Ok(check_writes(&to)?)
    }

    fn transfer(&mut self, source: Source<impl AsFd>, sink: Sink<impl AsFd>) -> Result<()> {
        let options = Options::default().integrity(Integrity::Detect).reserve();
        self.report.add(&Transfer::new(source, sink).options(options).run()?);
        Ok(())
    }
}

/// Creates the refusal of the copy of a folder, with the entry that could not be copied, unless it
/// is the folder itself, or failed in the new folder of this name.
fn not_copied(error: CopyError, from: BorrowedFd<'_>, new_name: &CStr) -> ChangeRefusal {
    let path = match &error {
        CopyError::Path { path, .. } | CopyError::Transfer { from: path, .. } => path,
        _ => return error.into(),
    };
    let inside = path.strip_prefix(".").unwrap_or(path).as_os_str().as_bytes().to_vec();
    let is_copy = path.as_os_str().as_bytes().starts_with(new_name.to_bytes());
    if is_copy || inside.is_empty() {
        return error.into();
    }
    let is_folder = open_beneath(from, &inside, OFlags::PATH | OFlags::DIRECTORY).is_ok();
    let refusal = match error {
        CopyError::Path { source, .. } => ChangeRefusal::of_reading(errno::of(source)),
        error => error.into(),
    };
    match refusal.status {
        403..=409 => ChangeRefusal::of_entries(vec![FailedEntry::new(&inside, is_folder, refusal)]),
        _ => refusal,
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
fn finish(from: BorrowedFd<'_>, to: &OwnedFd) -> Result<(), Errno> {
    let stat = fstat(from)?;
    // Set-group-id is not copied, but inherited from the parent. chmod(2) clears it on a folder
    // whose group this process is not in.
    let now = Mode::from_raw_mode(fstat(to)?.st_mode);
    let mode = mode_of(from, &stat) | now & Mode::SGID;
    if mode != now {
        fchmod(to, mode)?;
    }
    futimens(to, &times(&stat))
}

/// Returns the mode of a copy, which has another owner and no ACL of its original.
fn mode_of(from: BorrowedFd<'_>, stat: &Stat) -> Mode {
    Mode::from_raw_mode(atomic_file::without_acl(from, stat.st_mode) & 0o1777)
}

/// Opens a folder below another one without following links. Folders are opened again by their path
/// instead of being kept open, so that a deep tree does not take a descriptor for each level.
pub(super) fn open_inside(top: BorrowedFd<'_>, inside: &[u8]) -> Result<OwnedFd, Errno> {
    open_beneath(top, inside, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Appends a name to a path.
fn push(path: &mut Vec<u8>, name: &CStr) {
    path.push(b'/');
    path.extend_from_slice(name.to_bytes());
}

/// Appends a name to a path that is relative to the top folder and may be empty.
pub(super) fn push_inside(inside: &mut Vec<u8>, name: &CStr) {
    if !inside.is_empty() {
        inside.push(b'/');
    }
    inside.extend_from_slice(name.to_bytes());
}

/// Returns the type: a file, a folder, a link or something else.
pub(crate) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens a folder to read the names in it.
pub(crate) fn open_folder(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

/// Calls `visit` with each name in a folder at this depth, with none if the folder was removed
/// meanwhile; fails if the folder is too deep.
pub(super) fn for_each_name(
    folder: &OwnedFd,
    depth: usize,
    visit: &mut dyn FnMut(&CStr),
) -> Result<()> {
    if depth >= MAX_DEPTH {
        return Err(ChangeRefusal::new(409, TOO_DEEP));
    }
    match atomic_file::for_each_name(folder, visit) {
        Err(Errno::NOENT) => Ok(()),
        read => Ok(read?),
    }
}

/// The maximum depth of folders, which bounds the stack.
const MAX_DEPTH: usize = 500;

const TOO_DEEP: &str = "the folders are nested too deeply";

/// The maximum number of descriptors that the copy of a tree may take.
const MAX_OPEN_FILES: u64 = 64;
