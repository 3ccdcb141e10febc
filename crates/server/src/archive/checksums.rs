//! The CRC-32 of members of zips: computed once for each version of a file, and kept in memory.
//!
//! They are not stored with their files, as digests are: that would change the ctime of each file
//! in the folder, and with it the ETag of the archive, and an interrupted download could not be
//! resumed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

use underpass_engine::wait::lock;
use underpass_protocol::FileVersion;
use underpass_protocol::archive::Fingerprint;

/// The CRC-32 of files in a version.
///
/// Keeps at least some 900,000 of those used last and at most twice as many, in 44 MiB; others are
/// computed again when they are needed.
#[derive(Default)]
pub struct Checksums {
    kept: Mutex<RecentChecksums>,
}

/// Two generations: once `latest` is full, it replaces `before`, which is dropped.
#[derive(Default)]
struct RecentChecksums {
    latest: HashMap<ChecksumKey, u32>,
    before: HashMap<ChecksumKey, u32>,
}

/// The hash of a version, in four parts so that an entry takes 20 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChecksumKey([u32; 4]);

impl ChecksumKey {
    /// Returns the key of a file in this version.
    pub(super) fn of(version: &FileVersion) -> Self {
        let FileVersion { device, inode, size, modified, changed, links } = *version;
        let mut fingerprint = Fingerprint::new();
        [device, inode, size, links].into_iter().for_each(|one| fingerprint.number(one));
        [modified, changed].into_iter().for_each(|time| fingerprint.time(time));
        let value = fingerprint.value();
        Self([0, 32, 64, 96].map(|shift| (value >> shift) as u32))
    }
}

impl Checksums {
    /// Returns the checksum of a file in this version, if it is known.
    #[must_use]
    pub fn get(&self, version: &FileVersion) -> Option<u32> {
        let key = ChecksumKey::of(version);
        let mut kept = lock(&self.kept);
        if let Some(&checksum) = kept.latest.get(&key) {
            return Some(checksum);
        }
        let checksum = kept.before.remove(&key)?;
        kept.put(key, checksum);
        Some(checksum)
    }

    /// Remembers the checksum of a file in this version.
    pub fn keep(&self, version: &FileVersion, checksum: u32) {
        lock(&self.kept).put(ChecksumKey::of(version), checksum);
    }
}

impl RecentChecksums {
    fn put(&mut self, key: ChecksumKey, checksum: u32) {
        if self.latest.len() >= MAX_LATEST {
            self.before = std::mem::take(&mut self.latest);
        }
        self.latest.insert(key, checksum);
    }
}

impl fmt::Debug for Checksums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checksums").finish_non_exhaustive()
    }
}

/// The maximum number of the latest ones: as many as a hash table of 2^20 slots holds, 22 MiB.
const MAX_LATEST: usize = (1 << 20) / 8 * 7;

#[cfg(test)]
mod tests {
    use underpass_protocol::FileTime;

    use super::*;

    #[test]
    fn recent_checksums_and_those_in_use_are_kept() {
        let checksums = Checksums::default();
        let version = |inode| FileVersion { inode, ..FileVersion::default() };
        checksums.keep(&version(0), 7);
        for inode in 1..=MAX_LATEST as u64 * 3 {
            checksums.keep(&version(inode), inode as u32);
            if inode % 1_000 == 0 {
                assert_eq!(checksums.get(&version(0)), Some(7));
            }
        }
        assert_eq!(checksums.get(&version(1)), None);
        assert_eq!(checksums.get(&version(MAX_LATEST as u64 * 3 - 5)), Some(2_752_507));
        let kept = lock(&checksums.kept);
        assert!(kept.latest.len() <= MAX_LATEST && kept.before.len() <= MAX_LATEST);
        // A table of this capacity has 2^20 slots.
        assert!(kept.latest.capacity() <= MAX_LATEST);
    }

    #[test]
    fn another_version_has_another_checksum() {
        let checksums = Checksums::default();
        let time = |nanoseconds| FileTime { seconds: 1, nanoseconds };
        let version = FileVersion { changed: time(2), ..FileVersion::default() };
        checksums.keep(&version, 7);
        assert_eq!(checksums.get(&version), Some(7));
        for other in [
            FileVersion { changed: time(3), ..version },
            FileVersion { modified: time(2), ..version },
            FileVersion { inode: 1, ..version },
            FileVersion { device: 1, ..version },
            FileVersion { size: 1, ..version },
        ] {
            assert_eq!(checksums.get(&other), None);
        }
    }
}
