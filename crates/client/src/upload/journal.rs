//! The journal of an upload, with which another process can resume it.
//!
//! It is one small file, written once before the first byte of the body is sent: the URL of the
//! upload, and the version of the file. Only the server knows how much has arrived. For an upload
//! to a store, a line is added for each part that the store has acknowledged. The process that
//! performs the upload holds a lock on the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::fstat;
use serde::{Deserialize, Serialize};
use underpass_engine::atomic_file::lock_file;
use underpass_engine::mount_epoch;

/// The contents of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct JournalEntry {
    /// The version of the format.
    version: u32,
    /// The target.
    pub(crate) target: String,
    /// The URL of the upload.
    pub(crate) resource: String,
    /// The version of the file: device, inode, size and the times of its last changes; and the boot
    /// id, if it had been changed recently.
    pub(crate) file: String,
    /// The number and the entity tag of each part that a store has acknowledged.
    #[serde(skip)]
    pub(crate) parts: Vec<(usize, String)>,
}

impl JournalEntry {
    pub(crate) fn new(target: &str, resource: &str, file: &str) -> Self {
        let (target, resource, file) = (target.to_owned(), resource.to_owned(), file.to_owned());
        Self { version: FORMAT, target, resource, file, parts: Vec::new() }
    }
}

/// An open journal, locked.
#[derive(Debug)]
pub(crate) struct UploadJournal {
    file: File,
    path: PathBuf,
}

impl UploadJournal {
    /// Opens the journal of an earlier process, if there is one; contents that cannot be parsed are
    /// `None`.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if another process is using it, and as open(2).
    pub(crate) fn find(path: &Path) -> io::Result<Option<(Self, Option<JournalEntry>)>> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        lock_file(&file)?;
        if file.metadata()?.nlink() == 0 {
            // The other process removed it between open and lock.
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.by_ref().take(MAX_LEN).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines();
        let entry: Option<JournalEntry> =
            lines.next().and_then(|line| serde_json::from_str(line).ok());
        let mut entry = entry.filter(|entry| entry.version == FORMAT);
        if let Some(entry) = &mut entry {
            entry.parts = lines.filter_map(part).collect();
        }
        Ok(Some((Self { file, path: path.to_owned() }, entry)))
    }

    /// Creates a journal and its folder.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if another process was faster, and as open(2).
    pub(crate) fn create(path: &Path, entry: &JournalEntry) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // The URL of the upload is as secret as a password.
        let mut how = OpenOptions::new();
        let file = how.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let journal = Self { file, path: path.to_owned() };
        match lock_file(&journal.file).map_err(io::Error::from).and_then(|()| journal.write(entry))
        {
            Ok(()) => Ok(journal),
            Err(error) => {
                journal.remove();
                Err(error)
            }
        }
    }

    /// Replaces the contents.
    ///
    /// # Errors
    ///
    /// As write(2).
    pub(crate) fn write(&self, entry: &JournalEntry) -> io::Result<()> {
        let text = serde_json::to_vec(entry).map_err(io::Error::other)?;
        // One write of less than a page: after a kill, the file has all of it or nothing.
        self.file.set_len(0)?;
        self.file.write_all_at(&text, 0)
    }

    /// Records that a store has acknowledged a part. If that fails, a process that resumes the
    /// upload sends the part again.
    pub(crate) fn add_part(&self, number: usize, tag: &str) {
        if let Ok(found) = self.file.metadata() {
            let _ = self.file.write_all_at(format!("\n{number} {tag} .").as_bytes(), found.len());
        }
    }

    /// Removes the journal.
    pub(crate) fn remove(self) {
        // If this fails, the journal names an upload that the server will not know any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// Parses the line of a part; `None` if it is incomplete.
fn part(line: &str) -> Option<(usize, String)> {
    let (number, tag) = line.strip_suffix(" .")?.split_once(' ')?;
    Some((number.parse().ok()?, tag.to_owned()))
}

/// Returns the version of a file, for comparison with that of an earlier upload.
pub(crate) fn version(file: &File) -> io::Result<String> {
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

/// Returns the version as the journal stores it. The bytes of a file that was changed recently may
/// not be on the disk, and after a power cut it can have the same version without them: the boot id
/// is then added.
pub(crate) fn version_to_keep(file: &File, version: &str) -> String {
    let changed = fstat(file).ok().and_then(|stat| u64::try_from(stat.st_ctime).ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if changed.is_some_and(|changed| changed + WRITEBACK_SECONDS < now) {
        version.to_owned()
    } else {
        version_of_boot(version)
    }
}

/// Returns whether a version from a journal is this version.
pub(crate) fn is_version(kept: &str, version: &str) -> bool {
    kept == version || kept == version_of_boot(version)
}

fn version_of_boot(version: &str) -> String {
    format!("{version} boot {}", mount_epoch::boot_id().unwrap_or_default())
}

/// The time in seconds after which the kernel has written back a file: it starts after 30.
const WRITEBACK_SECONDS: u64 = 120;

const FORMAT: u32 = 1;

/// The maximum size of a journal in bytes: an entry, and 10,000 parts.
const MAX_LEN: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_open_in_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/journal");
        assert!(UploadJournal::find(&path).unwrap().is_none());
        let entry = JournalEntry::new("http://a/b", "http://a/b?upload=1", "1:2:3");
        let journal = UploadJournal::create(&path, &entry).unwrap();
        assert_eq!(UploadJournal::find(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(UploadJournal::create(&path, &entry).is_err());
        drop(journal);
        let (journal, found) = UploadJournal::find(&path).unwrap().unwrap();
        assert_eq!(found, Some(entry));
        journal.remove();
        assert!(UploadJournal::find(&path).unwrap().is_none());
    }

    #[test]
    fn acknowledged_parts_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut entry = JournalEntry::new("http://a/b", "http://a/b?upload=1", "1:2:3");
        let journal = UploadJournal::create(&path, &entry).unwrap();
        journal.add_part(2, "\"a b\"");
        journal.add_part(10, "");
        drop(journal);
        entry.parts = vec![(2, "\"a b\"".to_owned()), (10, String::new())];
        let text = fs::read(&path).unwrap();
        assert_eq!(UploadJournal::find(&path).unwrap().unwrap().1.as_ref(), Some(&entry));
        // As if a process were killed while writing the last line.
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        entry.parts.pop();
        assert_eq!(UploadJournal::find(&path).unwrap().unwrap().1, Some(entry));
    }

    #[test]
    fn an_invalid_journal_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let other_format = br#"{"version":2,"target":"","resource":"","file":""}"#;
        for bytes in [&b""[..], b"nonsense", b"{}", other_format, b"\xff\xfe\n1 a ."] {
            fs::write(&path, bytes).unwrap();
            let found = UploadJournal::find(&path).unwrap().unwrap().1;
            assert_eq!(found, None, "{}", bytes.escape_ascii());
        }
    }
}
