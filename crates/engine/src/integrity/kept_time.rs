//! File times on file systems that store them less precisely than the kernel does, or ignore a time
//! that is set alone.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW, fstatfs};

/// Returns `time` as the file system of `file` in `folder` stores it: futimens(2) rounds it down,
/// on ext3 to a second, on exFAT to 10 ms, on NTFS to 100 ns. The precision is derived from the
/// times that `file` has. FAT stores even seconds, which a file elsewhere may have by chance, so
/// the type of the file system is checked too (fstatfs(2)).
#[must_use]
#[allow(clippy::useless_conversion)] // the field's type differs by target
pub fn kept_time(time: Timespec, file: &Stat, folder: impl AsFd) -> Timespec {
    let times = [file.st_atime_nsec, file.st_mtime_nsec, file.st_ctime_nsec];
    let is_unit = |unit: &u64| times.iter().all(|time| time % unit == 0);
    let unit = UNITS.into_iter().find(is_unit).unwrap_or(1);
    let is_fat = || fstatfs(folder).is_ok_and(|found| i64::from(found.f_type) == FAT);
    let is_odd = unit == UNITS[0] && time.tv_sec & 1 == 1 && is_fat();
    let tv_nsec = time.tv_nsec - time.tv_nsec % unit.cast_signed();
    Timespec { tv_sec: time.tv_sec - i64::from(is_odd), tv_nsec }
}

/// Returns the times, for futimens(2), of a new file with this modification time. Many FUSE file
/// systems (libfuse 2) ignore a time that is set alone.
#[must_use]
pub const fn times_of_new(last_modification: Timespec) -> Timestamps {
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access, last_modification }
}

/// Returns when a file was last modified.
#[must_use]
#[allow(clippy::unnecessary_cast)] // types differ by target
pub fn mtime(stat: &Stat) -> Timespec {
    Timespec { tv_sec: stat.st_mtime as i64, tv_nsec: stat.st_mtime_nsec as i64 }
}

/// Returns the time since 1970; `None` for an earlier time.
#[must_use]
pub fn since_1970(time: Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The precisions of file systems, in nanoseconds.
const UNITS: [u64; 5] = [1_000_000_000, 10_000_000, 1_000_000, 1_000, 100];

/// The magic number of FAT in linux/magic.h.
const FAT: i64 = 0x4d44;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_to_the_precision_of_the_existing_ones() {
        let root = std::fs::File::open("/").expect("the root");
        let stat = rustix::fs::fstat(&root).expect("its facts");
        let with = |atime, mtime, ctime| {
            let mut stat = stat;
            (stat.st_atime_nsec, stat.st_mtime_nsec, stat.st_ctime_nsec) = (atime, mtime, ctime);
            stat
        };
        let time = |tv_nsec| Timespec { tv_sec: 7, tv_nsec };
        for (file, kept) in [
            (with(0, 0, 0), 0),
            (with(0, 120_000_000, 990_000_000), 120_000_000),
            (with(0, 123_000_000, 120_000_000), 123_000_000),
            (with(5_000, 123_456_000, 0), 123_456_000),
            (with(0, 123_456_700, 0), 123_456_700),
            // A whole second by chance.
            (with(0, 0, 123_456_789), 123_456_789),
        ] {
            assert_eq!(kept_time(time(123_456_789), &file, &root), time(kept));
        }
    }
}
