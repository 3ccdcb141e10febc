//! Checks files that a program may be writing to: a file is sent only once it is at rest.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::Duration;

use rustix::fs::{SeekFrom, Stat, seek};
use rustix::io::Errno;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, Integrity, Version, WriterCheck, Writers, errno};

use crate::files::root::{DiskWait, is_local};

/// A file's version, with the result of the check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedVersion {
    pub(crate) version: Version,
    /// Whether a program has the file open for writing.
    pub(crate) has_writer: bool,
    /// Whether every later change will change the version.
    pub(crate) is_stable: bool,
}

/// The checks of files while one path is being opened.
#[derive(Debug)]
pub(crate) struct WriterChecks {
    level: Integrity,
    /// The checks begun on files that a program may be writing to, by their paths.
    unfinished: Vec<(Box<[u8]>, FileId, WriterCheck)>,
    /// The number of checks restarted because another file took the path.
    replaced: u8,
    /// The time after which to open the path again, after [`AGAIN_LATER`].
    pub(crate) pause: Duration,
}

impl WriterChecks {
    /// Creates a state without any checks begun.
    pub(crate) fn new(level: Integrity) -> Self {
        Self { level, unfinished: Vec::new(), replaced: 0, pause: Duration::ZERO }
    }

    /// Returns the version of a file from which on each change can be detected.
    pub(crate) fn check(
        &mut self,
        stable_versions: &StableVersions,
        path: &[u8],
        file: &OwnedFd,
        stat: &Stat,
        disk_wait: DiskWait,
    ) -> Result<CheckedVersion, Errno> {
        let version = Version::from_stat(stat);
        let is_compared = self.compares(file, disk_wait);
        if is_compared && let Some(known) = stable_versions.get(&version) {
            return Ok(known);
        }
        if disk_wait == DiskWait::Never {
            if is_compared && WriterCheck::is_at_rest(file, &version) {
                return Ok(CheckedVersion { version, has_writer: false, is_stable: true });
            }
            // Writing dirty pages back may take minutes.
            if is_compared || WriterCheck::is_recent(&version) {
                return Err(Errno::AGAIN);
            }
        }
        if !is_compared {
            wait_for_writer(file, &version);
            return Ok(CheckedVersion { version, has_writer: false, is_stable: false });
        }
        let checked = self.begun(path, FileId::of(stat)).check(file, Some(version));
        match checked.map_err(errno::of)? {
            Writers::Stable { version, has_writer } => {
                let found = CheckedVersion { version, has_writer, is_stable: true };
                // The writers of a recently changed file are checked each time. On a network file
                // system the times show changes of this machine only once they are written back.
                if has_writer || !WriterCheck::is_recent(&version) && is_local(file) {
                    stable_versions.insert(found);
                }
                Ok(found)
            }
            Writers::Wait(pause) => {
                self.pause = pause;
                Err(AGAIN_LATER)
            }
            Writers::Busy => Err(Errno::BUSY),
        }
    }

    /// Returns the check of a file. It is restarted if another file has taken the path, a limited
    /// number of times.
    fn begun(&mut self, path: &[u8], id: FileId) -> &mut WriterCheck {
        let known = self.unfinished.iter().position(|(unfinished, ..)| **unfinished == *path);
        let index = known.unwrap_or_else(|| {
            self.unfinished.push((path.into(), id, WriterCheck::new()));
            self.unfinished.len() - 1
        });
        let (_, checked, check) = &mut self.unfinished[index];
        if *checked != id && self.replaced < MAX_REPLACED {
            (*checked, *check) = (id, WriterCheck::new());
            self.replaced += 1;
        }
        check
    }

    /// Returns whether versions are compared. A snapshot shows one moment, so writers do not
    /// matter, but only local files get one.
    fn compares(&self, file: &OwnedFd, disk_wait: DiskWait) -> bool {
        match self.level {
            Integrity::Fast => false,
            Integrity::Detect | Integrity::Lease => true,
            Integrity::Snapshot => disk_wait == DiskWait::Allowed && !is_local(file),
        }
    }
}

/// The versions of files that a check, which had to wait, found at rest, and of files that are open
/// for writing. A file is at rest as long as it is in that version, so no request has to wait for
/// it again.
#[derive(Debug, Default)]
pub(crate) struct StableVersions(Mutex<HashMap<u64, CheckedVersion>>);

impl StableVersions {
    fn get(&self, version: &Version) -> Option<CheckedVersion> {
        let known = lock(&self.0);
        known.get(&version.inode()).filter(|known| known.version == *version).copied()
    }

    fn insert(&self, found: CheckedVersion) {
        let mut known = lock(&self.0);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(found.version.inode(), found);
    }
}

/// Waits for the end of a write(2) that is in progress.
///
/// A write changes the times of a file before its bytes, so a write that had begun when the
/// attributes were read would go unnoticed. Seeking for data takes the lock that a write holds: any
/// later write changes the times again. Only a recently changed file can be in the middle of one.
fn wait_for_writer(file: &OwnedFd, version: &Version) {
    if WriterCheck::is_recent(version) {
        // At the last byte there is nothing to search; the result does not matter.
        let _ = seek(file, SeekFrom::Data(version.size().saturating_sub(1)));
    }
}

/// The error for a file that must be checked again in a moment, because a program may be writing to
/// it.
pub(crate) const AGAIN_LATER: Errno = Errno::INPROGRESS;

/// The maximum number of restarted checks for one request.
const MAX_REPLACED: u8 = 8;

/// The maximum number of versions remembered, which take about 2 MB; at the limit all are
/// forgotten.
const MAX_KNOWN: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use rustix::fs::fstat;
    use underpass_sys::unwritten;
    use underpass_testkit::until_closed_by_writers;

    use super::*;

    #[test]
    fn a_file_that_replaces_one_being_written_is_checked_separately() {
        let path = std::env::temp_dir().join(format!("writer-checks-{}", std::process::id()));
        let _writer = File::create(&path).unwrap();
        let check = |checks: &mut WriterChecks| {
            let file = OwnedFd::from(File::open(&path).unwrap());
            let stat = fstat(&file).unwrap();
            let known = StableVersions::default();
            checks.check(&known, b"file", &file, &stat, DiskWait::Allowed).map(|it| it.has_writer)
        };
        let mut checks = WriterChecks::new(Integrity::Detect);
        let first = check(&mut checks);
        let other = path.with_extension("new");
        fs::write(&other, "whole").unwrap();
        fs::rename(&other, &path).unwrap();
        until_closed_by_writers(&path);
        let second = check(&mut checks);
        // Not all file systems can tell who has a file open.
        let alone = check(&mut WriterChecks::new(Integrity::Detect));
        fs::remove_file(&path).unwrap();
        assert_eq!((first, second), (Err(AGAIN_LATER), alone));
    }

    #[test]
    fn workers_never_write_back_the_pages_of_a_file() {
        let path = std::env::temp_dir().join(format!("writer-pages-{}", std::process::id()));
        fs::write(&path, [1; 9]).unwrap();
        until_closed_by_writers(&path);
        let file = OwnedFd::from(File::open(&path).unwrap());
        let mut stat = fstat(&file).unwrap();
        // As if the disk had not taken the pages for a long time.
        stat.st_ctime -= 3600;
        let known = StableVersions::default();
        let check = |disk_wait| {
            let mut checks = WriterChecks::new(Integrity::Detect);
            let found = checks.check(&known, b"file", &file, &stat, disk_wait);
            found.map(|found| (found.has_writer, found.is_stable))
        };
        let is_dirty = unwritten(file.as_fd(), 0, 9) != Ok(0);
        let at_once = check(DiskWait::Never);
        let (allowed, again) = (check(DiskWait::Allowed), check(DiskWait::Never));
        fs::remove_file(&path).unwrap();
        // A file system in memory has no dirty pages.
        let expected = if is_dirty { Err(Errno::AGAIN) } else { Ok((false, true)) };
        assert_eq!((at_once, allowed, again), (expected, Ok((false, true)), Ok((false, true))));
    }
}
