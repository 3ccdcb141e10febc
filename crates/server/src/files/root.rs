//! The only way from a request to the file system: what is opened lies beneath the root, and the
//! kernel sees to it (openat2(2)), whatever the path says and whoever moves folders meanwhile.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fsync, mkdirat, openat, openat2,
    readlinkat, syncfs,
};
use rustix::io::Errno;

use crate::server::settings::{ServeError, Settings};
use crate::upload::is_partial_name;

/// What is served: a folder, or one file of a folder.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    /// The name of the one file that is served, if it is only one.
    only: Option<Vec<u8>>,
    hidden: Hidden,
    /// Whether links may lead out of the root.
    is_open: bool,
}

/// Whether opening may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Only what the kernel has in memory is opened; otherwise `EAGAIN`.
    None,
    /// The disk may be asked.
    Disk,
}

impl Root {
    /// Opens what the settings name.
    pub(crate) fn new(settings: &Settings) -> Result<Self, ServeError> {
        let path = &settings.root;
        let fail = |errno: Errno| ServeError::Root { path: path.clone(), source: errno.into() };
        let opened = open_path(path).map_err(fail)?;
        let kind = FileType::from_raw_mode(fstat(&opened).map_err(fail)?.st_mode);
        let hidden = Hidden::new(settings)?;
        if kind == FileType::Directory {
            let is_open = settings.allows_symlinks_outside;
            return Ok(Self { folder: opened, only: None, hidden, is_open });
        }
        if kind != FileType::RegularFile {
            return Err(fail(Errno::NOTSUP));
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = open_path(parent.unwrap_or_else(|| Path::new("."))).map_err(fail)?;
        let only = path.file_name().map(|name| name.as_bytes().to_vec());
        // It was named, wherever it leads to.
        Ok(Self { folder, only, hidden, is_open: true })
    }

    /// Whether only one file is served.
    pub(crate) fn is_file(&self) -> bool {
        self.only.is_some()
    }

    /// The path of the one file that is served, if a request for `path` means it.
    pub(crate) fn only(&self, path: &[u8]) -> Option<&[u8]> {
        self.only.as_deref().filter(|name| path.is_empty() || path == *name)
    }

    /// Opens a path that has no empty parts, no `.` and no `..`; empty for the root itself.
    ///
    /// # Errors
    ///
    /// As openat2(2); `ENOENT` for what is hidden, `EXDEV` for what lies outside, `EAGAIN` for
    /// what a disk has to be asked about if that is not wanted.
    pub(crate) fn open(&self, path: &[u8], patience: Patience) -> Result<OwnedFd, Errno> {
        self.open_reached(path, patience).map(|(file, _)| file)
    }

    /// The same, with the path that was reached if links beneath the root led to another one.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open); `ENOENT` also if the path that was reached is hidden.
    pub(crate) fn open_reached(
        &self,
        path: &[u8],
        patience: Patience,
    ) -> Result<(OwnedFd, Option<Vec<u8>>), Errno> {
        if self.only.as_deref().is_some_and(|only| only != path) {
            return Err(Errno::NOENT);
        }
        if self.only.is_none() && self.hides(path) {
            return Err(Errno::NOENT);
        }
        let mut resolve = self.resolve();
        if patience == Patience::None {
            resolve |= ResolveFlags::CACHED;
        }
        let asked = path;
        let path = if path.is_empty() { b"." } else { path };
        // A fifo must not wait for a writer, a terminal not become this process's own.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // Few paths have links in them: the others cost one call.
        let (mut attempts, mut links) = (0, ResolveFlags::NO_SYMLINKS);
        loop {
            match openat2(&self.folder, path, flags, Mode::empty(), resolve | links) {
                // Somebody renamed a folder on the way meanwhile.
                Err(Errno::AGAIN) if patience == Patience::Disk && attempts < ATTEMPTS => {
                    attempts += 1;
                }
                Err(Errno::LOOP) if !links.is_empty() => links = ResolveFlags::empty(),
                Ok(file) if links.is_empty() && self.only.is_none() => {
                    let reached = self.reached(&file)?;
                    if reached.as_deref().is_some_and(|reached| self.hides(reached)) {
                        return Err(Errno::NOENT);
                    }
                    self.refuse_hidden_folder(&file, asked)?;
                    self.refuse_hidden_folder(&file, reached.as_deref().unwrap_or_default())?;
                    return Ok((file, reached));
                }
                Ok(file) => {
                    self.refuse_hidden_folder(&file, asked)?;
                    return Ok((file, None));
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The path of something open; `None` if it is not beneath the root.
    ///
    /// # Errors
    ///
    /// As readlink(2), if there is no procfs.
    pub(crate) fn reached(&self, file: impl AsFd) -> Result<Option<Vec<u8>>, Errno> {
        let path_of = |file: &dyn AsFd| {
            let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            readlinkat(CWD, link, Vec::new()).map(std::ffi::CString::into_bytes)
        };
        let (root, path) = (path_of(&self.folder)?, path_of(&file)?);
        let inside = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root));
        Ok(match inside {
            Some([]) => Some(Vec::new()),
            Some([b'/', inside @ ..]) => Some(inside.to_vec()),
            _ => None,
        })
    }

    /// The path at which a change would be made, if links lead from this one to another: that of
    /// the folder, as far as it is there, with the rest behind it.
    ///
    /// # Errors
    ///
    /// As [`parent_of`](Self::parent_of).
    pub(crate) fn real_path(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let (mut above, _) = split(path);
        while !above.is_empty() && self.only.is_none() {
            let opened = match self.open_folder(above) {
                Ok(_) => return Ok(None),
                Err(Errno::LOOP) => self.open_linked_folder(above),
                Err(errno) => Err(errno),
            };
            match opened {
                Ok(folder) => {
                    let real = self.reached(&folder)?.ok_or(Errno::XDEV)?;
                    let slash: &[u8] = if real.is_empty() { b"" } else { b"/" };
                    return Ok(Some([&real, slash, &path[above.len() + 1..]].concat()));
                }
                // It may be about to be made, at the end of a link.
                Err(Errno::NOENT) => above = split(above).0,
                Err(errno) => return Err(errno),
            }
        }
        Ok(None)
    }

    /// Where a link of this path leads to; `None` if it is no link, or leads nowhere beneath the
    /// root.
    pub(crate) fn link_target(&self, path: &[u8]) -> Option<Vec<u8>> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = |links| openat2(&self.folder, path, flags, Mode::empty(), resolve | links);
        match open(ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => self.reached(open(ResolveFlags::empty()).ok()?).ok()?,
            _ => None,
        }
    }

    /// `ENOENT` for a folder at a path that is hidden where it is a folder.
    fn refuse_hidden_folder(&self, file: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
        if self.only.is_none() && self.hidden.matches(path, true) && is_folder(&fstat(file)?) {
            return Err(Errno::NOENT);
        }
        Ok(())
    }

    /// Whether a path is not to be known, whatever is there: one of its names is hidden, or that of an
    /// upload that is not whole.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        self.hidden.matches(path, false)
    }

    /// The same of something that is a folder, or is none. A link counts as what it leads to, which
    /// the file system is asked for only where it matters.
    pub(crate) fn hides_entry(&self, path: &[u8], is_folder_itself: bool) -> bool {
        if !self.hidden.matches(path, true) {
            return false;
        }
        is_folder_itself || self.hides(path) || self.look(path).is_ok_and(|stat| is_folder(&stat))
    }

    /// Whether a path in a folder is not to be known, by itself or by where links have led: the
    /// folder was asked for as `folder`, and is at `reached`.
    pub(crate) fn hides_reached(
        &self,
        path: &[u8],
        is_folder_itself: bool,
        folder: &[u8],
        reached: Option<&[u8]>,
    ) -> bool {
        if self.hides_entry(path, is_folder_itself) {
            return true;
        }
        let Some(reached) = reached.filter(|reached| *reached != folder) else { return false };
        let inside = path.get(folder.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        let slash: &[u8] = if reached.is_empty() { b"" } else { b"/" };
        self.hides_entry(&[reached, slash, inside].concat(), is_folder_itself)
    }

    /// The facts of what a path leads to, without opening it.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub(crate) fn look(&self, path: &[u8]) -> Result<Stat, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        fstat(openat2(&self.folder, path, flags, Mode::empty(), self.resolve())?)
    }

    /// The folder that a path lies in, open for the names in it, and the last name; `None` for the
    /// root itself, which lies in none.
    ///
    /// # Errors
    ///
    /// As openat2(2). Links on the way are not followed here, whatever the settings say of reading:
    /// `ELOOP`. Callers ask for the [`real_path`](Self::real_path) first, and for the right to it.
    pub(crate) fn parent_of<'p>(
        &self,
        path: &'p [u8],
    ) -> Result<Option<(OwnedFd, &'p OsStr)>, Errno> {
        let (above, name) = split(path);
        if name.is_empty() || self.only.is_some() {
            return Ok(None);
        }
        Ok(Some((self.open_folder(above)?, OsStr::from_bytes(name))))
    }

    /// Makes the folders on the way to a path that are not there yet.
    ///
    /// # Errors
    ///
    /// As mkdir(2) and [`parent_of`](Self::parent_of).
    pub(crate) fn make_parents(&self, path: &[u8], is_synced: bool) -> Result<(), Errno> {
        let (mut above, _) = split(path);
        let mut missing = Vec::new();
        let mut folder = loop {
            match self.open_folder(above) {
                Err(Errno::NOENT) if !above.is_empty() => {
                    let (outer, name) = split(above);
                    missing.push(name);
                    above = outer;
                }
                found => break found?,
            }
        };
        let is_many = missing.len() > MAX_FOLDER_SYNCS;
        for name in missing.into_iter().rev() {
            match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                // Somebody else was faster.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            if is_synced && !is_many {
                sync_folder(&folder)?;
            }
            folder = open_folder_by(&folder, name, ResolveFlags::NO_SYMLINKS)?;
        }
        if is_synced && is_many {
            // One call for all of them. The folder was opened for its names only, which syncfs(2)
            // does not take.
            sync_by(&folder, syncfs)?;
        }
        Ok(())
    }

    /// Opens a folder beneath the root, for the names in it. There is no link on the way.
    pub(crate) fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_folder_by(&self.folder, path, ResolveFlags::NO_SYMLINKS)
    }

    /// The same, following links.
    fn open_linked_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_folder_by(&self.folder, path, ResolveFlags::empty())
    }

    /// What beneath the root means to the kernel.
    fn resolve(&self) -> ResolveFlags {
        let beneath = if self.is_open { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        beneath | ResolveFlags::NO_MAGICLINKS
    }
}

/// Opens a folder beneath another one, for the names in it.
fn open_folder_by(from: &OwnedFd, path: &[u8], links: ResolveFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links;
    let mut attempts = 0;
    loop {
        match openat2(from, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

/// Has the names in a folder on the disk.
///
/// # Errors
///
/// As fsync(2); a folder that may be written to but not read cannot be synced, which is none.
pub(crate) fn sync_folder(folder: impl AsFd) -> Result<(), Errno> {
    sync_by(folder, fsync)
}

/// Syncs a folder by fsync(2), or its file system by syncfs(2).
fn sync_by(
    folder: impl AsFd,
    sync: impl FnOnce(OwnedFd) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat(folder, ".", flags, Mode::empty()).and_then(sync) {
        Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// New folders on the way to a path that are synced one by one.
const MAX_FOLDER_SYNCS: usize = 4;

fn is_folder(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The path of the folder that a path lies in, and the last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

fn open_path(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())
}

/// Which names are not served.
#[derive(Debug)]
struct Hidden {
    dot_files: bool,
    names: GlobSet,
    paths: GlobSet,
    /// The same of patterns that end in a slash: what matches is hidden if it is a folder.
    folder_names: GlobSet,
    folder_paths: GlobSet,
}

impl Hidden {
    fn new(settings: &Settings) -> Result<Self, ServeError> {
        let mut sets: [_; 4] = std::array::from_fn(|_| GlobSetBuilder::new());
        for pattern in &settings.hide {
            let fail = |source| ServeError::Pattern { pattern: pattern.clone(), source };
            let trimmed = pattern.trim_matches('/');
            let glob = globset::GlobBuilder::new(trimmed).literal_separator(true).build();
            let glob: Glob = glob.map_err(fail)?;
            let is_path = pattern.trim_end_matches('/').contains('/');
            sets[usize::from(is_path) + 2 * usize::from(pattern.ends_with('/'))].add(glob);
        }
        let build = |set: GlobSetBuilder| {
            set.build()
                .map_err(|source| ServeError::Pattern { pattern: settings.hide.join(", "), source })
        };
        let [names, paths, folder_names, folder_paths] = sets.map(build);
        Ok(Self {
            dot_files: !settings.shows_hidden,
            names: names?,
            paths: paths?,
            folder_names: folder_names?,
            folder_paths: folder_paths?,
        })
    }

    /// Whether the path, which is that of a folder or is not, or any folder on the way to it is hidden.
    fn matches(&self, path: &[u8], is_folder: bool) -> bool {
        if path.is_empty() {
            return false;
        }
        let mut end = 0;
        path.split(|byte| *byte == b'/').any(|name| {
            end += name.len() + usize::from(end > 0);
            let text = |bytes| Path::new(OsStr::from_bytes(bytes));
            (name.starts_with(b".") && (self.dot_files || is_partial_name(name)))
                || self.names.is_match(text(name))
                || self.paths.is_match(text(&path[..end]))
                || ((is_folder || end < path.len())
                    && (self.folder_names.is_match(text(name))
                        || self.folder_paths.is_match(text(&path[..end]))))
        })
    }
}

/// How often a race with somebody who renames folders is run again.
const ATTEMPTS: u32 = 16;
