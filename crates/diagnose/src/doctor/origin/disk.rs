//! The disk of a cache.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use underpass_engine::atomic_file::AtomicFile;
use underpass_engine::hint::in_words;

use crate::doctor::ends::scratch::NAME;
use crate::doctor::finding::Finding;

/// Examines the disk of a cache's folder, or of the folder above it: how fast a new file of up to
/// 256 MiB, which is removed, can be written, and whether files there can have holes.
#[must_use]
pub fn examine_disk(folder: &Path) -> Finding {
    let name = "cache-disk";
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let place = if folder.exists() { folder } else { parent.unwrap_or(Path::new(".")) };
    let missing = if place == folder { "" } else { ", in the folder above: it does not exist yet" };
    match measure(place) {
        Ok((rate, free, has_holes)) => {
            let (rate, free) = (rate >> 20, free as f64 / (1_u64 << 30) as f64);
            let (found, holes) = if has_holes {
                (Finding::best(name), "holes")
            } else {
                (Finding::limited(name), "no holes")
            };
            found
                .finding(format!(
                    "{rate} MiB/s written and synced, {free:.1} GiB free, {holes}{missing}"
                ))
                .consequence(
                    "fills are limited to this rate, and so are hits that are not in the page cache",
                )
        }
        Err(error) => Finding::closed(name)
            .finding(format!("{}: {}", place.display(), in_words(&error)))
            .consequence("nothing can be kept there")
            .remedy(match Errno::from_io_error(&error) {
                Some(Errno::NOSPC | Errno::DQUOT) => "free some space, or give another folder",
                _ => "give a folder that this user may write to",
            }),
    }
}

/// Returns the rate of writing a new file in bytes per second, the free bytes, and whether files
/// can have holes. The file is removed.
fn measure(place: &Path) -> io::Result<(u64, u64, bool)> {
    let atomic = AtomicFile::create(&place.join(NAME), 0o600)?;
    let mut file = atomic.file();
    let block = vec![0x5a; 1 << 20];
    let started = Instant::now();
    let mut written = 0;
    while written < TRIAL && started.elapsed() < TRIAL_TIME {
        file.write_all(&block)?;
        written += block.len() as u64;
    }
    file.sync_data()?;
    let rate = written as f64 / started.elapsed().as_secs_f64().max(0.001);
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let has_holes = fallocate(file, flags, 0, 1 << 20).is_ok();
    let found = fstatvfs(file)?;
    Ok((rate as u64, found.f_bavail.saturating_mul(found.f_frsize), has_holes))
}

/// The number of bytes that are written to measure a disk.
const TRIAL: u64 = 256 << 20;

/// The maximum time for writing, without the final sync.
const TRIAL_TIME: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::FindingState;

    #[test]
    fn a_folder_that_does_not_exist_yet_is_distinguished() {
        let folder = tempfile::tempdir().unwrap();
        let above = ", in the folder above: it does not exist yet";
        for (place, is_there) in [(folder.path(), true), (&folder.path().join("new"), false)] {
            let found = examine_disk(place);
            assert_ne!(found.state, FindingState::Closed, "{found:?}");
            assert_eq!(found.finding.ends_with(above), !is_there, "{found:?}");
        }
    }

    #[test]
    fn a_folder_without_files_is_closed_in_words() {
        let found = examine_disk(Path::new("/proc"));
        assert_eq!(found.state, FindingState::Closed);
        assert_eq!(found.finding, "/proc: No such file or directory");
    }
}
