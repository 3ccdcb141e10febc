//! Finds the objects of earlier processes, and removes other files that they left.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::super::body::{discard_unlisted, has_unlisted, is_shortage, is_within_size, open_body};
use super::super::unit::{StoredUnit, is_divided, journal_unit, units};
use super::files::{parse, try_read};
use super::{CacheFolder, OBJECTS};
use crate::key::KeyDigest;

/// Called with a stored object, its units and their bytes.
type OnObject<'n> = dyn FnMut(KeyDigest, &[(StoredUnit, u64)]) + 'n;

impl CacheFolder {
    /// Calls `on_object` with each stored object, its units and their sizes on the disk, and
    /// removes other files of terminated processes. What cannot be read at the moment stays.
    pub(crate) fn scan(&self, on_object: &mut OnObject<'_>) {
        let objects = self.path.join(OBJECTS);
        let Ok(shards) = patiently(|| fs::read_dir(&objects)) else { return };
        for shard in shards.flatten() {
            let Ok(files) = patiently(|| fs::read_dir(shard.path())) else { continue };
            for file in files.flatten() {
                // An object that fails here is not counted until it is requested.
                let _ = patiently(|| self.scan_file(&shard.path(), &file, on_object));
            }
        }
    }

    fn scan_file(
        &self,
        shard: &Path,
        file: &fs::DirEntry,
        on_object: &mut OnObject<'_>,
    ) -> io::Result<()> {
        let name_of_file = file.file_name();
        let Some((digest, number)) = parse(&name_of_file) else { return Ok(()) };
        let shard = OwnedFd::from(File::open(shard)?);
        let read = || -> io::Result<_> {
            let named = try_read(&shard, &digest)?;
            Ok(named.filter(|it| *it.subject.body == *name_of_file && is_within_size(it)))
        };
        let mut named = read()?;
        if !self.has_made(number)
            && let (Ok(found), Some(contents)) = (file.metadata(), &named)
            && has_unlisted(&found, &contents.present)
            && let Some(file) = open_body(&shard, &name_of_file)?
            && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            // Bytes that arrived after the journal was read are listed by now.
            named = read()?;
            named.iter().for_each(|contents| discard_unlisted(&file, &contents.present));
        }
        match (file.metadata(), named) {
            (Ok(found), Some(named)) => {
                let mut all = match named.subject.size {
                    size if is_divided(size) => units(&digest, size, &named.present),
                    _ => vec![(StoredUnit::whole(&digest), found.blocks() * 512)],
                };
                all.push(journal_unit(&digest, &named.subject));
                on_object(digest, &all);
            }
            // This process may be about to write its journal.
            _ if self.has_made(number) => {}
            _ => drop(fs::remove_file(file.path())),
        }
        Ok(())
    }
}

/// Retries a function for a while if it fails for lack of descriptors or memory.
fn patiently<T>(mut try_it: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..MAX_SHORTAGES {
        match try_it() {
            Err(error) if is_shortage(&error) => sleep(SHORTAGE_INTERVAL),
            tried => return tried,
        }
    }
    try_it()
}

/// The number of attempts while descriptors are short.
const MAX_SHORTAGES: u32 = 100;

/// The interval between these attempts.
const SHORTAGE_INTERVAL: Duration = Duration::from_millis(100);
