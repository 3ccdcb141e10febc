//! What the operator has declared stale: everything below a path that was received before a moment.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::store::millis;

/// The prefixes of paths that were declared stale, and when: milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Keeps them for later processes: lines of a moment and a prefix.
    file: PathBuf,
    prefixes: Mutex<Vec<(u64, String)>>,
}

impl Expiry {
    /// Reads what earlier processes have noted.
    pub(crate) fn load(file: PathBuf) -> Self {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let entry = |line: &str| {
            let (moment, prefix) = line.split_once(' ')?;
            Some((moment.parse().ok()?, prefix.to_owned()))
        };
        let prefixes = text.lines().filter_map(entry).collect();
        Self { file, prefixes: Mutex::new(prefixes) }
    }

    /// Declares everything stale whose path begins like this. It waits for the disk.
    ///
    /// # Errors
    ///
    /// If the note cannot be written; then it holds for this process alone.
    pub(crate) fn add(&self, prefix: &str) -> io::Result<()> {
        let mut prefixes = self.lock();
        prefixes.retain(|(_, known)| !known.starts_with(prefix));
        prefixes.push((millis(SystemTime::now()), prefix.to_owned()));
        if prefixes.len() > MAX_PREFIXES {
            // What is older than this has to be validated wherever it is: that is never wrong.
            let (moment, _) = prefixes.remove(0);
            prefixes.retain(|(known, _)| *known > moment);
            prefixes.insert(0, (moment, "/".to_owned()));
        }
        let lines = prefixes.iter().map(|(moment, prefix)| format!("{moment} {prefix}\n"));
        let part = self.file.with_extension("part");
        fs::write(&part, lines.collect::<String>())?;
        fs::rename(&part, &self.file)
    }

    /// Returns whether an object was received, in milliseconds since 1970, before it was declared
    /// stale.
    pub(crate) fn has(&self, key: &str, received: u64) -> bool {
        self.lock().iter().any(|(moment, prefix)| received <= *moment && key.starts_with(prefix))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, String)>> {
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maximum number of prefixes that are kept apart.
const MAX_PREFIXES: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_was_declared_stale_stays_so_until_it_is_received_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("expired");
        let expiry = Expiry::load(file.clone());
        let before = millis(SystemTime::now());
        assert!(!expiry.has("/a/b", before));
        expiry.add("/a/").unwrap();
        let after = millis(SystemTime::now()) + 1;
        for expiry in [expiry, Expiry::load(file.clone())] {
            assert!(expiry.has("/a/b", before) && !expiry.has("/b", before));
            assert!(!expiry.has("/a/b", after));
        }
        let expiry = Expiry::load(file);
        for number in 0..MAX_PREFIXES {
            expiry.add(&format!("/n/{number}/")).unwrap();
        }
        // The oldest is now part of a longer list of what has to be validated.
        assert!(expiry.lock().len() <= MAX_PREFIXES + 1);
        assert!(expiry.has("/a/b", before) && expiry.has("/n/9/x", before));
        expiry.add("/").unwrap();
        assert_eq!(expiry.lock().len(), 1);
    }
}
