//! The backup names of replaced files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use underpass_engine::atomic_file::folder_of;

/// The naming of backups of replaced files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The kind of their names.
    pub control: BackupControl,
    /// The suffix of simple names; not empty and without a slash.
    pub suffix: OsString,
}

/// The kind of names that backups get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupControl {
    /// The name with the suffix. It replaces an earlier backup.
    Simple,
    /// The name with `.~N~`, where N is one more than the highest existing number.
    Numbered,
    /// Numbered if there is a numbered backup, simple otherwise.
    Existing,
}

impl Backup {
    /// Returns the simple name of the backup of `name`.
    pub(crate) fn simple(&self, name: &[u8]) -> Vec<u8> {
        [name, self.suffix.as_bytes()].concat()
    }

    /// Returns the name that a backup of the file at `path` would get now.
    #[must_use]
    pub fn path_of(&self, path: &Path) -> PathBuf {
        let folder = folder_of(path);
        let name = path.file_name().unwrap_or_default().as_bytes();
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let highest = names.filter_map(|found| number(name, found.as_bytes())).max();
        let backup = match highest {
            Some(highest) if self.control != BackupControl::Simple => numbered(name, highest + 1),
            None if self.control == BackupControl::Numbered => numbered(name, 1),
            _ => self.simple(name),
        };
        path.with_file_name(OsString::from_vec(backup))
    }
}

/// Returns the numbered name of a backup.
pub(crate) fn numbered(name: &[u8], number: u64) -> Vec<u8> {
    [name, b".~", number.to_string().as_bytes(), b"~"].concat()
}

/// Returns the number of `found`, if it is a numbered backup of `name`.
pub(crate) fn number(name: &[u8], found: &[u8]) -> Option<u64> {
    let digits = found.strip_prefix(name)?.strip_prefix(b".~")?.strip_suffix(b"~")?;
    let is_number = matches!(digits.first(), Some(b'1'..=b'9'));
    let digits = OsStr::from_bytes(digits).to_str().filter(|_| is_number)?;
    // The next number must not overflow.
    digits.parse().ok().filter(|number| *number < u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numeric_suffixes_are_numbered_backups() {
        for (found, expected) in [
            (&b"f.~1~"[..], Some(1)),
            (b"f.~120~", Some(120)),
            (b"f.~0~", None),
            (b"f.~01~", None),
            (b"f.~+1~", None),
            (b"f.~~", None),
            (b"f~", None),
            (b"g.~1~", None),
            (b"f.~18446744073709551615~", None),
        ] {
            assert_eq!(number(b"f", found), expected);
        }
        assert_eq!(numbered(b"f", 7), b"f.~7~");
    }
}
