//! The ends of a transfer that the command line names: files, devices, `-`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    Access, CWD, FileType, Mode, OFlags, SeekFrom, accessat, fcntl_getfl, fcntl_setfl, fstat,
    ftruncate, openat, seek,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    self, AtomicFile, Existing, KeptOwner, check_writes, lock_file, take_over_named,
};
use underpass_engine::hint::Action;
use underpass_engine::{Kind, Sink, Source, is_file};
use underpass_sys::{duplicate, was_closed};

use crate::failure::{Failure, Result, WithPath};
use crate::signals::interruptible;

/// A file to read, or standard input.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    path: PathBuf,
    /// The offset at which reading begins: others may have read from standard input before.
    at: u64,
    shares_cursor: bool,
}

impl Input {
    /// Opens what `path` names; `-` is standard input. A wait for the other end of a FIFO ends when
    /// `cancel` is set.
    pub(crate) fn open(path: &Path, cancel: &AtomicBool) -> Result<Self> {
        if !is_dash(path) {
            let file = open(path, OpenOptions::new().read(true), cancel);
            return Ok(Self::of(file.with_path("opening", path)?, path));
        }
        let path = PathBuf::from("standard input");
        let file = standard(&io::stdin(), OpenOptions::new().read(true));
        let file = file.with_path("opening", &path)?;
        let at = cursor(&file).with_path("looking at", &path)?;
        Ok(Self { file, path, at, shares_cursor: true })
    }

    /// Returns the open file of a path.
    pub(crate) fn of(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), at: 0, shares_cursor: false }
    }

    /// Returns all that is left of it.
    pub(crate) fn source(&self) -> Result<Source<&File>> {
        Ok(Source::of(&self.file).with_path(Action::Reading, &self.path)?.at(self.at))
    }

    /// Returns the file itself.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns its name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a file that was named, and not standard input.
    pub(crate) fn has_name(&self) -> bool {
        !self.shares_cursor
    }

    /// Leaves the cursor of a standard input that is a file after the bytes that were read, as
    /// any reader would, so that the next command of a script continues there.
    pub(crate) fn finish(&self, bytes: u64) {
        if self.shares_cursor {
            // Pipes and terminals have no cursor.
            let _ = seek(&self.file, SeekFrom::Start(self.at + bytes));
        }
    }
}

/// Returns whether a path is `-`, which is standard input or output.
pub(crate) fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns the number of the descriptor of this process that a path stands for, if a file, a pipe
/// or a socket is open there. Bytes are appended to the open file, which is not replaced, because
/// other programs write to it, too.
pub(crate) fn open_file_number(path: &Path) -> Option<i32> {
    let number = match path.to_str()? {
        "/dev/stdout" => 1,
        "/dev/stderr" => 2,
        path => {
            let number = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|at| path.strip_prefix(at));
            number?.parse().ok()?
        }
    };
    let kind = fs::metadata(path).ok()?.file_type();
    (kind.is_file() || kind.is_fifo() || kind.is_socket()).then_some(number)
}

/// Returns whether a path stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    is_dash(path) || open_file_number(path) == Some(1)
}

/// Follows a link: the file that it leads to is replaced, as by every other program.
pub(crate) fn followed(path: &Path) -> Result<PathBuf> {
    if path.is_symlink() {
        return Ok(atomic_file::follow(path).with_path("following the link", path)?);
    }
    Ok(path.to_owned())
}

/// The treatment of a target that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverwriteRule {
    /// Refuse.
    Never,
    /// Replace it if we may write to it.
    IfWritable,
    /// Replace it.
    Always,
}

/// The place where the bytes end up.
#[derive(Debug)]
pub(crate) struct OutputTarget {
    path: PathBuf,
    place: OpenTarget,
}

#[derive(Debug)]
enum OpenTarget {
    /// Behind the bytes that a file has already.
    End { file: File, at: u64 },
    /// A file that appears when it is whole.
    New {
        atomic: AtomicFile,
        existing: Existing,
        overwrite: OverwriteRule,
        /// Whose the file is that replaces another one and keeps its permissions; otherwise it
        /// keeps nothing.
        kept: Option<KeptOwner>,
    },
    /// A device, a FIFO or standard output: written to in place, from its cursor if it has one.
    Open { file: File, at: u64 },
}

impl OutputTarget {
    /// Prepares a new file at `path`, which gets the permissions and the owner of a file that it
    /// replaces; a device, a FIFO or `-` is opened as it is. A wait for the other end of a FIFO
    /// ends when `cancel` is set.
    pub(crate) fn create(
        path: &Path,
        overwrite: OverwriteRule,
        cancel: &AtomicBool,
    ) -> Result<Self> {
        Self::create_with(path, overwrite, Some(KeptOwner::Old), cancel)
    }

    /// Does what [`create`](Self::create) does; the new file gets the permissions of a file that it
    /// replaces and this owner, or without `kept` neither.
    pub(crate) fn create_with(
        path: &Path,
        overwrite: OverwriteRule,
        kept: Option<KeptOwner>,
        cancel: &AtomicBool,
    ) -> Result<Self> {
        if is_stdout(path) {
            return Self::stdout();
        }
        if let Some(number) = open_file_number(path) {
            return Ok(Self::descriptor(path, number).with_path("opening", path)?);
        }
        let path = followed(path)?;
        let existing = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Existing::Keep,
            Err(error) => Err(error).with_path("looking at", &path)?,
            Ok(found) if found.is_dir() => Err(Errno::ISDIR).with_path(Action::Writing, &path)?,
            Ok(found) if found.is_file() => {
                may_replace(&path, overwrite)?;
                Existing::Replace
            }
            Ok(found) if found.file_type().is_socket() => {
                return Err(Failure::value(
                    path.display(),
                    "write unix: before the path of a socket",
                ));
            }
            Ok(_) => {
                let file = open(&path, OpenOptions::new().write(true), cancel);
                let file = file.with_path("opening", &path)?;
                return Ok(Self { path, place: OpenTarget::Open { file, at: 0 } });
            }
        };
        let atomic = AtomicFile::create(&path, 0o666).with_path(Action::Creating, &path)?;
        if existing == Existing::Replace {
            keep_mode(&path, &atomic, kept).with_path("keeping mode of", &path)?;
        }
        Ok(Self { path, place: OpenTarget::New { atomic, existing, overwrite, kept } })
    }

    /// Returns the file at `path`, emptied: for those that may be written to, but not replaced.
    pub(crate) fn in_place(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().write(true).truncate(true).open(path);
        let file = file.with_path("opening", path)?;
        Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at: 0 } })
    }

    /// Returns the end of the file at `path`; a new file if there is none.
    pub(crate) fn append(path: &Path, cancel: &AtomicBool) -> Result<Self> {
        if open_file_number(path).is_some() {
            return Self::create(path, OverwriteRule::Always, cancel);
        }
        atomic_file::check_link(path)?;
        // Not O_APPEND: no mechanism but read_write serves such a file.
        match open(path, OpenOptions::new().write(true), cancel) {
            Ok(file) if is_file(&fstat(&file).with_path("looking at", path)?) => {
                // Two at once would write to the same place.
                if lock_file(&file).is_err() {
                    let path = path.display();
                    return Err(Failure::line(format!(
                        "appending to {path}: another process has locked it (wait until it has finished)"
                    )));
                }
                let place = OpenTarget::End { file, at: 0 };
                let mut target = Self { path: path.to_owned(), place };
                target.find_end()?;
                Ok(target)
            }
            Ok(file) => Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at: 0 } }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path, OverwriteRule::Never, cancel)
            }
            Err(error) => Err(error).with_path("opening", path)?,
        }
    }

    /// Finds the end of a file that is appended to again: others may have written to it since.
    pub(crate) fn find_end(&mut self) -> Result<()> {
        if let OpenTarget::End { file, at } = &mut self.place {
            *at = file.metadata().with_path("looking at", &self.path)?.len();
        }
        Ok(())
    }

    /// Returns the file of a descriptor that this process was started with.
    fn descriptor(path: &Path, number: i32) -> io::Result<Self> {
        let file = File::from(duplicate(number)?);
        let at = cursor(&file)?;
        Ok(Self { path: path.to_owned(), place: OpenTarget::Open { file, at } })
    }

    fn stdout() -> Result<Self> {
        let path = PathBuf::from("standard output");
        let file = standard(&io::stdout(), OpenOptions::new().write(true));
        let file = file.with_path("opening", &path)?;
        let at = cursor(&file).with_path("looking at", &path)?;
        Ok(Self { path, place: OpenTarget::Open { file, at } })
    }

    /// Returns where the engine is to write.
    pub(crate) fn sink(&self) -> Result<Sink<&File>> {
        Ok(Sink::of(self.file()).with_path(Action::Writing, &self.path)?.at(self.at()))
    }

    /// Returns where its first byte goes, if it has places.
    pub(crate) fn at(&self) -> u64 {
        match self.place {
            OpenTarget::New { .. } => 0,
            OpenTarget::End { at, .. } | OpenTarget::Open { at, .. } => at,
        }
    }

    /// Returns the file itself.
    pub(crate) fn file(&self) -> &File {
        match &self.place {
            OpenTarget::New { atomic, .. } => atomic.file(),
            OpenTarget::End { file, .. } | OpenTarget::Open { file, .. } => file,
        }
    }

    /// Returns its name for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether this is a new file, whose mode, times and size are still to be set.
    pub(crate) fn is_new(&self) -> bool {
        matches!(self.place, OpenTarget::New { .. })
    }

    /// Returns whether bytes are appended to a file, which is cut back if that fails.
    pub(crate) fn is_appended(&self) -> bool {
        matches!(self.place, OpenTarget::End { .. })
    }

    /// Returns whether it keeps the permissions of a file whose place it takes.
    pub(crate) fn keeps_old(&self) -> bool {
        matches!(self.place, OpenTarget::New { existing: Existing::Replace, kept: Some(_), .. })
    }

    /// Treats a file that has appeared under the name of a new one as if it had been there before,
    /// and returns whether one has.
    pub(crate) fn look_again(&mut self) -> Result<bool> {
        let OpenTarget::New { atomic, existing: existing @ Existing::Keep, overwrite, kept } =
            &mut self.place
        else {
            return Ok(false);
        };
        let has_appeared = fs::symlink_metadata(&self.path).is_ok_and(|found| found.is_file());
        if has_appeared && *overwrite != OverwriteRule::Never {
            may_replace(&self.path, *overwrite)?;
            keep_mode(&self.path, atomic, *kept).with_path("keeping mode of", &self.path)?;
            *existing = Existing::Replace;
        }
        Ok(*existing == Existing::Replace)
    }

    /// Finds out before the first byte whether `len` bytes fit.
    pub(crate) fn reserve(&self, len: u64) -> Result<()> {
        match &self.place {
            OpenTarget::New { atomic, .. } => {
                Ok(atomic.reserve(len).with_path("reserving space for", &self.path)?)
            }
            OpenTarget::End { .. } | OpenTarget::Open { .. } => Ok(()),
        }
    }

    /// Has [`finish`](Self::finish) wait until a new file and its name are on the disk.
    pub(crate) fn durable(self) -> Self {
        let place = match self.place {
            OpenTarget::New { atomic, existing, overwrite, kept } => {
                OpenTarget::New { atomic: atomic.durable(), existing, overwrite, kept }
            }
            place => place,
        };
        Self { place, ..self }
    }

    /// Gives the file its name once all bytes are there.
    pub(crate) fn finish(self, bytes: u64) -> Result<()> {
        match self.place {
            OpenTarget::New { atomic, existing, .. } => {
                Ok(atomic.commit(existing).with_path(Action::Writing, self.path)?)
            }
            OpenTarget::Open { file, at } => {
                check_writes(&file).with_path(Action::Writing, self.path)?;
                // Pipes and devices have no cursor. A file that is standard output has one, which
                // the next command of a script writes from.
                let _ = seek(&file, SeekFrom::Start(at + bytes));
                Ok(())
            }
            OpenTarget::End { file, at } => {
                check_end(&file, at + bytes).with_path(Action::Writing, &self.path)?;
                let written =
                    check_writes(&file).or_else(|errno| ftruncate(&file, at).and(Err(errno)));
                Ok(written.with_path(Action::Writing, self.path)?)
            }
        }
    }

    /// Cleans up after a transfer that failed after this many bytes: a new file vanishes by itself,
    /// an appended one is cut back, unless that would remove what another program has appended.
    pub(crate) fn abandon(self, bytes: u64) -> Result<()> {
        match self.place {
            OpenTarget::End { file, at } => {
                let cut = check_end(&file, at + bytes).and_then(|()| Ok(ftruncate(&file, at)?));
                Ok(cut.with_path("cutting back", self.path)?)
            }
            OpenTarget::New { .. } | OpenTarget::Open { .. } => Ok(()),
        }
    }
}

/// Returns the offset of an open file; 0 for what has no offsets.
fn cursor(file: &File) -> io::Result<u64> {
    match seek(file, SeekFrom::Current(0)) {
        Err(Errno::SPIPE | Errno::INVAL) => Ok(0),
        at => Ok(at?),
    }
}

/// Checks that a file that was appended to ends where it was appended to last.
fn check_end(file: &File, end: u64) -> io::Result<()> {
    if file.metadata()?.len() == end {
        Ok(())
    } else {
        Err(io::Error::other("another program has written to it during the transfer"))
    }
}

/// Gives a new file what is to be kept of the one that it is to replace.
fn keep_mode(path: &Path, atomic: &AtomicFile, kept: Option<KeptOwner>) -> io::Result<()> {
    let Some(owner) = kept else { return Ok(()) };
    let folder = atomic_file::folder_of(path);
    let folder = openat(CWD, folder, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    take_over_named(atomic.file(), folder, path.file_name().unwrap_or_default(), owner)?;
    Ok(())
}

fn may_replace(path: &Path, overwrite: OverwriteRule) -> Result<()> {
    match overwrite {
        OverwriteRule::Never => Err(Errno::EXIST).with_path(Action::Writing, path)?,
        OverwriteRule::IfWritable => {
            let access = accessat(CWD, path, Access::WRITE_OK, rustix::fs::AtFlags::EACCESS);
            Ok(access.with_path(Action::Replacing, path)?)
        }
        OverwriteRule::Always => Ok(()),
    }
}

/// Opens a path, and returns `EINTR` soon after `cancel` is set. A FIFO waits for its other end, a
/// serial line for its carrier, and a file on which another process has a lease for that process.
fn open(path: &Path, how: &OpenOptions, cancel: &AtomicBool) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    if !fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        match how.clone().custom_flags(nonblocking).open(path) {
            // A lease: the kernel has asked its holder to release it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome.and_then(blocking),
        }
    }
    let (path, how) = (path.to_owned(), how.clone());
    interruptible(cancel, move || how.open(path))
}

/// Returns the file without `O_NONBLOCK`.
pub(crate) fn blocking(file: File) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a standard stream; one that was closed when the program began is an error, since /dev/null
/// has taken its place.
fn standard(stream: &impl AsFd, how: &OpenOptions) -> io::Result<File> {
    if was_closed(stream) { Err(Errno::BADF.into()) } else { private(stream.as_fd(), how) }
}

/// Returns standard input, for lists; one that was closed when the program began is an error.
pub(crate) fn standard_input() -> Result<io::Stdin> {
    let stdin = io::stdin();
    if was_closed(&stdin) {
        Err(Errno::BADF).with_path("opening", "standard input")?
    } else {
        Ok(stdin)
    }
}

/// Opens a new descriptor for a standard stream, whose flags no other process shares: a transfer
/// makes its streams non-blocking, and the shell and other processes hold the same pipe or
/// terminal.
fn private(standard: BorrowedFd<'_>, how: &OpenOptions) -> io::Result<File> {
    let stat = fstat(standard)?;
    let shared = || -> io::Result<OwnedFd> { standard.try_clone_to_owned() };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::CharacterDevice => {
            // It must not wait: the other end of a named FIFO may have been closed already.
            let how = how.clone().custom_flags(OFlags::NONBLOCK.bits() as i32).clone();
            let own = how.open(format!("/proc/self/fd/{}", standard.as_raw_fd()));
            match own.and_then(blocking) {
                // poll(2) never reports the end to a descriptor opened after the last writer has
                // closed.
                Ok(own) if !has_hung_up(standard) => Ok(own),
                _ => shared().map(File::from),
            }
        }
        _ => shared().map(File::from),
    }
}

/// Returns whether the other end of a pipe is closed.
fn has_hung_up(end: BorrowedFd<'_>) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok() && ends[0].revents().contains(PollFlags::HUP)
}

/// Returns whether a source has holes that a copy should keep.
pub(crate) fn is_sparse(input: &Input, source: &Source<&File>) -> bool {
    let allocated = |stat: rustix::fs::Stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    source.kind() == Kind::Regular
        && fstat(&input.file)
            .is_ok_and(|stat| source.promised().is_some_and(|len| allocated(stat) < len))
}
