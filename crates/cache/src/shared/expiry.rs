//! Declared expiries: everything below a path that was requested earlier is stale. They are
//! numbered, because the clock can be set back.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use underpass_engine::wait::lock;

use crate::error::OpenError;
use crate::store::millis;

/// The prefixes of paths that were declared stale, with the number of each expiry.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// The file that stores them for later processes, in lines of a number and a prefix.
    file: PathBuf,
    prefixes: Mutex<Vec<(u64, String)>>,
    /// The largest number so far.
    newest: AtomicU64,
    /// Held while the file is written; requests do not wait for that.
    writing: Mutex<()>,
}

impl Expiry {
    /// Loads the prefixes that earlier processes have recorded.
    ///
    /// # Errors
    ///
    /// If the file exists and cannot be read: objects that it marks as stale would count as fresh.
    pub(crate) fn load(file: PathBuf) -> Result<Self, OpenError> {
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(source) => return Err(OpenError::Io { action: "reading", path: file, source }),
            Ok(text) => text,
        };
        let entry = |line: &str| {
            let (number, prefix) = line.split_once(' ')?;
            Some((number.parse().ok()?, prefix.to_owned()))
        };
        let mut prefixes = text.lines().filter_map(entry).collect();
        merge(&mut prefixes);
        let newest = prefixes.iter().map(|(number, _)| *number).max().unwrap_or(0).into();
        Ok(Self { file, prefixes: Mutex::new(prefixes), newest, writing: Mutex::default() })
    }

    /// Marks all objects whose path has this prefix as stale. Waits for the disk.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; the prefix then only applies to this process.
    pub(crate) fn add(&self, prefix: &str) -> io::Result<()> {
        self.insert(prefix);
        let _writing = lock(&self.writing);
        // Prefixes that other threads have added meanwhile are written, too.
        let lines: String = {
            let prefixes = lock(&self.prefixes);
            prefixes.iter().map(|(number, prefix)| format!("{number} {prefix}\n")).collect()
        };
        let part = self.file.with_extension("part");
        let mut file = File::create(&part)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &self.file)?;
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn insert(&self, prefix: &str) {
        let mut prefixes = lock(&self.prefixes);
        prefixes.retain(|(_, known)| !known.starts_with(prefix));
        // The time also exceeds any numbers that an earlier process failed to write.
        let number = (self.newest() + 1).max(millis(SystemTime::now()));
        prefixes.push((number, prefix.to_owned()));
        merge(&mut prefixes);
        self.newest.store(number, Ordering::Release);
    }

    /// Returns the number of the latest expiry, which does not cover requests from now on.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }

    /// Returns whether an object was declared stale after it was requested. `epoch` was the latest
    /// expiry at the time of the request.
    pub(crate) fn covers(&self, key: &str, epoch: u64) -> bool {
        epoch < self.newest()
            && lock(&self.prefixes)
                .iter()
                .any(|(number, prefix)| epoch < *number && key.starts_with(prefix))
    }
}

/// Limits the number of prefixes: the oldest ones are merged into one prefix of all paths. Older
/// objects are then validated whatever their path is, which is always safe.
fn merge(prefixes: &mut Vec<(u64, String)>) {
    let surplus = prefixes.len().saturating_sub(MAX_PREFIXES);
    if surplus == 0 {
        return;
    }
    prefixes.sort_by_key(|(number, _)| *number);
    let merged = prefixes.drain(..=surplus).next_back();
    prefixes.extend(merged.map(|(number, _)| (number, "/".to_owned())));
    prefixes.rotate_right(1);
}

/// The maximum number of distinct prefixes.
const MAX_PREFIXES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expired_entries_stay_stale_until_they_are_requested() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("expired");
        // The clock of an earlier process was ahead by a year.
        let ahead = millis(SystemTime::now()) + 365 * 86_400_000;
        fs::write(&file, format!("{ahead} /c/\n")).unwrap();
        let expiry = Expiry::load(file.clone()).unwrap();
        let before = expiry.newest();
        assert!(expiry.covers("/c/b", before - 1) && !expiry.covers("/c/b", before));
        assert!(!expiry.covers("/a/b", before));
        expiry.add("/a/").unwrap();
        let after = expiry.newest();
        for expiry in [expiry, Expiry::load(file.clone()).unwrap()] {
            assert!(expiry.covers("/a/b", before) && !expiry.covers("/b", before));
            assert!(!expiry.covers("/a/b", after));
        }
        let expiry = Expiry::load(file).unwrap();
        // The oldest prefixes are merged into one for all paths.
        for number in 0..3 * MAX_PREFIXES {
            expiry.insert(&format!("/n/{number}/"));
        }
        assert_eq!(expiry.prefixes.lock().unwrap().len(), MAX_PREFIXES);
        assert!(expiry.covers("/a/b", before) && expiry.covers("/n/9/x", after + 9));
        let merged = after + 2 * MAX_PREFIXES as u64;
        assert!(expiry.covers("/b", merged) && !expiry.covers("/b", merged + 1));
        assert!(expiry.covers("/n/3000/x", after + 3000));
        assert!(!expiry.covers("/n/3000/x", after + 3001));
        expiry.add("/").unwrap();
        assert_eq!(expiry.prefixes.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = Expiry::load(folder.path().to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("reading /"), "{error}");
    }
}
