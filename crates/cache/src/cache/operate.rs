//! Statistics, purging and expiry, for operators.

use std::io;

use underpass_protocol::caching::{CacheStatus, Forward};

use super::Cache;
use crate::key::CacheKey;
use crate::shared::{CacheStats, Counters};
use crate::store::OBJECT_OVERHEAD;

/// An object in memory.
#[derive(Clone, Debug)]
pub struct StoredObject {
    /// The path and query.
    pub key: String,
    /// The length in bytes, if known.
    pub len: Option<u64>,
    /// The number of bytes that are present.
    pub present: u64,
    /// The number of clients that read it.
    pub readers: usize,
    /// Whether more bytes are being fetched.
    pub is_filling: bool,
}

impl Cache {
    /// Returns the statistics.
    #[must_use]
    pub fn counters(&self) -> CacheStats {
        self.shared.counters()
    }

    /// Counts a response as a hit, a miss or stale; a partial hit is a miss.
    pub fn count_response(&self, status: &CacheStatus) {
        let counters = &self.shared.counters;
        let count = match status.forward {
            None => &counters.hits,
            Some(Forward::UriMiss | Forward::Partial) => &counters.misses,
            Some(Forward::Stale) => &counters.stale,
        };
        Counters::add(count, 1);
    }

    /// Returns the disk space in bytes that all objects may use; `None` if nothing limits it. Waits
    /// for the disk.
    #[must_use]
    pub fn capacity(&self) -> Option<u64> {
        self.shared.quota.capacity(&self.shared.folder.objects())
    }

    /// Returns the disk space in bytes that an object of this length uses.
    #[must_use]
    pub const fn space_of(len: u64) -> u64 {
        len.saturating_add(OBJECT_OVERHEAD)
    }

    /// Returns whether its folder was removed, so that nothing is stored until the next start.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.shared.is_gone()
    }

    /// Notices that files were removed by another program, as the cache does now and then by
    /// itself: objects in memory are no longer stored then. Waits for the disk.
    pub fn check_folder(&self) {
        self.shared.restore_folder();
    }

    /// Removes an object under the usual spellings of its path; returns whether it existed. Waits
    /// until the removal is on the disk.
    ///
    /// # Errors
    ///
    /// If it cannot be removed from the disk permanently: a later process may use it again.
    pub fn purge(&self, key: &CacheKey) -> io::Result<bool> {
        let mut was_there = false;
        for key in key.spellings() {
            self.shared.object(&key).purge();
            was_there |= self.shared.remove(key.digest())?;
            // It may just have been evicted, which is not synced.
            self.shared.folder.sync_removal(key.digest())?;
        }
        Ok(was_there)
    }

    /// Marks all objects whose path has this prefix as stale: each is validated before its next
    /// use. Waits for the disk.
    ///
    /// # Errors
    ///
    /// If that cannot be recorded on the disk; it then only applies to this process.
    pub fn expire(&self, prefix: &CacheKey) -> io::Result<()> {
        self.shared.expiry.add(&prefix.escaped())
    }

    /// Returns at most `number` paths with their recent request counts, the most popular first. A
    /// path is followed by a line `name: value` for each field by which objects vary.
    #[must_use]
    pub fn popular(&self, number: usize) -> Vec<(String, u64)> {
        self.shared.popularity.top(number)
    }

    /// Returns the open objects, those being filled first.
    #[must_use]
    pub fn stored(&self) -> Vec<StoredObject> {
        let stored = self.shared.stored().into_iter().map(|(object, version)| StoredObject {
            key: object.key.as_str().to_owned(),
            len: version.len(),
            present: version.count(),
            readers: version.readers(),
            is_filling: version.is_filling(),
        });
        let mut stored: Vec<_> = stored.collect();
        stored.sort_by(|one, other| {
            (!one.is_filling, &one.key).cmp(&(!other.is_filling, &other.key))
        });
        stored
    }
}
