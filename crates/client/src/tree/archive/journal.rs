//! The journal of an unfinished folder: its archive, the number of unpacked bytes, and whatever
//! else resuming needs.
//!
//! Two positions in the archive have fixed places and are overwritten: how much is in the page
//! cache, and how much is on the disk. Lines are appended after them. Each has a checksum, so that
//! one that was being written when the power failed is ignored.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rustix::fs::{AtFlags, Mode, OFlags, Timespec, fstat, openat, syncfs, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{is_ours, lock_file, open_entry, try_lock};
use underpass_engine::{is_file, mount_epoch};
use underpass_protocol::archive::Fingerprint;
use underpass_protocol::encode_segment;

use super::noted::{ArchiveId, LargeFile, NotedArchive};
use crate::journal::FileId;
use crate::tree::dest::FolderAttrs;
use crate::tree::write_log::SYNC_INTERVAL;

/// An open journal, locked.
#[derive(Debug)]
pub(super) struct ArchiveJournal {
    file: File,
    folder: OwnedFd,
    name: OsString,
    /// The current mount epoch, as one word.
    epoch: String,
    /// The offset of the next line.
    end: AtomicU64,
    /// The position that was written last.
    written: AtomicU64,
    /// The error of a sync.
    failed: OnceLock<Errno>,
}

impl ArchiveJournal {
    /// Opens or creates a journal and reads it.
    ///
    /// # Errors
    ///
    /// `EWOULDBLOCK` if another process has it open, `EEXIST` if another program or another user
    /// has made it, and as openat(2) and read(2).
    pub(super) fn open(folder: OwnedFd, name: &OsStr) -> io::Result<(Self, Option<NotedArchive>)> {
        // O_NONBLOCK: opening a FIFO must not block.
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let flags = flags | OFlags::CREATE | OFlags::RDWR;
        let mut file = loop {
            let file = File::from(openat(&folder, name, flags, Mode::from_raw_mode(0o600))?);
            if is_foreign(&file)? || !is_ours(&file, &folder)? {
                return Err(Errno::EXIST.into());
            }
            lock_file(&file)?;
            // The process that held the lock may have finished and removed it.
            if fstat(&file)?.st_nlink > 0 {
                break file;
            }
        };
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let epoch = epoch_of(&file);
        // The kernel drops bytes that it could not write back.
        let (noted, end) = match read(&text, &epoch) {
            (Some(noted), _) if noted.is_same_epoch && syncfs(&file).is_err() => read(&text, ""),
            noted => noted,
        };
        if noted.is_some() {
            file.set_len(end)?;
        }
        let written = AtomicU64::new(noted.as_ref().map_or(0, |noted| noted.position));
        let (end, failed) = (AtomicU64::new(end), OnceLock::new());
        Ok((Self { file, folder, name: name.to_owned(), epoch, end, written, failed }, noted))
    }

    /// Forgets the archive: the contents of the folder are of an older one.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.file.set_len(0)
    }

    /// Starts over, with nothing unpacked.
    pub(super) fn begin(&self, origin: &ArchiveId) -> io::Result<()> {
        self.clear()?;
        let ArchiveId { url, etag, top, len } = origin;
        let [url, etag] = [url, etag].map(|text| encode_segment(text.as_bytes()));
        let (top, epoch) = (encode_segment(top), &self.epoch);
        let text = [
            MAGIC.to_owned(),
            slot(SAFE, 0),
            slot(DONE, 0),
            sealed(&format!("archive {len} {etag} {url} .{top} {epoch}")),
        ];
        self.end.store(0, Ordering::Relaxed);
        self.written.store(0, Ordering::Relaxed);
        self.append(&text.concat())
    }

    /// Records the current mount epoch, and that everything before `position` is unpacked.
    pub(super) fn go_on(&self, position: u64) -> io::Result<()> {
        self.append(&sealed(&format!("boot {}", self.epoch)))?;
        self.reach(position)
    }

    /// Records a folder whose permissions and time are still to be set.
    pub(super) fn record_folder(&self, facts: &FolderAttrs) -> io::Result<()> {
        let FolderAttrs { path, mode, modified: Timespec { tv_sec, tv_nsec } } = facts;
        let path = encode_segment(path);
        self.append(&sealed(&format!("folder {mode} {tv_sec} {tv_nsec} .{path}")))
    }

    /// Records that something was left out.
    pub(super) fn record_omission(&self) -> io::Result<()> {
        self.append(&sealed("omission"))
    }

    /// Records why permissions or times were refused.
    pub(super) fn record_refusal(&self, errno: Errno) -> io::Result<()> {
        self.append(&sealed(&format!("refused {}", errno.raw_os_error())))
    }

    /// Records a large file before its first byte.
    pub(super) fn record_large_file(&self, large: &LargeFile) -> io::Result<()> {
        let LargeFile { header, data, size, mode, modified, path, .. } = large;
        let (Timespec { tv_sec, tv_nsec }, path) = (modified, encode_segment(path));
        self.append(&sealed(&format!(
            "large {header} {data} {size} {mode} {tv_sec} {tv_nsec} .{path}"
        )))
    }

    /// Records the partial file of the last large file.
    pub(super) fn record_part(&self, part: FileId) -> io::Result<()> {
        let (tv_sec, tv_nsec) = part.born.unwrap_or_default();
        self.append(&sealed(&format!("part {} {tv_sec} {tv_nsec}", part.inode)))
    }

    /// Records that everything before `position` is unpacked, if that is worth a system call.
    pub(super) fn reached(&self, position: u64) -> io::Result<()> {
        if position < self.written.load(Ordering::Relaxed) + NOTE_EVERY {
            return Ok(());
        }
        self.reach(position)
    }

    /// Records that everything before `position` is unpacked, unless a sync has failed.
    pub(super) fn reach(&self, position: u64) -> io::Result<()> {
        if let Some(errno) = self.failed.get() {
            return Err((*errno).into());
        }
        self.file.write_all_at(slot(DONE, position).as_bytes(), DONE_AT)?;
        self.written.store(position, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs the file system periodically and records the position on the disk, until the sender of
    /// `stop` is dropped.
    pub(super) fn sync_periodically(&self, stop: &Receiver<()>) {
        while stop.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let position = self.written.load(Ordering::Relaxed);
            if let Err(errno) = syncfs(&self.file) {
                let _ = self.failed.set(errno);
                return;
            }
            // The error is ignored: the next write will report it.
            let _ = self.file.write_all_at(slot(SAFE, position).as_bytes(), SAFE_AT);
        }
    }

    /// Checks that all syncs succeeded. If one failed, any byte since the previous one may be lost,
    /// and a later run resumes there.
    pub(super) fn check(&self) -> Result<(), Errno> {
        let Some(errno) = self.failed.get() else { return Ok(()) };
        // A mount epoch that matches no other: only synced files count.
        let _ = self.append(&sealed("boot lost"));
        Err(*errno)
    }

    /// Removes the journal.
    pub(super) fn remove(self) -> io::Result<()> {
        Ok(unlinkat(self.folder.as_fd(), &self.name, AtFlags::empty())?)
    }

    fn append(&self, text: &str) -> io::Result<()> {
        self.file.write_all_at(text.as_bytes(), self.end.load(Ordering::Relaxed))?;
        self.end.fetch_add(text.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Removes a journal that no process has open, if there is one.
pub(super) fn remove_stale(folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let file = match open_entry(folder, name) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let mut magic = [0; MAGIC.len()];
    let is_journal = file.read_exact_at(&mut magic, 0).is_ok() && magic == *MAGIC.as_bytes();
    let is_own = is_journal && is_ours(&file, folder)?;
    if is_own && try_lock(&file, folder, name) {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(())
}

/// Returns whether a file with a journal's name is not a journal. A power cut may leave the
/// beginning of one, or zeros.
fn is_foreign(file: &File) -> io::Result<bool> {
    if !is_file(&fstat(file)?) {
        return Ok(true);
    }
    let mut magic = [0; MAGIC.len()];
    let len = file.read_at(&mut magic, 0)?;
    let magic = &magic[..len];
    Ok(!MAGIC.as_bytes().starts_with(magic) && magic.iter().any(|byte| *byte != 0))
}

/// Parses a journal; returns its contents and the end of its last valid line.
fn read(text: &[u8], epoch: &str) -> (Option<NotedArchive>, u64) {
    let nothing = (None, 0);
    let Some(rest) = text.strip_prefix(MAGIC.as_bytes()) else { return nothing };
    let mut lines = rest.split_inclusive(|byte| *byte == b'\n');
    let safe = lines.next().and_then(|line| position(line, SAFE));
    let done = lines.next().and_then(|line| position(line, DONE));
    let mut end = LINES_AT;
    let mut noted: Option<NotedArchive> = None;
    let mut large: Vec<LargeFile> = Vec::new();
    for line in lines {
        let Some(words) = unsealed(line) else { break };
        let Some(()) = apply(&words, epoch, &mut noted, &mut large) else { break };
        // Only the last large file and those at either position are needed.
        let is_of_use =
            |large: &LargeFile| [safe, done].into_iter().flatten().any(|at| large.holds(at));
        if let Some(before) = large.len().checked_sub(2).filter(|it| !is_of_use(&large[*it])) {
            large.remove(before);
        }
        end += line.len() as u64;
    }
    let Some(mut noted) = noted else { return nothing };
    noted.position = match done {
        Some(done) if noted.is_same_epoch => done,
        _ => safe.unwrap_or(0),
    };
    let position = noted.position;
    noted.partial = large.last().map(|large| large.path.clone());
    noted.large = large.into_iter().rev().find(|large| large.holds(position));
    (Some(noted), end)
}

/// Applies the words of one line.
fn apply(
    words: &[&str],
    epoch: &str,
    noted: &mut Option<NotedArchive>,
    large: &mut Vec<LargeFile>,
) -> Option<()> {
    match (words, noted) {
        (["archive", len, etag, url, top, then], noted @ None) => {
            let text = |word: &str| String::from_utf8(decoded(word)).ok();
            let origin = ArchiveId {
                url: text(url)?,
                etag: text(etag)?,
                top: path(top)?,
                len: len.parse().ok()?,
            };
            *noted = Some(NotedArchive {
                origin,
                position: 0,
                is_same_epoch: *then == epoch,
                has_omission: false,
                refused: None,
                folders: Vec::new(),
                large: None,
                partial: None,
            });
        }
        (["omission"], Some(noted)) => noted.has_omission = true,
        (["refused", errno], Some(noted)) => {
            noted.refused = Some(Errno::from_raw_os_error(errno.parse().ok()?));
        }
        (["boot", then], Some(noted)) => noted.is_same_epoch = *then == epoch,
        (["folder", mode, tv_sec, tv_nsec, name], Some(noted)) => {
            noted.folders.push(FolderAttrs {
                path: path(name)?,
                mode: mode.parse().ok()?,
                modified: Timespec { tv_sec: tv_sec.parse().ok()?, tv_nsec: tv_nsec.parse().ok()? },
            });
        }
        (["large", header, data, size, mode, tv_sec, tv_nsec, name], Some(_)) => {
            large.push(LargeFile {
                header: header.parse().ok()?,
                data: data.parse().ok()?,
                size: size.parse().ok()?,
                mode: mode.parse().ok()?,
                modified: Timespec { tv_sec: tv_sec.parse().ok()?, tv_nsec: tv_nsec.parse().ok()? },
                path: path(name)?,
                part: None,
            });
        }
        (["part", inode, tv_sec, tv_nsec], Some(_)) => {
            let born = (tv_sec.parse().ok()?, tv_nsec.parse().ok()?);
            let born = (born != (0, 0)).then_some(born);
            large.last_mut()?.part = Some(FileId { inode: inode.parse().ok()?, born });
        }
        _ => return None,
    }
    Some(())
}

/// Decodes a path; a leading dot keeps an empty one a word.
fn path(word: &str) -> Option<Vec<u8>> {
    Some(decoded(word.strip_prefix('.')?))
}

fn decoded(word: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(word).collect()
}

/// Returns a line with its checksum.
fn sealed(text: &str) -> String {
    format!("{text} {}\n", sum(text))
}

/// Returns the words of a line with a valid checksum.
fn unsealed(line: &[u8]) -> Option<Vec<&str>> {
    let line = str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (text, stated) = line.rsplit_once(' ')?;
    (stated == sum(text)).then(|| text.split(' ').collect())
}

fn sum(text: &str) -> String {
    let mut fingerprint = Fingerprint::new();
    fingerprint.bytes(text.as_bytes());
    format!("{:032x}", fingerprint.value())
}

/// Formats a position of fixed length.
fn slot(name: &str, position: u64) -> String {
    sealed(&format!("{name} {position:020}"))
}

fn position(line: &[u8], name: &str) -> Option<u64> {
    match unsealed(line)?.as_slice() {
        [stated, number] if *stated == name => number.parse().ok(),
        _ => None,
    }
}

/// Returns the mount epoch of a file as one word; if it is unknown, a word that matches no other.
fn epoch_of(file: &File) -> String {
    let epoch = mount_epoch::current(file).map(|epoch| encode_segment(epoch.as_bytes()));
    epoch.map_or_else(|| format!("unknown-{}", std::process::id()), |it| it.to_string())
}

const MAGIC: &str = "underpass get: unfinished folder, 1\n";
const SAFE: &str = "safe";
const DONE: &str = "done";

/// The length of a position in bytes: name, twenty digits, thirty-two of the checksum, separators.
const SLOT: u64 = 4 + 1 + 20 + 1 + 32 + 1;
const SAFE_AT: u64 = MAGIC.len() as u64;
const DONE_AT: u64 = SAFE_AT + SLOT;
const LINES_AT: u64 = DONE_AT + SLOT;

/// Bytes of the archive between two records: at most 1 MiB is fetched twice.
const NOTE_EVERY: u64 = 512 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> ArchiveId {
        let (url, etag) = ("http://h/a b/".to_owned(), "\"e \u{e4}\"".to_owned());
        ArchiveId { url, etag, top: b"a b".to_vec(), len: 9_000_000 }
    }

    fn folder(path: &[u8]) -> FolderAttrs {
        FolderAttrs {
            path: path.to_vec(),
            mode: 0o755,
            modified: Timespec { tv_sec: -1, tv_nsec: 999_999_999 },
        }
    }

    fn large() -> LargeFile {
        LargeFile {
            header: 1_024,
            data: 2_048,
            size: 5_000_000,
            mode: 0o600,
            modified: Timespec { tv_sec: 7, tv_nsec: 8 },
            path: b"x/\xff\n".to_vec(),
            part: Some(FileId { inode: 9, born: Some((10, 11)) }),
        }
    }

    /// Creates a journal with one line of each kind; returns it and its text.
    fn written(dest: &std::path::Path) -> (ArchiveJournal, Vec<u8>) {
        let folder_fd = || OwnedFd::from(File::open(dest).unwrap());
        let (journal, noted) = ArchiveJournal::open(folder_fd(), OsStr::new("j")).unwrap();
        assert_eq!(noted, None);
        journal.begin(&origin()).unwrap();
        journal.record_folder(&folder(b"")).unwrap();
        journal.record_folder(&folder(b"d/e f")).unwrap();
        journal.record_large_file(&large()).unwrap();
        journal.record_part(large().part.unwrap()).unwrap();
        journal.record_omission().unwrap();
        journal.record_refusal(Errno::PERM).unwrap();
        journal.reach(1_000_000).unwrap();
        let text = std::fs::read(dest.join("j")).unwrap();
        (journal, text)
    }

    #[test]
    fn a_journal_reads_back_its_entries() {
        let dest = tempfile::tempdir().unwrap();
        let (journal, text) = written(dest.path());
        let (noted, end) = read(&text, &journal.epoch);
        let folders = vec![folder(b""), folder(b"d/e f")];
        let expected = NotedArchive {
            origin: origin(),
            position: 1_000_000,
            is_same_epoch: true,
            has_omission: true,
            refused: Some(Errno::PERM),
            folders,
            large: Some(large()),
            partial: Some(large().path),
        };
        assert_eq!((noted, end), (Some(expected.clone()), text.len() as u64));
        // In another mount epoch, only what was on the disk counts.
        let other = NotedArchive { position: 0, is_same_epoch: false, large: None, ..expected };
        let another_mount = format!("{}1", journal.epoch);
        for epoch in ["another", &another_mount] {
            assert_eq!(read(&text, epoch).0.as_ref(), Some(&other), "{epoch}");
        }
        journal.remove().unwrap();
        assert!(!dest.path().join("j").exists());
    }

    #[test]
    fn after_a_failed_sync_only_what_is_safe_counts() {
        let dest = tempfile::tempdir().unwrap();
        let (journal, _) = written(dest.path());
        journal.file.write_all_at(slot(SAFE, 500_000).as_bytes(), SAFE_AT).unwrap();
        journal.check().unwrap();
        journal.failed.set(Errno::IO).unwrap();
        journal.reach(2_000_000).unwrap_err();
        journal.check().unwrap_err();
        drop(journal);
        let folder = OwnedFd::from(File::open(dest.path()).unwrap());
        let (_, noted) = ArchiveJournal::open(folder, OsStr::new("j")).unwrap();
        let noted = noted.unwrap();
        assert_eq!((noted.position, noted.is_same_epoch), (500_000, false));
    }

    #[test]
    fn a_truncated_line_is_ignored() {
        let dest = tempfile::tempdir().unwrap();
        let (journal, text) = written(dest.path());
        for len in 0..text.len() {
            let (noted, end) = read(&text[..len], &journal.epoch);
            assert!(end as usize <= len, "{len}");
            if let Some(noted) = noted {
                assert_eq!(noted.origin, origin());
                assert!(noted.folders.len() <= 2);
            }
        }
        let slot_at = DONE_AT as usize;
        for at in slot_at..slot_at + SLOT as usize {
            let mut text = text.clone();
            text[at] ^= 1;
            let noted = read(&text, &journal.epoch).0;
            assert!(noted.is_none_or(|noted| noted.position == 0), "{at}");
        }
    }

    #[test]
    fn two_processes_do_not_share_a_journal() {
        let dest = tempfile::tempdir().unwrap();
        let (_journal, _) = written(dest.path());
        let folder = OwnedFd::from(File::open(dest.path()).unwrap());
        let error = ArchiveJournal::open(folder, OsStr::new("j")).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::WOULDBLOCK));
    }
}
