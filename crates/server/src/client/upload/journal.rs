//! What a client remembers of an upload, so that another process can go on with it.
//!
//! One small file, written once, before the first byte of the body leaves: where the upload is
//! continued, and which version of which file it is of. How far it has come only the server knows.
//! Whoever works on the upload holds a lock on the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock, fstat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use underpass_engine::session;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct JournalEntry {
    /// The format.
    version: u32,
    /// The target.
    pub(super) target: String,
    /// Where the upload is continued.
    pub(super) resource: String,
    /// The file as it was: device, inode, size, and the times of its last changes; and the run of the
    /// machine, if it had been changed just before.
    pub(super) file: String,
}

impl JournalEntry {
    pub(super) fn new(target: &str, resource: &str, file: &str) -> Self {
        let (target, resource, file) = (target.to_owned(), resource.to_owned(), file.to_owned());
        Self { version: FORMAT, target, resource, file }
    }
}

/// The file that remembers, locked.
#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    path: PathBuf,
}

impl Journal {
    /// Opens what an earlier process has left, if it left anything; what cannot be understood is
    /// as good as nothing.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another process is at work on it, and as open(2).
    pub(super) fn find(path: &Path) -> io::Result<Option<(Self, Option<JournalEntry>)>> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        lock(&file)?;
        if file.metadata()?.nlink() == 0 {
            // The other process has finished between our two calls.
            return Ok(None);
        }
        let mut text = String::new();
        file.by_ref().take(MAX_LEN).read_to_string(&mut text)?;
        let entry: Option<JournalEntry> = serde_json::from_str(&text).ok();
        let entry = entry.filter(|entry| entry.version == FORMAT);
        Ok(Some((Self { file, path: path.to_owned() }, entry)))
    }

    /// Writes a new one, with its folder.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if another process has done so meanwhile, and as open(2).
    pub(super) fn create(path: &Path, entry: &JournalEntry) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // The address of the upload is as good as a password.
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let journal = Self { file, path: path.to_owned() };
        match lock(&journal.file).and_then(|()| journal.write(entry)) {
            Ok(()) => Ok(journal),
            Err(error) => {
                journal.remove();
                Err(error)
            }
        }
    }

    /// Remembers something else.
    ///
    /// # Errors
    ///
    /// As write(2).
    pub(super) fn write(&self, entry: &JournalEntry) -> io::Result<()> {
        let text = serde_json::to_vec(entry).map_err(io::Error::other)?;
        // Less than a page, by one call: a process that is killed has written all of it or nothing.
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    /// Forgets everything.
    pub(super) fn remove(self) {
        // One that cannot be removed names an upload that the server will not know any more.
        let _ = fs::remove_file(&self.path);
    }
}

fn lock(file: &File) -> io::Result<()> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(io::ErrorKind::WouldBlock.into()),
        // A file system may know no locks: then the server finds out that there are two.
        _ => Ok(()),
    }
}

/// The version of a file, as it is compared with that of an earlier upload.
pub(super) fn version(file: &File) -> io::Result<String> {
    let stat = fstat(file)?;
    Ok(format!(
        "{}:{}:{}:{}.{:09}:{}.{:09}",
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec
    ))
}

/// The version as it is written down. The bytes of a file that was changed just before may not be on the
/// disk, and after a power cut it can have the same version without them: then it names this run of
/// the machine, too.
pub(super) fn version_to_keep(file: &File, version: &str) -> String {
    let changed = fstat(file).ok().and_then(|stat| u64::try_from(stat.st_ctime).ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match changed.is_some_and(|changed| changed + WRITEBACK_SECONDS < now) {
        true => version.to_owned(),
        false => version_of_boot(version),
    }
}

/// Checks whether what was written down means this version of a file.
pub(super) fn is_version(kept: &str, version: &str) -> bool {
    kept == version || kept == version_of_boot(version)
}

fn version_of_boot(version: &str) -> String {
    format!("{version} boot {}", session::boot_id().unwrap_or_default())
}

/// Seconds after which the kernel has written what is in a file to the disk: it begins after 30.
const WRITEBACK_SECONDS: u64 = 120;

const FORMAT: u32 = 1;

/// Bytes of a journal at the most.
const MAX_LEN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_written_is_found_by_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal");
        assert!(Journal::find(&path).unwrap().is_none());
        let entry = JournalEntry::new("http://a/b", "http://a/b?upload=1", "1:2:3");
        let journal = Journal::create(&path, &entry).unwrap();
        assert_eq!(Journal::find(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(Journal::create(&path, &entry).is_err());
        drop(journal);
        let (journal, found) = Journal::find(&path).unwrap().unwrap();
        assert_eq!(found, Some(entry));
        journal.remove();
        assert!(Journal::find(&path).unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_understood_is_as_good_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        for text in ["", "nonsense", "{}", r#"{"version":2,"target":"","resource":"","file":""}"#] {
            fs::write(&path, text).unwrap();
            assert_eq!(Journal::find(&path).unwrap().unwrap().1, None, "{text}");
        }
    }
}
