//! Opens paths below the root. All file access of requests goes through here, and the kernel
//! enforces the boundary (openat2(2)), whatever the path is and even if folders are moved at the
//! same time.

mod follow;
mod hidden_names;
mod lease;
mod local;
mod open;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, fsync, mkdirat, statat, syncfs,
};
use rustix::io::Errno;

pub(crate) use self::follow::FollowedPath;
use self::hidden_names::{HiddenNames, ignores_case};
pub(crate) use self::hidden_names::{is_incomplete, is_open_leftover};
pub(crate) use self::lease::{LEASE_PAUSE, LEASE_TIME, open_unleased};
pub(crate) use self::local::{is_local, is_of_kind};
use self::open::{ATTEMPTS, open_at, open_folder_by, open_path, place};
pub(crate) use self::open::{join, last_name, path_of, split};
use crate::server::settings::{ServeError, SiteSettings};
use underpass_engine::{FileId, Version, atomic_file, is_folder};
use underpass_protocol::request::target::Target;
use underpass_protocol::response::media_types::MediaTypes;

/// The served folder, or one served file in a folder.
#[derive(Debug)]
pub(crate) struct Root {
    folder: OwnedFd,
    /// The absolute path of the folder when it was opened, without a slash at either end.
    place: Vec<u8>,
    /// The name of the file, if a single file is served.
    only: Option<Vec<u8>>,
    hidden: HiddenNames,
    /// Whether links may lead out of the root.
    is_open: bool,
    /// The absolute paths of the server's own files and folders outside the root.
    own: Vec<Vec<u8>>,
    /// Whether the folder is on a local file system.
    is_local: bool,
    /// The media types of the files.
    types: MediaTypes,
}

/// Where an open file or folder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Below the root, at this path.
    Inside(Vec<u8>),
    /// Outside the root, at this absolute path.
    Outside(Vec<u8>),
}

impl Place {
    /// Returns the path below the root.
    pub(crate) fn inside(self) -> Option<Vec<u8>> {
        match self {
            Self::Inside(path) => Some(path),
            Self::Outside(_) => None,
        }
    }
}

/// Whether opening may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskWait {
    /// Only entries on the root's local file system that the kernel has cached are opened;
    /// otherwise `EAGAIN`.
    Never,
    /// Opening may wait for the disk.
    Allowed,
}

/// Returns whether a path is reserved for endpoints, so that no file can have it.
pub(crate) fn is_reserved(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').next() == Some(RESERVED)
}

impl Root {
    /// Returns whether the folder was removed, and so stays empty.
    pub(crate) fn is_removed(&self) -> bool {
        // A network file system is not asked: a worker must not wait for its server.
        Version::in_memory(&self.folder).is_ok_and(|now| now.links() == 0)
    }

    /// Returns whether one of two folders was the other one, or in it, when they were opened.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let is_within = |inner: &[u8], outer: &[u8]| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| outer.is_empty() || rest.is_empty() || rest[0] == b'/')
        };
        is_within(&self.place, &other.place) || is_within(&other.place, &self.place)
    }

    /// Checks the patterns of the settings.
    pub(crate) fn check(settings: &SiteSettings) -> Result<(), ServeError> {
        HiddenNames::new(settings, false).map(drop)
    }

    /// Opens the root of the settings.
    pub(crate) fn new(settings: &SiteSettings) -> Result<Self, ServeError> {
        // Nothing can be opened below a file, so this root is empty.
        let path = settings.root.as_deref().unwrap_or(Path::new("/dev/null"));
        let fail = |errno: Errno| ServeError::Root { path: path.to_owned(), source: errno.into() };
        let opened = open_path(path).map_err(fail)?;
        let kind = FileType::from_raw_mode(fstat(&opened).map_err(fail)?.st_mode);
        // Without patterns, case does not matter.
        let ignores_case = !settings.hide.is_empty() && ignores_case(opened.as_fd(), path);
        let hidden = HiddenNames::new(settings, ignores_case)?;
        let types = settings.media_types.clone();
        let is_folder = kind == FileType::Directory || settings.root.is_none();
        if !is_folder && kind != FileType::RegularFile {
            return Err(fail(Errno::NOTSUP));
        }
        let (folder, only, is_open) = if is_folder {
            (opened, None, settings.allows_symlinks_outside)
        } else {
            // The operator gave the path, so its links are followed anywhere.
            (open_path(atomic_file::folder_of(path)).map_err(fail)?, path.file_name(), true)
        };
        let (place, only) = (place(&folder, path), only.map(|name| name.as_bytes().to_vec()));
        let is_local = is_local(&folder);
        let own = settings.own_files.iter().map(|path| path.as_os_str().as_bytes().to_vec());
        let own = own.collect();
        Ok(Self { folder, place, only, hidden, is_open, own, is_local, types })
    }

    /// Returns the media type of a file of this name.
    pub(crate) fn media_type(&self, name: &[u8]) -> Cow<'static, str> {
        self.types.of(name)
    }

    /// Returns the media type that the operator has chosen for files of this name, if any.
    pub(crate) fn chosen_media_type(&self, name: &[u8]) -> Option<&str> {
        self.types.chosen(name)
    }

    /// Returns whether a single file is served.
    pub(crate) fn is_file(&self) -> bool {
        self.only.is_some()
    }

    /// Returns the path of the single served file, if the target requests it: by its name, which
    /// is not that of a folder, or by none.
    pub(crate) fn only(&self, target: &Target<'_>) -> Option<&[u8]> {
        let is_named = |name: &[u8]| !target.is_folder && *target.path == *name;
        self.only.as_deref().filter(|name| target.path.is_empty() || is_named(name))
    }

    /// Opens a path that has no empty segments, no `.` and no `..`; it is empty for the root
    /// itself.
    ///
    /// # Errors
    ///
    /// The errors of openat2(2); `ENOENT` for hidden entries, `EXDEV` for targets outside the root,
    /// `EAGAIN` if `disk_wait` forbids the wait for a disk that is needed.
    pub(crate) fn open(&self, path: &[u8], disk_wait: DiskWait) -> Result<OwnedFd, Errno> {
        self.open_reached(path, disk_wait).map(|(file, _)| file)
    }

    /// Opens a path and returns the resolved path, if links below the root led to another one.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open); `ENOENT` also if the resolved path is hidden.
    pub(crate) fn open_reached(
        &self,
        path: &[u8],
        disk_wait: DiskWait,
    ) -> Result<(OwnedFd, Option<Vec<u8>>), Errno> {
        if self.only.as_deref().is_some_and(|only| only != path) {
            return Err(Errno::NOENT);
        }
        if self.only.is_none() && self.hides(path) {
            return Err(Errno::NOENT);
        }
        let mut resolve = self.resolve();
        if disk_wait == DiskWait::Never {
            if !self.is_local {
                return Err(Errno::AGAIN);
            }
            resolve |= ResolveFlags::CACHED | ResolveFlags::NO_XDEV;
        }
        // This keeps a fifo from waiting for a writer, and a terminal from becoming the controlling
        // one.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |links| match open_at(&self.folder, path, flags, resolve | links) {
            // The entry may be on another file system, or outside the root.
            Err(Errno::XDEV) if disk_wait == DiskWait::Never => Err(Errno::AGAIN),
            opened => opened,
        };
        // Few paths contain links; a path without links takes one call.
        let (file, reached) = match open(ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) if self.only.is_some() => (open(ResolveFlags::empty())?, None),
            Err(Errno::LOOP) => match self.with_place(|| open(ResolveFlags::empty()))? {
                (_, Place::Outside(own)) if self.is_own(&own) => return Err(Errno::NOENT),
                (file, place) => (file, place.inside()),
            },
            opened => (opened?, None),
        };
        self.refuse_hidden(&file, path, disk_wait)?;
        if let Some(reached) = &reached {
            self.refuse_hidden(&file, reached, disk_wait)?;
        }
        Ok((file, reached))
    }

    /// Returns the path of an open file or folder; `None` if it is not below the root.
    ///
    /// # Errors
    ///
    /// Those of [`path_of`].
    pub(crate) fn reached(&self, file: impl AsFd) -> Result<Option<Vec<u8>>, Errno> {
        self.place_of(file).map(Place::inside)
    }

    /// Returns where an open file or folder is.
    ///
    /// # Errors
    ///
    /// Those of [`path_of`].
    pub(crate) fn place_of(&self, file: impl AsFd) -> Result<Place, Errno> {
        let (root, path) = (path_of(&self.folder)?, path_of(&file)?);
        let inside = path.strip_prefix(root.strip_suffix(b"/").unwrap_or(&root));
        Ok(match inside {
            Some([]) => Place::Inside(Vec::new()),
            Some([b'/', inside @ ..]) => Place::Inside(inside.to_vec()),
            _ => Place::Outside(path),
        })
    }

    /// Returns whether an absolute path is that of a file or folder of the server itself, or in
    /// such a folder.
    pub(crate) fn is_own(&self, path: &[u8]) -> bool {
        let rest = |own: &Vec<u8>| path.strip_prefix(&**own);
        self.own.iter().filter_map(rest).any(|rest| matches!(rest, [] | [b'/', ..]))
    }

    /// Returns the absolute path of a path below the root, without its leading slash.
    pub(crate) fn disk_path(&self, path: &[u8]) -> Vec<u8> {
        join(&self.place, path)
    }

    /// Returns the path below the root of an absolute path without its leading slash; `None` if it
    /// lies elsewhere.
    pub(crate) fn served_path<'p>(&self, disk_path: &'p [u8]) -> Option<&'p [u8]> {
        match disk_path.strip_prefix(&*self.place)? {
            inside if self.place.is_empty() => Some(inside),
            [] => Some(&[]),
            inside => inside.strip_prefix(b"/"),
        }
    }

    /// Returns `ENOENT` for an open file or folder at a hidden path; `EAGAIN` if finding that out
    /// needs a wait that `disk_wait` forbids.
    fn refuse_hidden(&self, file: &OwnedFd, path: &[u8], disk_wait: DiskWait) -> Result<(), Errno> {
        if self.only.is_some() {
            return Ok(());
        }
        if disk_wait == DiskWait::Never && self.hidden.depends_on_case(path) {
            return Err(Errno::AGAIN);
        }
        let is_hidden = self.hides_here(path, true)
            && (self.hides_here(path, false) || is_folder(&fstat(file)?));
        if is_hidden { Err(Errno::NOENT) } else { Ok(()) }
    }

    /// Returns whether a path is hidden where it lies, ignoring case if its folders do.
    fn hides_here(&self, path: &[u8], is_folder: bool) -> bool {
        self.hidden.matches_at(path, is_folder, || self.ignores_case(path))
    }

    /// Returns whether any folder on the way to an entry ignores the case of the next name.
    fn ignores_case(&self, path: &[u8]) -> bool {
        let mut end = 0;
        path.split(|byte| *byte == b'/').any(|name| {
            let folder = self.open_linked_folder(&path[..end]);
            end += name.len() + usize::from(end > 0);
            folder.is_ok_and(|folder| atomic_file::ignores_case(folder, name) == Some(true))
        })
    }

    /// Returns whether a path is hidden, whether or not it exists: one of its names is hidden, or
    /// is that of an incomplete upload.
    pub(crate) fn hides(&self, path: &[u8]) -> bool {
        self.hidden.matches(path, false)
    }

    /// Returns whether the path of a file or folder of an origin is hidden.
    pub(crate) fn hides_of_origin(&self, path: &[u8], is_folder: bool) -> bool {
        self.hidden.matches(path, is_folder)
    }

    /// Returns whether an entry is hidden where it lies, ignoring case if its folders do. A link
    /// counts as its target, which is only looked up if it matters; one that cannot be followed now
    /// counts as a link to a folder.
    pub(crate) fn hides_entry(&self, path: &[u8], is_folder_itself: bool) -> bool {
        if !self.hides_here(path, true) {
            return false;
        }
        if is_folder_itself || self.hides_here(path, false) {
            return true;
        }
        // This takes no descriptor. Only a link has to be followed.
        match statat(&self.folder, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink => {
                is_folder(&stat)
            }
            _ => self.find(path).map_or(true, |found| found.is_some_and(|stat| is_folder(&stat))),
        }
    }

    /// Returns whether a path in a folder is hidden, as such or as resolved: the folder was
    /// requested as `folder`, and lies at `place`.
    pub(crate) fn hides_reached(
        &self,
        path: &[u8],
        is_folder_itself: bool,
        folder: &[u8],
        place: Option<&Place>,
    ) -> bool {
        if self.hides_entry(path, is_folder_itself) {
            return true;
        }
        let inside = path.get(folder.len()..).unwrap_or_default();
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        match place {
            Some(Place::Inside(reached)) if *reached != folder => {
                let slash: &[u8] = if reached.is_empty() { b"" } else { b"/" };
                self.hides_entry(&[reached, slash, inside].concat(), is_folder_itself)
            }
            Some(Place::Outside(reached)) => {
                let above = reached.strip_suffix(b"/").unwrap_or(reached);
                self.is_own(&[above, b"/", inside].concat())
            }
            _ => false,
        }
    }

    /// Returns the attributes of the target of a path, without opening it.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open).
    pub(crate) fn stat(&self, path: &[u8]) -> Result<Stat, Errno> {
        fstat(self.open_path(path)?)
    }

    /// Returns the attributes of the target of a path; `None` if nothing exists there, or a link
    /// leads nowhere or out of the root.
    ///
    /// # Errors
    ///
    /// The other errors of openat2(2): the entry cannot be examined now.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Option<Stat>, Errno> {
        match self.stat(path) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::XDEV) => {
                Ok(None)
            }
            found => found.map(Some),
        }
    }

    /// Opens a path with `O_PATH`. Whether it is hidden is not checked.
    ///
    /// # Errors
    ///
    /// The errors of openat2(2).
    pub(crate) fn open_path(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_at(&self.folder, path, OFlags::PATH | OFlags::CLOEXEC, self.resolve())
    }

    /// Opens a path with `O_PATH`, and returns where it is.
    ///
    /// # Errors
    ///
    /// Those of [`open_path`](Self::open_path) and [`path_of`].
    pub(crate) fn open_placed(&self, path: &[u8]) -> Result<(OwnedFd, Place), Errno> {
        self.with_place(|| self.open_path(path))
    }

    /// Opens something and returns where it is. If it is replaced at that moment, this opens the
    /// path again, which then leads to another file.
    fn with_place(
        &self,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(OwnedFd, Place), Errno> {
        let mut attempts = 0;
        loop {
            let file = open()?;
            match self.place_of(&file) {
                Err(Errno::NOENT) if attempts < ATTEMPTS => attempts += 1,
                place => return Ok((file, place?)),
            }
        }
    }

    /// Opens the parent folder of a path with `O_PATH`, and returns it with the last name; `None`
    /// for the root itself.
    ///
    /// # Errors
    ///
    /// The errors of openat2(2). Links on the way are never followed, whatever the settings allow
    /// for reading: `ELOOP`. Callers resolve the [`real_path`](Self::real_path) first, and check
    /// the right to it.
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

    /// Checks that a path still leads to the folder that was opened by it: a user that may write to
    /// the path need not be allowed to write to the place to which the folder was moved.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the folder was moved or replaced, and those of [`parent_of`](Self::parent_of).
    pub(crate) fn check_parent(&self, path: &[u8], folder: impl AsFd) -> Result<(), Errno> {
        let Some((now, _)) = self.parent_of(path)? else { return Ok(()) };
        let is_same = FileId::of(&fstat(now)?) == FileId::of(&fstat(folder)?);
        if is_same { Ok(()) } else { Err(Errno::STALE) }
    }

    /// Creates the missing parent folders of a path.
    ///
    /// # Errors
    ///
    /// The errors of mkdir(2) and [`parent_of`](Self::parent_of).
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
        // The folder was opened with `O_PATH`, and syncfs(2) does not accept such a descriptor. It
        // may report an error only to descriptors that were open when it occurred.
        let system = (is_synced && is_many).then(|| atomic_file::reopen_folder(&folder));
        for name in missing.into_iter().rev() {
            match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                // Another request or program created it first.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            if is_synced && !is_many {
                atomic_file::sync_folder(&folder, fsync)?;
            }
            folder = open_folder_by(&folder, name, ResolveFlags::NO_SYMLINKS)?;
        }
        // One call syncs all new folders.
        match system.map(|opened| opened.and_then(syncfs)) {
            Some(Err(errno)) if !matches!(errno, Errno::ACCESS | Errno::INVAL) => Err(errno),
            _ => Ok(()),
        }
    }

    /// Opens a folder below the root with `O_PATH`, without following links.
    pub(crate) fn open_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_folder_by(&self.folder, path, ResolveFlags::NO_SYMLINKS)
    }

    /// Opens a folder below the root and follows links.
    fn open_linked_folder(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        open_folder_by(&self.folder, path, ResolveFlags::empty())
    }

    /// Returns the flags with which the kernel enforces the boundary of the root.
    fn resolve(&self) -> ResolveFlags {
        let beneath = if self.is_open { ResolveFlags::empty() } else { ResolveFlags::BENEATH };
        beneath | ResolveFlags::NO_MAGICLINKS
    }
}

/// The maximum number of new parent folders that are synced one by one.
const MAX_FOLDER_SYNCS: usize = 4;

/// The folder of the endpoints.
pub(crate) const RESERVED: &[u8] = b".underpass";
