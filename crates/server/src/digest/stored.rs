//! Digests stored with their file, in the extended attribute `user.underpass.digest`, so that a
//! file is read for them only once, and not again by each server.
//!
//! Setting an attribute changes the file's ctime, which distinguishes its versions. So the
//! attribute records the previous ctime and the time at which it is set: if the present ctime is
//! within ten milliseconds after that, only the attribute was changed since then. The digests are
//! then valid, and the version keeps its ETag. Any later change moves the ctime on, which
//! invalidates the attribute.
//!
//! A file's ctime is the last tick of the kernel's clock or, since Linux 6.13, a finer time. If
//! setting the attribute takes longer than the window, it is set again.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Timespec, XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstatfs};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest as _, Sha256};
use underpass_engine::{Version, announce_attribute};

use crate::files::version::etag_since;
use underpass_protocol::digest::{Algorithm, Digest};

/// The content of an attribute that is still valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredDigest {
    changed: i64,
    digests: Vec<Digest>,
}

impl StoredDigest {
    /// Returns the time of the last change of the file or its attributes other than by [`store`]:
    /// the value that [`Version::changed`] had before.
    #[must_use]
    pub fn changed(&self) -> Timespec {
        let tv_sec = self.changed.div_euclid(SECOND);
        Timespec { tv_sec, tv_nsec: self.changed.rem_euclid(SECOND) }
    }

    /// Returns the digests of the file, at most one of each algorithm.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// Returns the digests as an owned list.
    #[must_use]
    pub fn into_digests(self) -> Vec<Digest> {
        self.digests
    }
}

/// Reads the digests stored with a file in its present version, if there are any and they are still
/// valid. It takes one system call.
#[must_use]
pub fn load_digest(file: impl AsFd, version: &Version) -> Option<StoredDigest> {
    let mut bytes = [0; MAX_BYTES];
    let len = fgetxattr(file, NAME, &mut bytes[..]).ok()?;
    let record = DigestRecord::parse(bytes.get(..len)?)?;
    record
        .is_valid_for(version)
        .then_some(StoredDigest { changed: record.changed, digests: record.digests })
}

/// Returns the entity tag of a file in its present version, as the server sends it: storing digests
/// with the file does not change it.
#[must_use]
pub fn etag(file: impl AsFd, version: &Version) -> String {
    let changed =
        load_digest(file, version).map_or_else(|| version.changed(), |kept| kept.changed());
    etag_since(version, changed)
}

/// Stores digests with their file, and returns its new version, which differs only in the ctime.
/// Returns `None` if the file is not in the version that the digests are of.
///
/// Transfers of this process treat both versions as the same; those of other processes do not.
///
/// # Errors
///
/// The errors of fsetxattr(2): not every file system has such attributes, and not every process may
/// set them. `ENOTSUP` also if file times are coarse or come from another machine's clock, or if
/// setting the attribute would copy the file: on network file systems, overlayfs, and unknown ones.
pub fn store(
    file: impl AsFd,
    version: &Version,
    digests: &[Digest],
) -> io::Result<Option<Version>> {
    let file = file.as_fd();
    if !is_reliable(file, version)? {
        return Err(Errno::NOTSUP.into());
    }
    let mut record = DigestRecord::new(file, version, digests)?;
    let mut expected = *version;
    for _ in 0..ATTEMPTS {
        record.set_at = now()?;
        // The file may have changed since the last check, with its times set back.
        if Version::of(file)? != expected {
            return Ok(None);
        }
        announce_attribute(expected, record.window());
        fsetxattr(file, NAME, &record.bytes(), XattrFlags::empty())?;
        let present = Version::of(file)?;
        if !differs_only_in_ctime(version, &present) {
            return Ok(None);
        }
        if record.is_valid_for(&present) {
            return Ok(Some(present));
        }
        if let Some(changed) = nanoseconds(present.changed()) {
            announce_attribute(expected, changed..changed + 1);
        }
        expected = present;
    }
    Err(Errno::TIMEDOUT.into())
}

/// Removes the digests stored with a file.
///
/// # Errors
///
/// The errors of fremovexattr(2), except that of a file without digests.
pub(crate) fn forget(file: impl AsFd) -> Result<(), Errno> {
    match fremovexattr(file, NAME) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        removed => removed,
    }
}

/// The content of the attribute.
struct DigestRecord {
    /// The clock's time right before the attribute is set.
    set_at: i64,
    /// The previous ctime.
    changed: i64,
    /// A checksum of the inode, the size and the mtime, which detects a change at the very moment
    /// at which the attribute is set, and an attribute that was copied from another file.
    check: [u8; 4],
    digests: Vec<Digest>,
}

impl DigestRecord {
    /// Creates a record of these digests and those stored before.
    fn new(file: BorrowedFd<'_>, version: &Version, digests: &[Digest]) -> io::Result<Self> {
        let mut digests = digests.to_vec();
        let changed = match load_digest(file, version) {
            None => nanoseconds(version.changed()).ok_or(Errno::OVERFLOW)?,
            Some(before) => {
                let is_new =
                    |one: &Digest| digests.iter().all(|d| d.algorithm() != one.algorithm());
                let others: Vec<_> = before.digests.into_iter().filter(is_new).collect();
                digests.extend(others);
                before.changed
            }
        };
        Ok(Self { set_at: 0, changed, check: check(version), digests })
    }

    /// Parses the attribute; `None` if it is not of this format.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (set_at, rest) = bytes.split_first_chunk()?;
        let (changed, rest) = rest.split_first_chunk()?;
        let (check, mut rest) = rest.split_first_chunk()?;
        let mut digests = Vec::with_capacity(1);
        while let [tag, after @ ..] = rest {
            let algorithm = Algorithm::ALL.into_iter().find(|one| tag_of(*one) == *tag)?;
            let (value, after) = after.split_at_checked(algorithm.len())?;
            digests.push(Digest::new(algorithm, value)?);
            rest = after;
        }
        let (set_at, changed) = (i64::from_le_bytes(*set_at), i64::from_le_bytes(*changed));
        Some(Self { set_at, changed, check: *check, digests })
    }

    fn bytes(&self) -> Vec<u8> {
        // With one SHA-256 it fits into an inode of ext4, which needs no block for it.
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        bytes.extend_from_slice(&self.set_at.to_le_bytes());
        bytes.extend_from_slice(&self.changed.to_le_bytes());
        bytes.extend_from_slice(&self.check);
        for digest in &self.digests {
            bytes.push(tag_of(digest.algorithm()));
            bytes.extend_from_slice(digest.value());
        }
        bytes
    }

    /// Returns the range of ctimes that setting the attribute may give the file.
    fn window(&self) -> Range<i64> {
        self.set_at..self.set_at.saturating_add(WINDOW)
    }

    /// Returns whether the file is unchanged since the attribute was set.
    fn is_valid_for(&self, version: &Version) -> bool {
        nanoseconds(version.changed()).is_some_and(|changed| self.window().contains(&changed))
            && self.check == check(version)
    }
}

/// Returns whether the attribute is reliable here: the file system takes its times from the clock
/// of this machine, with a fine resolution, and does not copy the file to set it.
fn is_reliable(file: BorrowedFd<'_>, version: &Version) -> io::Result<bool> {
    #[allow(clippy::unnecessary_cast)] // the type differs by target
    let kind = fstatfs(file)?.f_type as u32;
    // Old ext4 and other file systems have times of whole seconds.
    Ok(KNOWN.contains(&kind) && version.changed().tv_nsec != 0 && version.links() > 0)
}

/// Returns whether two versions differ at most in their ctime.
fn differs_only_in_ctime(one: &Version, other: &Version) -> bool {
    let facts =
        |version: &Version| (version.inode(), version.size(), version.modified(), version.links());
    facts(one) == facts(other)
}

/// Returns the last tick of the clock that stamps files.
fn now() -> io::Result<i64> {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    nanoseconds(time).ok_or_else(|| Errno::OVERFLOW.into())
}

/// Returns a four-byte checksum of the inode, size and mtime.
fn check(version: &Version) -> [u8; 4] {
    let modified = version.modified();
    let mut hasher = Sha256::new();
    hasher.update(version.inode().to_le_bytes());
    hasher.update(version.size().to_le_bytes());
    hasher.update(modified.tv_sec.to_le_bytes());
    hasher.update(modified.tv_nsec.to_le_bytes());
    let value = hasher.finalize();
    [value[0], value[1], value[2], value[3]]
}

/// Returns a time of a file as one number; `None` before 1678 and after 2262.
fn nanoseconds(time: Timespec) -> Option<i64> {
    time.tv_sec.checked_mul(SECOND)?.checked_add(time.tv_nsec)
}

/// Returns the tag byte before a digest. Any other format has to use other tags.
const fn tag_of(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Sha256 => 1,
        Algorithm::Sha512 => 2,
    }
}

/// The name of the attribute: one for all algorithms, since setting a second one would change the
/// ctime recorded in the first.
const NAME: &str = "user.underpass.digest";

/// The maximum length: two numbers, four bytes, and a digest of each algorithm.
const MAX_BYTES: usize = 20 + 33 + 65;

/// The number of attempts to set an attribute within the window; on a busy machine a few fail.
const ATTEMPTS: u32 = 16;

/// The nanoseconds after [`DigestRecord::set_at`] within which the ctime lies: the longest tick of
/// the kernel's clock. A change of the bytes within it is detected by the mtime.
const WINDOW: i64 = 10_000_000;

/// Nanoseconds per second.
const SECOND: i64 = 1_000_000_000;

/// The magic numbers of the file systems that [`is_reliable`] knows: ext4, XFS, btrfs, tmpfs, F2FS,
/// bcachefs and ZFS. Overlayfs is left out because it would copy a whole file of a lower layer,
/// network file systems because their times come from another clock.
const KNOWN: [u32; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1];

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(algorithm: Algorithm) -> Digest {
        Digest::new(algorithm, vec![7; algorithm.len()]).unwrap()
    }

    fn record(digests: Vec<Digest>) -> DigestRecord {
        DigestRecord { set_at: 2, changed: -1, check: *b"abcd", digests }
    }

    #[test]
    fn digest_record_round_trips() {
        for algorithms in [&Algorithm::ALL[..1], &Algorithm::ALL[1..], &Algorithm::ALL] {
            let written = record(algorithms.iter().copied().map(digest).collect());
            let read = DigestRecord::parse(&written.bytes()).unwrap();
            assert_eq!((read.set_at, read.changed, &read.check), (2, -1, b"abcd"));
            assert_eq!(read.digests, written.digests);
            assert!(written.bytes().len() <= MAX_BYTES);
        }
    }

    #[test]
    fn digest_records_of_another_format_are_ignored() {
        let bytes = record(vec![digest(Algorithm::Sha256)]).bytes();
        for len in (0..bytes.len()).filter(|len| *len != 20) {
            assert!(DigestRecord::parse(&bytes[..len]).is_none(), "{len} bytes");
        }
        let mut other = bytes.clone();
        other[20] = 3;
        assert!(DigestRecord::parse(&other).is_none());
        assert!(DigestRecord::parse(&[bytes, vec![1]].concat()).is_none());
    }

    #[test]
    fn copied_attribute_is_invalid_even_with_the_same_mtime() {
        let folder = tempfile::tempdir().unwrap();
        let make = |name| {
            let file = std::fs::File::create_new(folder.path().join(name)).unwrap();
            file.set_len(5).unwrap();
            file
        };
        let (file, copy) = (make("file"), make("copy"));
        let version = Version::of(&file).unwrap();
        // Not every file system has such attributes.
        let Ok(Some(version)) = store(&file, &version, &[digest(Algorithm::Sha256)]) else {
            return;
        };
        assert!(load_digest(&file, &version).is_some());
        let mut bytes = [0; MAX_BYTES];
        let len = fgetxattr(&file, NAME, &mut bytes[..]).unwrap();
        copy.set_modified(file.metadata().unwrap().modified().unwrap()).unwrap();
        fsetxattr(&copy, NAME, &bytes[..len], XattrFlags::empty()).unwrap();
        assert_eq!(load_digest(&copy, &Version::of(&copy).unwrap()), None);
    }

    #[test]
    fn change_right_after_storing_is_noticed_even_with_the_mtime_set_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create_new(folder.path().join("file")).unwrap();
        file.set_len(5).unwrap();
        let version = Version::of(&file).unwrap();
        // Not every file system has such attributes.
        let Ok(Some(_)) = store(&file, &version, &[digest(Algorithm::Sha256)]) else { return };
        let modified = file.metadata().unwrap().modified().unwrap();
        // Past the window, even if the clock of files is a tick behind.
        std::thread::sleep(std::time::Duration::from_millis(25));
        std::os::unix::fs::FileExt::write_all_at(&file, b"other", 0).unwrap();
        file.set_modified(modified).unwrap();
        assert_eq!(load_digest(&file, &Version::of(&file).unwrap()), None);
    }

    #[test]
    fn attribute_stays_valid_with_a_fine_grained_ctime() {
        let folder = tempfile::tempdir().unwrap();
        let other = std::fs::File::create_new(folder.path().join("other")).unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Since Linux 6.13 a file whose times were read gets a fine-grained time at its next
            // change, and no file gets an older one after that.
            scope.spawn(|| {
                for len in 0.. {
                    if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                    other.set_len(len).unwrap();
                    other.metadata().unwrap();
                }
            });
            let mut failed = 0;
            for name in 0..50 {
                let path = folder.path().join(name.to_string());
                let file = std::fs::File::create_new(path).unwrap();
                file.set_len(5).unwrap();
                let version = Version::of(&file).unwrap();
                let before = etag(&file, &version);
                match store(&file, &version, &[digest(Algorithm::Sha256)]) {
                    // Not every file system has such attributes.
                    Err(error) if error.raw_os_error() == Some(Errno::NOTSUP.raw_os_error()) => {
                        break;
                    }
                    _ => failed += usize::from(etag(&file, &Version::of(&file).unwrap()) != before),
                }
            }
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(failed, 0);
        });
    }

    #[test]
    fn attribute_with_one_digest_fits_into_an_ext4_inode() {
        // An inode has 256 bytes: its fields take 160, two markers 8, and each entry 16 plus its
        // name (without `user.`) and value, each padded to 4.
        let name = NAME.len() - "user.".len();
        let value = record(vec![digest(Algorithm::Sha256)]).bytes().len();
        let entry = 16 + name.next_multiple_of(4) + value.next_multiple_of(4);
        assert!(entry <= 256 - 160 - 8, "{entry}");
    }
}
