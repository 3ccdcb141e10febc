//! The file that a download writes to until it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{
    AtomicFile, Existing, KeptOwner, MAX_SHORT_NAME, is_of_stranger, lock_file, only_adds,
    open_entry, set_mode, shortened, take_over_named, try_lock,
};
use underpass_engine::hint::Action;
use underpass_engine::{is_file, is_folder, kept_time, times_of_new};

use super::error::{DownloadError, Result, TargetError};
use super::interpret::StrongValidator;
use crate::journal::{self, FileId, JournalContents};

const READING_JOURNAL: &str = "reading the journal of";

/// The file that the ranges belong to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct JournalSubject {
    /// Its URL.
    pub(super) url: String,
    /// The URL that answered, without its query; absent in older journals.
    #[serde(default)]
    pub(super) answered: Option<String>,
    /// Its version.
    pub(super) version: StrongValidator,
    /// Its length, if known.
    pub(super) size: Option<u64>,
    /// Its modification time in seconds since 1970, which servers need not repeat with each range.
    #[serde(default)]
    pub(super) modified: Option<u64>,
    /// The partial file.
    #[serde(flatten)]
    pub(super) part: FileId,
    /// The state in which a failed process left the partial file; `None` after a kill.
    #[serde(default)]
    pub(super) left: Option<LeftFile>,
    /// The digests of the whole file that the server has sent, such as `sha-256:`.
    #[serde(default)]
    pub(super) offered: Vec<String>,
    /// Whether parts may be from other servers, so that only a digest tells whether they fit.
    #[serde(default)]
    pub(super) needs_digest: bool,
}

/// The state of a partial file, which reveals later changes: its size, and its modification time in
/// seconds and nanoseconds.
type LeftFile = (u64, i64, i64);

/// The journal of a download.
pub(super) type Journal = journal::Journal<JournalSubject>;

/// The file that a download writes to until it is complete.
#[derive(Debug)]
pub(super) enum PartialFile<'t> {
    /// A file with a temporary name, which a later process can resume, and its journal.
    Resumable(Box<ResumableFile>),
    /// A stream, and the number of bytes written to it.
    Stream { file: &'t File, at: u64, done: u64 },
    /// A temporary file, which disappears with this process.
    Unnamed(AtomicFile),
}

/// A file that a later process can resume, and its journal.
#[derive(Debug)]
pub(super) struct ResumableFile {
    pub(super) atomic: AtomicFile,
    pub(super) journal: Journal,
}

/// The target: a folder and a name in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetName<'t> {
    pub(super) folder: &'t OwnedFd,
    pub(super) name: &'t OsStr,
}

impl PartialFile<'_> {
    /// Returns the file to write to.
    pub(super) fn file(&self) -> &File {
        match self {
            Self::Resumable(kept) => kept.atomic.file(),
            Self::Stream { file, .. } => file,
            Self::Unnamed(atomic) => atomic.file(),
        }
    }

    /// Returns the offset of the download's first byte in the file.
    pub(super) fn base(&self) -> u64 {
        match self {
            Self::Stream { at, .. } => *at,
            Self::Resumable(_) | Self::Unnamed(_) => 0,
        }
    }

    /// Returns the journal, if there is one.
    pub(super) fn journal(&self) -> Option<&Journal> {
        match self {
            Self::Resumable(kept) => Some(&kept.journal),
            Self::Stream { .. } | Self::Unnamed(_) => None,
        }
    }

    /// Records the state of the file for a later process.
    pub(super) fn leave(&mut self) {
        let Self::Resumable(kept) = self else { return };
        let Ok(found) = kept.atomic.file().metadata() else { return };
        let subject = kept.journal.subject();
        // Without this record, the file is resumed as after a kill.
        let _ = kept.journal.describe(|| JournalSubject { left: Some(left(&found)), ..subject });
    }

    /// Returns the ranges that have arrived.
    pub(super) fn present(&self) -> Vec<Range<u64>> {
        match self {
            Self::Resumable(kept) => kept.journal.present(),
            Self::Stream { done: 0, .. } | Self::Unnamed(_) => Vec::new(),
            Self::Stream { done, .. } => vec![0..*done],
        }
    }
}

/// Records, before a part from another server arrives, that a digest must be compared.
pub(super) fn require_digest(journal: Option<&Journal>) -> Result<()> {
    let Some(journal) = journal.filter(|journal| !journal.subject().needs_digest) else {
        return Ok(());
    };
    let noted = journal.describe(|| JournalSubject { needs_digest: true, ..journal.subject() });
    noted.map_err(DownloadError::local("writing the journal of"))
}

impl<'t> TargetName<'t> {
    /// Returns the properties of the file with this name, if there is one. Links do not count,
    /// wherever they lead, because they are replaced.
    pub(super) fn existing(&self) -> Result<Option<Stat>> {
        match statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink => Ok(None),
            Ok(stat) if is_folder(&stat) => {
                Err(DownloadError::local(Action::Writing)(Errno::ISDIR))
            }
            Ok(stat) if !is_file(&stat) => Err(TargetError::Special.into()),
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(DownloadError::local("looking at")(errno)),
        }
    }

    /// Returns whether another user has put a file with this name into a shared folder.
    pub(super) fn is_of_stranger(&self, here: &Stat) -> bool {
        is_of_stranger(here, self.folder)
    }

    /// Returns whether the file with this name has the modification time `modified`, to the second
    /// as servers tell it.
    pub(super) fn has_time(&self, here: &Stat, modified: SystemTime) -> bool {
        let since = modified.duration_since(UNIX_EPOCH).ok();
        let time = since.and_then(|since| Timespec::try_from(since).ok());
        time.is_some_and(|time| kept_time(time, here, self.folder).tv_sec == here.st_mtime)
    }

    /// Opens the file with this name.
    pub(super) fn open(&self) -> Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(self.folder, self.name, flags, Mode::empty());
        Ok(File::from(file.map_err(DownloadError::local("opening"))?))
    }

    /// Gives a file the permissions of the one that it replaces, and its owner if possible: an
    /// update must not make a file readable that other users could not read.
    pub(super) fn keep_mode(&self, file: &File) -> Result<()> {
        let kept = take_over_named(file, self.folder, self.name, KeptOwner::Old);
        kept.map(drop).map_err(DownloadError::local("keeping mode of"))
    }

    /// Creates a file that disappears with this process.
    pub(super) fn unnamed(&self) -> Result<PartialFile<'t>> {
        let atomic = AtomicFile::create_in(self.folder()?, self.name, 0o666);
        Ok(PartialFile::Unnamed(atomic.map_err(DownloadError::local(Action::Creating))?))
    }

    /// Creates an empty file that a later process can resume; `subject` gets its identity.
    pub(super) fn partial(&self, subject: JournalSubject) -> Result<PartialFile<'t>> {
        let atomic = self.locked()?;
        let found = atomic.file().metadata().map_err(DownloadError::local("looking at"))?;
        let part = FileId::of(atomic.file()).map_err(DownloadError::local("looking at"))?;
        let journal = self.journal_name();
        let is_own = match self.known()? {
            Some(known) => known.subject.part.may_be(part),
            // A damaged journal that recognizably belongs to this file is replaced with it.
            None => belongs_to(self.folder, &journal, part.inode),
        };
        if found.len() > 0 && !is_own {
            let is_there = statat(self.folder, &journal, AtFlags::SYMLINK_NOFOLLOW).is_ok();
            let journal = is_there.then_some(journal);
            return Err(TargetError::Foreign { name: self.part_name(), journal }.into());
        }
        let names = [journal.clone(), journal::new_name(&journal)];
        for name in names.into_iter().filter(|_| found.len() == 0) {
            let refusal = match is_foreign(self.folder, &name) {
                Ok(false) => continue,
                Ok(true) => DownloadError::Target(TargetError::Foreign { name, journal: None }),
                Err(error) => DownloadError::local(READING_JOURNAL)(error),
            };
            atomic.discard();
            return Err(refusal);
        }
        atomic.file().set_len(0).map_err(DownloadError::local("emptying"))?;
        let subject = JournalSubject { part, ..subject };
        let journal = Journal::create(self.folder()?, &journal, subject);
        let journal = journal.map_err(DownloadError::local("writing the journal of"))?;
        Ok(PartialFile::Resumable(Box::new(ResumableFile { atomic, journal })))
    }

    /// Opens the file of an earlier process, if it can be resumed. `is_checked`: the digest of the
    /// whole file is compared at the end.
    pub(super) fn earlier(&self, url: &str, is_checked: bool) -> Result<Option<PartialFile<'t>>> {
        if self.known()?.is_none() || !self.has_part() {
            return Ok(None);
        }
        let atomic = self.locked()?;
        // Read again: only now does no other process write to it.
        let Some(mut known) = self.known()? else { return Ok(None) };
        let found = atomic.file().metadata().map_err(DownloadError::local("looking at"))?;
        let part = FileId::of(atomic.file()).map_err(DownloadError::local("looking at"))?;
        // Older journals lack the birth time; the recorded state of the file proves as much.
        let is_upgraded = known.subject.left.is_some() && known.subject.part.may_be(part);
        let is_meant = known.subject.url == url
            && (known.subject.part == part || is_upgraded)
            && (is_checked || !known.subject.needs_digest);
        // Bytes after the end of the file are missing, whatever the journal says.
        let is_sound = known.present.last().is_none_or(|last| last.end <= found.len());
        let is_as_left = known.subject.left.take().is_none_or(|then| then == left(&found));
        if !is_meant || !is_sound || !is_as_left {
            return Ok(None);
        }
        known.subject.part = part;
        known.confirm(atomic.file());
        let journal = Journal::resume(self.folder()?, &self.journal_name(), known);
        let journal = journal.map_err(DownloadError::local("writing the journal of"))?;
        Ok(Some(PartialFile::Resumable(Box::new(ResumableFile { atomic, journal }))))
    }

    /// Returns the version of a complete file whose process was killed after the renaming, before
    /// it could remove the journal.
    pub(super) fn finished(&self, url: &str, size: u64) -> Option<StrongValidator> {
        let known = self.known().ok()??;
        let JournalContents { subject, present, .. } = known;
        let here = FileId::named(self.folder, self.name).ok()?;
        let is_it = subject.url == url && subject.part.may_be(here) && subject.size == Some(size);
        (is_it && present == [0..size]).then_some(subject.version)
    }

    /// Returns whether there is a partial file.
    pub(super) fn has_part(&self) -> bool {
        statat(self.folder, self.part_name(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Returns whether files can only be added to the folder: a partial file could not be renamed.
    pub(super) fn only_adds(&self) -> bool {
        only_adds(self.folder)
    }

    /// Opens or creates the partial file and locks it.
    fn locked(&self) -> Result<AtomicFile> {
        let name = self.part_name();
        // Only users who can read the file to be replaced may read the partial one, and only its
        // owner may write to it.
        let old = self.existing().ok().flatten().filter(|old| !self.is_of_stranger(old));
        let limit = old.map(|old| (old.st_mode & 0o644) | 0o600);
        let mode = limit.map_or(0o666, |_| 0o600);
        for _ in 0..MAX_ATTEMPTS {
            let atomic =
                AtomicFile::partial(self.folder()?, self.name, &name, mode, Existing::Replace);
            let atomic = atomic.map_err(|error| self.not_opened(&name, error))?;
            lock_file(atomic.file()).map_err(|_| TargetError::Busy)?;
            // The process that had the lock may have renamed it: it is the complete file then.
            let own = atomic.file().metadata().map_err(DownloadError::local("looking at"))?;
            let named = statat(self.folder, &name, AtFlags::SYMLINK_NOFOLLOW);
            if named.is_ok_and(|named| named.st_ino == own.ino()) {
                let set = limit.map_or(Ok(()), |mode| set_mode(atomic.file(), mode));
                set.map_err(DownloadError::local("keeping mode of"))?;
                return Ok(atomic);
            }
        }
        Err(TargetError::Busy.into())
    }

    /// Returns the error for a partial file that could not be opened or created.
    fn not_opened(&self, name: &OsStr, error: io::Error) -> DownloadError {
        let is_foreign = match Errno::from_io_error(&error) {
            // A folder, a link or a socket has the name.
            Some(Errno::ISDIR | Errno::LOOP | Errno::NXIO) => true,
            _ => error.kind() == io::ErrorKind::PermissionDenied && self.has_part(),
        };
        if is_foreign {
            return TargetError::Foreign { name: name.to_owned(), journal: None }.into();
        }
        DownloadError::local(Action::Creating)(error)
    }

    /// Removes the journal of a complete file, or journal and partial file of an empty one, on
    /// which this process no longer has a lock. If another process has locked them, they stay.
    ///
    /// The error has the name of the one that cannot be removed.
    pub(super) fn forget(&self, also_the_part: bool) -> Result<(), (OsString, io::Error)> {
        let part = self.part_name();
        // If it cannot be read now, the next process handles it.
        let Ok(known) = self.known() else { return Ok(()) };
        let found = FileId::named(self.folder, &part).ok();
        // Another program may have replaced the partial file.
        let is_own =
            known.zip(found).is_some_and(|(known, found)| known.subject.part.may_be(found));
        // The lock is held until the journal is removed.
        let mut locked = None;
        if is_own {
            let file = open_entry(self.folder, &part);
            locked = file.ok().filter(|file| try_lock(file, self.folder, &part));
            if locked.is_none() {
                return Ok(());
            }
            // Where no rename leaves existing files alone, a complete file has both names first.
            let is_complete = || FileId::named(self.folder, self.name).ok() == found;
            if also_the_part || is_complete() {
                self.remove(part)?;
            }
        }
        let removed = self.remove_journal();
        drop(locked);
        removed
    }

    /// Removes the partial file of an earlier process that is no longer needed, because the file is
    /// complete: one of this URL, or an empty one whose journal could not be written.
    ///
    /// The error is that of [`forget`](Self::forget).
    pub(super) fn forget_superseded(&self, url: &str) -> Result<(), (OsString, io::Error)> {
        let part = self.part_name();
        let Ok(file) = open_entry(self.folder, &part) else { return Ok(()) };
        let Ok(found) = file.metadata() else { return Ok(()) };
        // Another process may be using it.
        if !found.is_file() || !try_lock(&file, self.folder, &part) {
            return Ok(());
        }
        let Ok(known) = self.known() else { return Ok(()) };
        let is_needless = match known {
            Some(known) => {
                let part = FileId::of(&file);
                known.subject.url == url && part.is_ok_and(|part| known.subject.part.may_be(part))
            }
            None => found.len() == 0,
        };
        if is_needless {
            self.remove(part)?;
            self.remove_journal()?;
        }
        Ok(())
    }

    /// Removes the partial file. Its journal has to stay until then: without one, a later process
    /// takes the partial file for that of another program.
    fn remove(&self, part: OsString) -> Result<(), (OsString, io::Error)> {
        match unlinkat(self.folder, &part, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err((part, errno.into())),
        }
    }

    fn remove_journal(&self) -> Result<(), (OsString, io::Error)> {
        let name = self.journal_name();
        journal::remove(self.folder, &name).map(drop).map_err(|error| (name, error))
    }

    /// Reads its journal.
    fn known(&self) -> Result<Option<JournalContents<JournalSubject>>> {
        let known = journal::try_read(self.folder, &self.journal_name());
        known.map_err(DownloadError::local(READING_JOURNAL))
    }

    fn folder(&self) -> Result<OwnedFd> {
        self.folder.try_clone().map_err(DownloadError::local("opening the folder of"))
    }

    /// Returns the name of the partial file.
    pub(super) fn part_name(&self) -> OsString {
        part_name(self.name)
    }

    /// Returns the name of its journal.
    fn journal_name(&self) -> OsString {
        journal_name(self.name)
    }
}

/// Returns whether a damaged journal was the journal of the file with this inode: as far as its
/// first line exists, this program wrote it.
fn belongs_to(folder: &OwnedFd, journal: &OsStr, inode: u64) -> bool {
    let field = format!("\"inode\":{inode},");
    first_line(folder, journal).is_ok_and(|line| {
        line.starts_with(BEGINNING)
            && line.windows(field.len()).any(|text| text == field.as_bytes())
    })
}

/// Returns whether a file with a journal's name is not a journal. A power cut may leave the
/// beginning of one, or zeros.
fn is_foreign(folder: &OwnedFd, journal: &OsStr) -> io::Result<bool> {
    match first_line(folder, journal) {
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Ok(false),
            Some(Errno::LOOP | Errno::ACCESS | Errno::NXIO) => Ok(true),
            _ => Err(error),
        },
        Ok(line) if line.starts_with(BEGINNING) || BEGINNING.starts_with(&line) => Ok(false),
        Ok(line) => Ok(line.iter().any(|byte| *byte != 0)),
    }
}

fn first_line(folder: &OwnedFd, name: &OsStr) -> io::Result<Vec<u8>> {
    let file = open_entry(folder, name)?;
    if !file.metadata()?.is_file() {
        // A FIFO without data must not be treated as an empty file.
        return Err(Errno::NXIO.into());
    }
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEAD)).read_until(b'\n', &mut line)?;
    Ok(line)
}

fn left(found: &Metadata) -> LeftFile {
    (found.len(), found.mtime(), found.mtime_nsec())
}

/// Returns the temporary names that a file of this name and its journal have until it is complete.
pub(crate) fn partial_names(name: &OsStr) -> [OsString; 2] {
    [part_name(name), journal_name(name)]
}

fn part_name(name: &OsStr) -> OsString {
    let mut name = shortened(name, MAX_SHORT_NAME - JOURNAL.len() - ".new".len());
    name.push(".part");
    name
}

fn journal_name(name: &OsStr) -> OsString {
    let mut name = part_name(name);
    name.push(".journal");
    name
}

/// Sets the modification time of a file to the server's.
pub(super) fn set_time(file: &File, modified: SystemTime) -> Result<(), Errno> {
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    futimens(file, &times_of_new(Timespec::try_from(since).unwrap_or_default()))
}

/// The suffixes of partial files and journals.
pub(crate) const PARTIAL_ENDS: [&[u8]; 2] = [b".part", b".part.journal"];

/// The beginning of a journal.
const BEGINNING: &[u8] = b"{\"underpass_journal\":";

/// The maximum number of bytes that are read to recognize a damaged journal.
const MAX_HEAD: u64 = 64 << 10;

/// The longest suffix that is appended to the target's name.
const JOURNAL: &str = ".part.journal";

/// The maximum number of attempts while other processes keep completing the partial file.
const MAX_ATTEMPTS: usize = 8;
