//! Declared expiries: everything below a path that was received before a moment is stale.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use underpass_engine::wait::lock;

use crate::error::OpenError;
use crate::store::millis;

/// The prefixes of paths that were declared stale, and when: milliseconds since 1970.
#[derive(Debug)]
pub(crate) struct Expiry {
    /// Keeps them for later processes: lines of a moment and a prefix.
    file: PathBuf,
    prefixes: Mutex<Vec<(u64, String)>>,
    /// The newest moment.
    newest: AtomicU64,
    /// Held while the file is written, for which requests do not wait.
    writing: Mutex<()>,
}

impl Expiry {
    /// Loads the prefixes that earlier processes have recorded.
    ///
    /// # Errors
    ///
    /// If the file exists and cannot be read: objects that it declares stale would count as fresh.
    pub(crate) fn load(file: PathBuf) -> Result<Self, OpenError> {
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(source) => return Err(OpenError::Io { action: "reading", path: file, source }),
            Ok(text) => text,
        };
        let entry = |line: &str| {
            let (moment, prefix) = line.split_once(' ')?;
            Some((moment.parse().ok()?, prefix.to_owned()))
        };
        let mut prefixes = text.lines().filter_map(entry).collect();
        merge(&mut prefixes);
        let newest = prefixes.iter().map(|(moment, _)| *moment).max().unwrap_or(0).into();
        Ok(Self { file, prefixes: Mutex::new(prefixes), newest, writing: Mutex::default() })
    }

    /// Declares all objects stale whose path has this prefix. Waits for the disk.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; then the prefix holds for this process alone.
    pub(crate) fn add(&self, prefix: &str) -> io::Result<()> {
        self.insert(millis(SystemTime::now()), prefix);
        let _writing = lock(&self.writing);
        // Prefixes that other threads have added in the meantime are written too.
        let lines: String = {
            let prefixes = lock(&self.prefixes);
            prefixes.iter().map(|(moment, prefix)| format!("{moment} {prefix}\n")).collect()
        };
        let part = self.file.with_extension("part");
        let mut file = File::create(&part)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &self.file)?;
        self.file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn insert(&self, moment: u64, prefix: &str) {
        let mut prefixes = lock(&self.prefixes);
        prefixes.retain(|(_, known)| !known.starts_with(prefix));
        prefixes.push((moment, prefix.to_owned()));
        merge(&mut prefixes);
        self.newest.fetch_max(moment, Ordering::Relaxed);
    }

    /// Returns whether an object may have been requested, in milliseconds since 1970, before it was
    /// declared stale. One from the future, as after the clock was set back, always may.
    pub(crate) fn covers(&self, key: &str, requested: u64) -> bool {
        self.covers_at(key, requested, millis(SystemTime::now()))
    }

    /// Replaces moments that are in the future, because the clock was ahead, by the current time:
    /// objects that are requested later are not stale.
    fn set_back(&self, now: u64) {
        let mut prefixes = lock(&self.prefixes);
        prefixes.iter_mut().for_each(|(moment, _)| *moment = now.min(*moment));
        self.newest.store(now, Ordering::Relaxed);
    }

    fn covers_at(&self, key: &str, requested: u64, now: u64) -> bool {
        if self.newest.load(Ordering::Relaxed) > now.saturating_add(MAX_AHEAD) {
            self.set_back(now);
        }
        let newest = self.newest.load(Ordering::Relaxed);
        let is_from_future = newest > 0 && requested > now;
        (is_from_future || requested <= newest)
            && lock(&self.prefixes).iter().any(|(moment, prefix)| {
                (is_from_future || requested <= *moment) && key.starts_with(prefix)
            })
    }
}

/// The time in milliseconds that a moment may be ahead of what another thread takes for now.
const MAX_AHEAD: u64 = 1000;

/// Reduces prefixes to their maximum number: the oldest ones become one prefix of all paths. Older
/// objects are then validated whatever their path is, which is always safe.
fn merge(prefixes: &mut Vec<(u64, String)>) {
    let surplus = prefixes.len().saturating_sub(MAX_PREFIXES);
    if surplus == 0 {
        return;
    }
    prefixes.sort_by_key(|(moment, _)| *moment);
    let merged = prefixes.drain(..=surplus).next_back();
    prefixes.extend(merged.map(|(moment, _)| (moment, "/".to_owned())));
    prefixes.rotate_right(1);
}

/// The maximum number of distinct prefixes.
const MAX_PREFIXES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_declared_stale_stays_so_until_it_is_received_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("expired");
        let expiry = Expiry::load(file.clone()).unwrap();
        // All of them are in the past of this moment.
        let covers = |expiry: &Expiry, key, requested| expiry.covers_at(key, requested, u64::MAX);
        let before = millis(SystemTime::now());
        assert!(!covers(&expiry, "/a/b", before));
        expiry.add("/a/").unwrap();
        let after = millis(SystemTime::now()) + 1;
        for expiry in [expiry, Expiry::load(file.clone()).unwrap()] {
            assert!(covers(&expiry, "/a/b", before) && !covers(&expiry, "/b", before));
            assert!(!covers(&expiry, "/a/b", after));
            // The clock was set back.
            assert!(expiry.covers_at("/a/b", after, after - 1));
            assert!(!expiry.covers_at("/b", after, after - 1));
        }
        let expiry = Expiry::load(file).unwrap();
        // The oldest prefixes are merged into one for all paths.
        for number in 0..3 * MAX_PREFIXES {
            expiry.insert(after + number as u64, &format!("/n/{number}/"));
        }
        assert_eq!(expiry.prefixes.lock().unwrap().len(), MAX_PREFIXES);
        assert!(covers(&expiry, "/a/b", before) && covers(&expiry, "/n/9/x", after + 9));
        let merged = after + 2 * MAX_PREFIXES as u64;
        assert!(covers(&expiry, "/b", merged) && !covers(&expiry, "/b", merged + 1));
        assert!(
            covers(&expiry, "/n/3000/x", after + 3000)
                && !covers(&expiry, "/n/3000/x", after + 3001)
        );
        expiry.add("/").unwrap();
        assert_eq!(expiry.prefixes.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_moment_of_a_clock_that_was_ahead_holds_no_longer_than_that() {
        let folder = tempfile::tempdir().unwrap();
        let expiry = Expiry::load(folder.path().join("expired")).unwrap();
        let (now, day) = (millis(SystemTime::now()), 86_400_000);
        expiry.insert(now + day, "/a/");
        for before in [now - 1, now + day] {
            assert!(expiry.covers_at("/a/b", before, now), "{before}");
        }
        assert!(!expiry.covers_at("/a/b", now + 1, now + 2));
        assert!(!expiry.covers_at("/b", now + 1, now + 2));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = Expiry::load(folder.path().to_owned()).unwrap_err();
        assert!(error.to_string().starts_with("reading /"), "{error}");
    }
}
