//! Reads the attributes of everything in a folder, below its descriptor.
//!
//! One folder is open at a time, besides the archived one: a deep tree takes memory for names, not
//! descriptors or stack. An entry that is removed during the walk is left out, as if it had been
//! removed before; one that cannot be read fails the walk, since an archive that silently lacks a
//! file is worse than none.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{
    Access, AtFlags, FileType, OFlags, RawDir, Stat, accessat, fstat, readlinkat, statat,
};
use rustix::io::Errno;
use underpass_engine::Version;
use underpass_listing::check_exists;
use underpass_protocol::archive::{ArchiveFormat, Builder, Layout, Member, MemberType};
use underpass_sys::open_beneath;

use super::beneath::is_gone;
use super::error::{ArchiveError, Result};
use crate::files::version::facts;
use crate::server::limits::priority::{Work, let_others_run};

/// The options of a walk.
#[derive(Clone, Copy)]
pub struct WalkOptions<'a> {
    /// The format of the archive.
    pub format: ArchiveFormat,
    /// The name of the folder that everything is unpacked into; empty for none.
    pub top: &'a [u8],
    /// The path of the folder relative to the served root, for `hides`; empty for the root.
    pub base: &'a [u8],
    /// The names in the folder that are archived; `None` for all of them.
    pub only: Option<&'a [Vec<u8>]>,
    /// Whether names that begin with a dot are members too.
    pub shows_hidden: bool,
    /// Returns whether to leave out a path, relative to the served root; the flag is true for a
    /// folder, whose whole content is left out too.
    pub hides: &'a dyn Fn(&[u8], bool) -> bool,
    /// Returns whether the link at a path, relative to the served root, with this target is a
    /// member; an error if that cannot be known now, which ends the walk.
    pub shows_link: &'a LinkFilter<'a>,
    /// The maximum number of members.
    pub max_members: usize,
    /// The maximum depth of nested folders.
    pub max_depth: usize,
    /// A flag that ends the walk soon after it becomes true.
    pub cancelled: Option<&'a AtomicBool>,
}

type LinkFilter<'a> = dyn Fn(&[u8], &[u8]) -> Result<bool, Errno> + 'a;

impl Default for WalkOptions<'_> {
    /// Returns options that include everything that is not hidden, up to a million members.
    fn default() -> Self {
        Self {
            format: ArchiveFormat::Tar,
            top: b"",
            base: b"",
            only: None,
            shows_hidden: false,
            hides: &|_, _| false,
            shows_link: &|_, _| Ok(true),
            max_members: 1_000_000,
            // With names of 256 bytes each, a path has 256 KiB; libarchive refuses a PAX header of
            // more than 1 MiB.
            max_depth: 1_024,
            cancelled: None,
        }
    }
}

impl fmt::Debug for WalkOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalkOptions")
            .field("format", &self.format)
            .field("top", &String::from_utf8_lossy(self.top))
            .field("base", &String::from_utf8_lossy(self.base))
            .field("only", &self.only.map(<[_]>::len))
            .field("shows_hidden", &self.shows_hidden)
            .field("max_members", &self.max_members)
            .field("max_depth", &self.max_depth)
            .finish_non_exhaustive()
    }
}

/// Lays out the archive of a folder. It reads folders, and so belongs on a thread that may wait.
///
/// Members are in the order of their paths' bytes, with a slash at the end of a folder's path: the
/// same folder gives the same archive on any machine. Links are members and are not followed;
/// pipes, sockets and devices are left out.
///
/// # Errors
///
/// [`ArchiveError::Io`] if a file or folder cannot be read, the folder itself was removed, or one
/// of `only` does not exist; another variant if a limit is exceeded.
pub fn walk(folder: impl AsFd, options: &WalkOptions<'_>) -> Result<Layout, ArchiveError> {
    let mut walk = ArchiveWalk {
        folder: folder.as_fd(),
        options,
        builder: Builder::new(options.format, options.top),
        frames: Vec::new(),
        path: Vec::new(),
        found: 0,
        current: None,
        buffer: Vec::with_capacity(BUFFER),
    };
    walk.begin()?;
    while walk.step()? {}
    // If the folder was removed during the walk, the layout may lack entries.
    check_exists(walk.folder).map_err(|error| ArchiveError::io(b"", error))?;
    Ok(walk.builder.finish())
}

/// The state of a walk.
struct ArchiveWalk<'a> {
    folder: BorrowedFd<'a>,
    options: &'a WalkOptions<'a>,
    builder: Builder,
    /// The folders from the archived one down to the current one.
    frames: Vec<Frame>,
    /// The path of the current folder, with a slash at its end unless it is empty.
    path: Vec<u8>,
    /// The number of names found so far, in all folders.
    found: usize,
    /// The current folder, if it is open.
    current: Option<OwnedFd>,
    /// The buffer for a folder's entries.
    buffer: Vec<u8>,
}

impl ArchiveWalk<'_> {
    /// Adds the archived folder itself.
    fn begin(&mut self) -> Result<()> {
        let folder =
            open_beneath(self.folder, b"", FOLDER).map_err(|errno| self.failed(b"", errno))?;
        let stat = fstat(&folder).map_err(|errno| self.failed(b"", errno))?;
        self.builder.push_top(stat.st_mode, facts(&Version::from_stat(&stat)))?;
        self.enter(folder, None)
    }

    /// Adds the next name; returns false if there is none.
    fn step(&mut self) -> Result<bool> {
        if self.options.cancelled.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(ArchiveError::Cancelled);
        }
        let_others_run(Work::Entry);
        let Some(mut frame) = self.frames.pop() else { return Ok(false) };
        self.path.truncate(frame.path_len);
        let Some(name) = frame.names.next() else {
            self.current = None;
            return Ok(true);
        };
        if let Some(folder) = self.reopened()? {
            let (name, parent) = (name.to_vec(), frame.member);
            self.frames.push(frame);
            match name.strip_suffix(b"/") {
                Some(name) => self.add_folder(&folder, name, parent)?,
                None => self.add_entry(&folder, &name, parent)?,
            }
            // The folder stays current unless the step descended into another one.
            self.current.get_or_insert(folder);
        }
        Ok(true)
    }

    /// Returns the current folder; `None` if it was removed while another one was read.
    fn reopened(&mut self) -> Result<Option<OwnedFd>> {
        if let Some(folder) = self.current.take() {
            return Ok(Some(folder));
        }
        let path = self.path.strip_suffix(b"/").unwrap_or(&self.path);
        self.some_unless_missing(b"", open_beneath(self.folder, path, FOLDER))
    }

    /// Adds a folder, and descends into it.
    fn add_folder(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        parent_member: Option<u32>,
    ) -> Result<()> {
        let opened = open_beneath(parent.as_fd(), name, FOLDER);
        let Some(folder) = self.some_unless_missing(name, opened)? else { return Ok(()) };
        if self.frames.len() > self.options.max_depth {
            let limit = self.options.max_depth;
            return Err(ArchiveError::TooDeep { path: self.path_of(name), limit });
        }
        let stat = fstat(&folder).map_err(|errno| self.failed(name, errno))?;
        let member = self.push(parent_member, name, MemberType::Folder, &stat)?;
        self.path.extend_from_slice(name);
        self.path.push(b'/');
        self.enter(folder, Some(member))
    }

    /// Adds an entry that is not a folder.
    fn add_entry(&mut self, folder: &OwnedFd, name: &[u8], parent: Option<u32>) -> Result<()> {
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let Some(stat) = self.some_unless_missing(name, stat)? else { return Ok(()) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let readable = check_readable(folder, name, &stat);
                if self.some_unless_missing(name, readable)?.is_some() {
                    self.push(parent, name, MemberType::File, &stat)?;
                }
            }
            FileType::Symlink => {
                let target = readlinkat(folder, name, Vec::new());
                let target = target.map_err(missing_if_no_link);
                if let Some(target) = self.some_unless_missing(name, target)?
                    && self.shows_link(name, target.to_bytes())?
                {
                    self.push(parent, name, MemberType::Symlink(target.to_bytes()), &stat)?;
                }
            }
            // A pipe, socket or device; or an entry that became a folder after its name was read.
            _ => {}
        }
        Ok(())
    }

    fn push(
        &mut self,
        parent: Option<u32>,
        name: &[u8],
        kind: MemberType<'_>,
        stat: &Stat,
    ) -> Result<u32> {
        let (mode, version) = (stat.st_mode, facts(&Version::from_stat(stat)));
        Ok(self.builder.push(&Member { parent, name, kind, mode, version })?)
    }

    /// Reads the names in a folder, which becomes the current one.
    fn enter(&mut self, folder: OwnedFd, member: Option<u32>) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let names = match self.options.only {
            Some(only) if self.frames.is_empty() => self.find_names(&folder, only),
            _ => self.read_names(&folder, &mut buffer),
        };
        self.buffer = buffer;
        self.frames.push(Frame { path_len: self.path.len(), member, names: names? });
        self.current = Some(folder);
        Ok(())
    }

    /// Returns the requested names, in order.
    fn find_names(&mut self, folder: &OwnedFd, only: &[Vec<u8>]) -> Result<FolderNames> {
        let mut names = FolderNames::default();
        for name in only {
            let is_hidden = name.starts_with(b".") && !self.options.shows_hidden;
            let stat = statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|errno| self.failed(name, errno))?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_folder = kind == FileType::Directory;
            let is_member = is_folder || matches!(kind, FileType::RegularFile | FileType::Symlink);
            let is_secret_link = kind == FileType::Symlink && {
                let target = readlinkat(folder, name.as_slice(), Vec::new());
                let target =
                    target.map_err(|errno| self.failed(name, missing_if_no_link(errno)))?;
                !self.shows_link(name, target.to_bytes())?
            };
            // The client must not learn whether a hidden name exists.
            if is_hidden || !is_member || is_secret_link || self.hides(name, is_folder) {
                return Err(self.failed(name, Errno::NOENT));
            }
            self.found += 1;
            let limit = self.options.max_members;
            if self.found > limit || !names.add(name, is_folder) {
                return Err(ArchiveError::TooMany { limit });
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the names in a folder that are not left out, in order.
    fn read_names(&mut self, folder: &OwnedFd, buffer: &mut Vec<u8>) -> Result<FolderNames> {
        let mut names = FolderNames::default();
        let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            // The folder was removed while it was open, so it is empty.
            let Some(entry) = self.some_unless_missing(b"", entry)? else { break };
            let name = entry.file_name().to_bytes();
            let is_hidden = name.starts_with(b".") && !self.options.shows_hidden;
            if is_hidden || matches!(name, b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
                    let Some(stat) = self.some_unless_missing(name, stat)? else { continue };
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            if self.hides(name, kind == FileType::Directory) {
                continue;
            }
            self.found += 1;
            let limit = self.options.max_members;
            if self.found > limit || !names.add(name, kind == FileType::Directory) {
                return Err(ArchiveError::TooMany { limit });
            }
        }
        names.sort();
        Ok(names)
    }

    fn hides(&self, name: &[u8], is_folder: bool) -> bool {
        (self.options.hides)(&self.path_from_root(name), is_folder)
    }

    fn shows_link(&self, name: &[u8], target: &[u8]) -> Result<bool> {
        let shows = (self.options.shows_link)(&self.path_from_root(name), target);
        shows.map_err(|errno| self.failed(name, errno))
    }

    fn path_from_root(&self, name: &[u8]) -> Vec<u8> {
        let base = self.options.base;
        let slash = if base.is_empty() { &b""[..] } else { b"/" };
        [base, slash, &self.path, name].concat()
    }

    /// Returns the result of a call; `None` if its error means that the entry is gone.
    fn some_unless_missing<T>(&self, name: &[u8], result: Result<T, Errno>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(errno) if is_gone(errno) => Ok(None),
            Err(errno) => Err(self.failed(name, errno)),
        }
    }

    /// Returns the error about a name in the current folder, or about that folder.
    fn failed(&self, name: &[u8], errno: Errno) -> ArchiveError {
        ArchiveError::io(&self.path_of(name), errno)
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let path = [&self.path, name].concat();
        path.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(path)
    }
}

/// Returns `ENOENT` for `EINVAL` of readlink(2): the link was replaced by something else.
fn missing_if_no_link(errno: Errno) -> Errno {
    if errno == Errno::INVAL { Errno::NOENT } else { errno }
}

/// A folder whose names are being added.
struct Frame {
    /// The length of its path.
    path_len: usize,
    /// Its number in the layout; `None` for the archived folder itself.
    member: Option<u32>,
    names: FolderNames,
}

/// The names in a folder; those of folders have a slash at the end.
#[derive(Default)]
struct FolderNames {
    text: Vec<u8>,
    /// The position of each in `text`, and its length. A name has 255 bytes at most.
    places: Vec<(u32, u16)>,
    taken: usize,
}

impl FolderNames {
    /// Adds a name; returns false if there is no more room.
    fn add(&mut self, name: &[u8], is_folder: bool) -> bool {
        let len = name.len() + usize::from(is_folder);
        let place = (u32::try_from(self.text.len()), u16::try_from(len));
        let (Ok(start), Ok(len)) = place else { return false };
        self.text.extend_from_slice(name);
        if is_folder {
            self.text.push(b'/');
        }
        self.places.push((start, len));
        true
    }

    /// Sorts the names by their bytes; with the folders' slashes, that is the order of whole paths.
    fn sort(&mut self) {
        let text = &self.text;
        self.places.sort_unstable_by_key(|&place| at(text, place));
    }

    /// Returns the next name in order.
    fn next(&mut self) -> Option<&[u8]> {
        let place = *self.places.get(self.taken)?;
        self.taken += 1;
        Some(at(&self.text, place))
    }
}

fn at(text: &[u8], (start, len): (u32, u16)) -> &[u8] {
    &text[start as usize..][..len.into()]
}

/// Checks that the server may read a file, before the head of the response is sent.
fn check_readable(folder: &OwnedFd, name: &[u8], stat: &Stat) -> Result<(), Errno> {
    // This saves a call for most files. An access list that excludes the server alone is noticed
    // when the file is opened.
    if stat.st_mode & 0o444 == 0o444 {
        return Ok(());
    }
    accessat(folder, name, Access::READ_OK, AtFlags::EACCESS)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// The size of the buffer for the entries of one call.
const BUFFER: usize = 32 << 10;
