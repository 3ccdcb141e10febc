//! Times of files on file systems that keep them less precisely than the kernel gives them, or
//! ignore one that is set alone.

use std::os::fd::AsFd;

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW, fstatfs};

/// Returns `time`, in seconds and nanoseconds, as the file system of the file `file` in `folder`
/// keeps it: futimens(2) rounds it down, on ext3 to a second, on exFAT to 10 ms, on NTFS to 100 ns.
/// The precision is that of the times that `file` has. FAT keeps even seconds, which a file
/// elsewhere may have by chance; there the type of the file system is looked up (fstatfs(2)).
#[must_use]
#[allow(clippy::useless_conversion)] // the field's type differs by target
pub fn kept_time(time: (i64, u64), file: &Stat, folder: impl AsFd) -> (i64, u64) {
    let times = [file.st_atime_nsec, file.st_mtime_nsec, file.st_ctime_nsec];
    let is_unit = |unit: &u64| times.iter().all(|time| time % unit == 0);
    let unit = UNITS.into_iter().find(is_unit).unwrap_or(1);
    let is_fat = || fstatfs(folder).is_ok_and(|found| i64::from(found.f_type) == FAT);
    let is_odd = unit == UNITS[0] && time.0 & 1 == 1 && is_fat();
    (time.0 - i64::from(is_odd), time.1 / unit * unit)
}

/// Returns the times, for futimens(2), of a new file that was modified at this time, in seconds and
/// nanoseconds. Many file systems in user space (libfuse 2) ignore one that is set alone.
#[must_use]
pub const fn times_of_new((tv_sec, tv_nsec): (i64, i64)) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: Timespec { tv_sec, tv_nsec } }
}

/// The precisions of file systems, in nanoseconds.
const UNITS: [u64; 5] = [1_000_000_000, 10_000_000, 1_000_000, 1_000, 100];

/// The number of FAT in linux/magic.h.
const FAT: i64 = 0x4d44;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_as_those_that_are_there() {
        let root = std::fs::File::open("/").expect("the root");
        let stat = rustix::fs::fstat(&root).expect("its facts");
        let with = |atime, mtime, ctime| {
            let mut stat = stat;
            (stat.st_atime_nsec, stat.st_mtime_nsec, stat.st_ctime_nsec) = (atime, mtime, ctime);
            stat
        };
        let time = (7, 123_456_789);
        for (file, kept) in [
            (with(0, 0, 0), (7, 0)),
            (with(0, 120_000_000, 990_000_000), (7, 120_000_000)),
            (with(0, 123_000_000, 120_000_000), (7, 123_000_000)),
            (with(5_000, 123_456_000, 0), (7, 123_456_000)),
            (with(0, 123_456_700, 0), (7, 123_456_700)),
            // A whole second by chance.
            (with(0, 0, 123_456_789), time),
        ] {
            assert_eq!(kept_time(time, &file, &root), kept);
        }
    }
}
