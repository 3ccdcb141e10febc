//! A log of which files of a folder may lose their bytes in a power cut.
//!
//! A file with the right size and time is treated as complete. After a power cut it can have both
//! but lack its bytes, if these had not reached the disk. While a folder is being fetched, a log in
//! it therefore records since when files are written, and the mount epoch; a run that ends well
//! removes it. The kernel records when a file was last changed (ctime), so a later run knows which
//! files it can trust: older ones, those of its own epoch, and those that had been synced.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, Timespec, fstat, futimens, openat, syncfs, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{is_ours, lock_file};
use underpass_engine::{Version, is_file, mount_epoch, mtime, times_of_new};

use super::paths::WRITE_LOG;

/// The trust in files that were changed at `since` or later, up to the next period.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Period {
    /// Measured by the clock of the file system.
    since: Timespec,
    /// The mount epoch in which they were written; `None` if they are on the disk.
    epoch: Option<String>,
}

/// The periods in which files of a folder were written.
#[derive(Debug)]
pub(super) struct WriteLog {
    folder: OwnedFd,
    file: File,
    /// The device of the log's file system, the only one that is synced.
    device: u64,
    /// The current mount epoch; empty if the machine has no boot id.
    epoch: String,
    periods: Vec<Period>,
    /// Whether this run created the log.
    is_new: bool,
}

impl WriteLog {
    /// Opens or creates the log of a folder, and records that files are written from now on.
    ///
    /// # Errors
    ///
    /// `EWOULDBLOCK` if another process has it open, `EEXIST` if another program or another user
    /// created it, and as openat(2), write(2) and utimensat(2). A failure leaves no empty log.
    pub(super) fn open(folder: &OwnedFd) -> io::Result<Self> {
        let folder = rustix::io::fcntl_dupfd_cloexec(folder, 0)?;
        let (file, is_new) = open_locked(&folder)?;
        // It is new, or was left empty by an earlier version.
        let was_empty = fstat(&file)?.st_size == 0;
        let log = Self::begin(folder.try_clone()?, file, is_new);
        if log.is_err() && was_empty {
            let _ = unlinkat(&folder, WRITE_LOG, AtFlags::empty());
        }
        log
    }

    /// Reads the log, and records that files are written from now on.
    fn begin(folder: OwnedFd, mut file: File, is_new: bool) -> io::Result<Self> {
        let epoch = mount_epoch::current(&file).unwrap_or_default();
        let mut periods = Vec::new();
        if !is_new {
            let mut text = Vec::new();
            file.by_ref().take(MAX_LEN as u64).read_to_end(&mut text)?;
            periods = read(&text, mtime(&fstat(&file)?));
        }
        let device = fstat(&file)?.st_dev;
        let mut log = Self { folder, file, device, epoch, periods, is_new };
        let is_own = |log: &Self| log.periods.last().is_some_and(|last| log.is_own(last));
        // The kernel drops bytes that it could not write back.
        if is_own(&log) && syncfs(&log.file).is_err() {
            doubt(&mut log.periods);
        }
        let is_known = is_own(&log);
        if !is_known {
            let since = now(&log.file)?;
            if log.periods.last().is_some_and(|last| last.since > since) {
                // After the clock went backwards, times prove nothing.
                log.periods = vec![unknown(Timespec::default())];
            }
            log.periods.push(Period { since, epoch: Some(log.epoch.clone()) });
            log.save(&log.periods)?;
        }
        Ok(log)
    }

    /// Returns whether a file is trusted to have the bytes that were written to it.
    pub(super) fn is_complete(&self, stat: &Stat) -> bool {
        let changed = Version::from_stat(stat).changed();
        let period = self.periods.iter().rev().find(|period| period.since <= changed);
        // A file on another file system mounted below the folder was not synced.
        let is_synced = |period: &Period| period.epoch.is_none() && stat.st_dev == self.device;
        period.is_none_or(|period| is_synced(period) || self.is_own(period))
    }

    /// Returns whether every file is trusted.
    pub(super) fn all_complete(&self) -> bool {
        self.periods.iter().all(|period| period.epoch.is_none() || self.is_own(period))
    }

    /// Syncs the file system periodically and records that, until the sender of `stop` is dropped.
    ///
    /// # Errors
    ///
    /// That of syncfs(2). Any file that was written since the last sync may lack its bytes.
    pub(super) fn sync_periodically(&self, stop: &Receiver<()>) -> Result<(), Errno> {
        let mut periods = self.periods.clone();
        while stop.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            // Without the time, files are only fetched again after a power cut.
            let Ok(before) = now(&self.file) else { continue };
            if let Err(errno) = syncfs(&self.file) {
                doubt(&mut periods);
                let _ = self.save(&periods);
                return Err(errno);
            }
            advance(&mut periods, before);
            let _ = self.save(&periods);
        }
        Ok(())
    }

    /// Records that any file written by this run may lack its bytes, after a failed sync.
    pub(super) fn doubt(&self) {
        let mut periods = self.periods.clone();
        doubt(&mut periods);
        let _ = self.save(&periods);
    }

    /// Returns whether this run created the log.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Removes the log, because every file is complete.
    pub(super) fn remove(self) -> Result<(), Errno> {
        unlinkat(self.folder.as_fd(), WRITE_LOG, AtFlags::empty())
    }

    fn is_own(&self, period: &Period) -> bool {
        !self.epoch.is_empty() && period.epoch.as_ref() == Some(&self.epoch)
    }

    fn save(&self, periods: &[Period]) -> io::Result<()> {
        let lines: String = periods.iter().map(line).collect();
        self.file.write_all_at(lines.as_bytes(), 0)?;
        // Otherwise earlier lines after these would be read, too.
        self.file.set_len(lines.len() as u64)
    }
}

/// Opens and locks the log; returns whether it was created.
fn open_locked(folder: &OwnedFd) -> Result<(File, bool), Errno> {
    // O_NONBLOCK: opening a FIFO must not block.
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let flags = flags | OFlags::CREATE | OFlags::RDWR;
    let mode = Mode::RUSR | Mode::WUSR;
    loop {
        let (file, is_new) = match openat(folder, WRITE_LOG, flags | OFlags::EXCL, mode) {
            Err(Errno::EXIST) => (File::from(openat(folder, WRITE_LOG, flags, mode)?), false),
            made => (File::from(made?), true),
        };
        if !is_file(&fstat(&file)?) || !is_ours(&file, folder)? {
            return Err(Errno::EXIST);
        }
        lock_file(&file)?;
        // The process that held the lock may have removed it.
        if fstat(&file)?.st_nlink > 0 {
            return Ok((file, is_new));
        }
    }
}

/// Records that everything written before `time` is on the disk.
fn advance(periods: &mut Vec<Period>, time: Timespec) {
    let Some(last) = periods.pop() else { return };
    let is_safe = |period: &Period| period.epoch.is_none();
    if !periods.last().is_some_and(is_safe) {
        periods.push(Period { since: last.since, epoch: None });
    }
    periods.push(Period { since: time, epoch: last.epoch });
}

/// Records that files of the last period may lack their bytes.
fn doubt(periods: &mut [Period]) {
    if let Some(last) = periods.last_mut() {
        *last = unknown(last.since);
    }
}

/// Parses the lines of a log that was last changed at `modified`. Files that were being written
/// when the power failed are not trusted.
fn read(text: &[u8], modified: Timespec) -> Vec<Period> {
    let mut periods: Vec<_> = text.chunks(LINE).map_while(parse).collect();
    let is_cut = periods.is_empty() || periods.len() * LINE < text.len();
    if text.len() >= MAX_LEN || !periods.is_sorted_by_key(|period| period.since) {
        periods = vec![unknown(Timespec::default())];
    } else if is_cut {
        periods.push(unknown(modified));
    }
    periods
}

/// Returns a period whose files may be of any mount epoch.
fn unknown(since: Timespec) -> Period {
    Period { since, epoch: Some(String::new()) }
}

/// Formats a line of [`LINE`] bytes, which does not cross a page boundary.
fn line(period: &Period) -> String {
    let Timespec { tv_sec, tv_nsec } = period.since;
    let text = format!("{tv_sec} {tv_nsec} {}", period.epoch.as_deref().unwrap_or(SAFE));
    format!("{text:<width$}\n", width = LINE - 1)
}

fn parse(line: &[u8]) -> Option<Period> {
    let line = str::from_utf8(line).ok().filter(|line| line.len() == LINE)?.strip_suffix('\n')?;
    let mut words = line.splitn(3, ' ');
    let (tv_sec, tv_nsec) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let epoch = Some(words.next()?.trim_end()).filter(|epoch| *epoch != SAFE);
    Some(Period { since: Timespec { tv_sec, tv_nsec }, epoch: epoch.map(str::to_owned) })
}

/// Returns the time of the file system's clock, which may differ from that of this machine.
fn now(file: &File) -> Result<Timespec, Errno> {
    // The modification time is kept: it tells when the text was written.
    futimens(file, &times_of_new(mtime(&fstat(file)?)))?;
    let stat = fstat(file)?;
    Ok(Timespec { tv_sec: stat.st_atime, tv_nsec: stat.st_atime_nsec.cast_signed() })
}

/// The interval between syncs.
pub(super) const SYNC_INTERVAL: Duration = Duration::from_secs(10);

/// The value in place of a mount epoch for files that are on the disk.
const SAFE: &str = "safe";

/// The length of a line in bytes.
const LINE: usize = 256;

/// The maximum number of bytes of a log that are read.
const MAX_LEN: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn open(dest: &std::path::Path) -> WriteLog {
        WriteLog::open(&OwnedFd::from(File::open(dest).unwrap())).unwrap()
    }

    /// Creates a file and returns its metadata.
    fn make(dest: &std::path::Path, name: &str) -> Stat {
        let file = File::create(dest.join(name)).unwrap();
        let stat = fstat(&file).unwrap();
        // The kernel's clock advances in steps of up to 10 ms.
        std::thread::sleep(Duration::from_millis(30));
        stat
    }

    /// Replaces the boot id in the log.
    fn another_boot(dest: &std::path::Path) {
        let path = dest.join(WRITE_LOG);
        let text = std::fs::read_to_string(&path).unwrap();
        let boot = mount_epoch::boot_id().unwrap();
        std::fs::write(path, text.replace(&boot, &"0".repeat(boot.len()))).unwrap();
    }

    #[test]
    fn only_files_of_another_mount_epoch_are_doubted() {
        let dest = tempfile::tempdir().unwrap();
        let dest = dest.path();
        let old = make(dest, "old");
        let log = open(dest);
        assert!(log.all_complete());
        let lost = make(dest, "lost");
        drop(log);
        assert!(open(dest).is_complete(&lost), "it is of this mount epoch");
        another_boot(dest);
        let log = open(dest);
        let new = make(dest, "new");
        assert_eq!([&old, &lost, &new].map(|stat| log.is_complete(stat)), [true, false, true]);
        assert!(!log.all_complete());
        // A later interrupted run does not restore it, and what that run wrote is lost, too.
        drop(log);
        another_boot(dest);
        let log = open(dest);
        assert_eq!([&old, &lost, &new].map(|stat| log.is_complete(stat)), [true, false, false]);
        log.remove().unwrap();
        assert!(open(dest).is_complete(&lost));
    }

    #[test]
    fn a_folder_has_one_log_at_a_time() {
        let dest = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(File::open(dest.path()).unwrap());
        let log = WriteLog::open(&folder).unwrap();
        let other = WriteLog::open(&folder).unwrap_err();
        assert_eq!(Errno::from_io_error(&other), Some(Errno::WOULDBLOCK));
        // The first one still owns its log.
        log.remove().unwrap();
        let log = WriteLog::open(&folder).unwrap();
        assert!(log.is_new());
        drop(log);
        assert!(!WriteLog::open(&folder).unwrap().is_new());
    }

    #[test]
    fn synced_files_are_trusted() {
        let dest = tempfile::tempdir().unwrap();
        let dest = dest.path();
        let log = open(dest);
        let first = make(dest, "first");
        let mut periods = log.periods.clone();
        advance(&mut periods, now(&log.file).unwrap());
        let second = make(dest, "second");
        advance(&mut periods, now(&log.file).unwrap());
        let third = make(dest, "third");
        assert_eq!(periods.len(), 2);
        log.save(&periods).unwrap();
        drop(log);
        another_boot(dest);
        let log = open(dest);
        let mut elsewhere = first;
        elsewhere.st_dev += 1;
        assert!(!log.is_complete(&elsewhere), "its file system was not synced");
        assert_eq!(
            [&first, &second, &third].map(|stat| log.is_complete(stat)),
            [true, true, false]
        );
    }

    #[test]
    fn after_the_clock_went_backwards_no_earlier_period_is_trusted() {
        let dest = tempfile::tempdir().unwrap();
        let dest = dest.path();
        let log = open(dest);
        let late = Timespec { tv_sec: now(&log.file).unwrap().tv_sec + 3_600, tv_nsec: 0 };
        let period = |since, epoch: Option<&str>| Period { since, epoch: epoch.map(str::to_owned) };
        let early = Timespec::default();
        let middle = Timespec { tv_sec: 1, tv_nsec: 0 };
        let periods = [
            period(early, None),
            period(middle, Some("a")),
            period(late, None),
            period(Timespec { tv_nsec: 1, ..late }, Some("b")),
        ];
        log.save(&periods).unwrap();
        drop(log);
        assert_eq!(open(dest).periods.len(), 2);
        // A stale line would be trusted once the clock has passed its time.
        assert_eq!(std::fs::metadata(dest.join(WRITE_LOG)).unwrap().len(), 2 * LINE as u64);
    }

    #[test]
    fn files_written_before_a_failed_sync_are_not_trusted() {
        let dest = tempfile::tempdir().unwrap();
        let dest = dest.path();
        let old = make(dest, "old");
        let log = open(dest);
        let lost = make(dest, "lost");
        log.doubt();
        drop(log);
        let log = open(dest);
        let new = make(dest, "new");
        assert_eq!([&old, &lost, &new].map(|stat| log.is_complete(stat)), [true, false, true]);
    }

    #[test]
    fn a_damaged_log_is_trusted_up_to_its_modification_time() {
        let dest = tempfile::tempdir().unwrap();
        let dest = dest.path();
        let old = make(dest, "old");
        drop(open(dest));
        let text = std::fs::read(dest.join(WRITE_LOG)).unwrap();
        let before = mtime(&rustix::fs::stat(dest.join(WRITE_LOG)).unwrap());
        let lost = make(dest, "lost");
        let damaged = [vec![], text[..9].to_vec(), vec![0; LINE], vec![b'x'; MAX_LEN]];
        for (index, bytes) in damaged.into_iter().enumerate() {
            let file = File::options().write(true).open(dest.join(WRITE_LOG)).unwrap();
            file.set_len(0).unwrap();
            file.write_all_at(&bytes, 0).unwrap();
            futimens(&file, &times_of_new(before)).unwrap();
            let log = open(dest);
            assert_eq!(
                (log.is_complete(&old), log.is_complete(&lost)),
                (index < 3, false),
                "{index}"
            );
            // The log that is written now can be read again, including the doubt.
            drop(log);
            let log = open(dest);
            assert_eq!(
                (log.is_complete(&old), log.is_complete(&lost)),
                (index < 3, false),
                "{index}"
            );
        }
    }
}
