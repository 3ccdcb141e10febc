//! Records how much of a part is known to be on the disk.
//!
//! An attribute of each part has the [`mount_epoch`] in which it was written, and the number of
//! bytes that are known to be on the disk. In the same epoch all bytes are there; in any other, only
//! the known ones can be trusted: after a power cut a file can have its length and not its bytes. On a
//! file system without attributes this server remembers the epochs of its own parts. Timestamps are
//! no evidence: the clock may be set, and a disk may be removed and reconnected.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Mutex;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, Version, mount_epoch};

use super::unfinished::MAX_PARTS;
use crate::uploads::state::random::random_bytes;

/// The mount epochs in which parts were written.
#[derive(Debug)]
pub(crate) struct SyncTracker {
    boot: String,
    /// The epochs of parts that cannot have the attribute.
    epochs: Mutex<HashMap<FileId, String>>,
}

/// The content of a part's attribute.
#[derive(Debug, PartialEq, Eq)]
struct SyncRecord<'a> {
    epoch: &'a str,
    synced: u64,
}

impl SyncTracker {
    /// Reads the id of this boot of the machine, before the server is confined.
    pub(crate) fn new() -> Self {
        // Without such an id, parts are trusted for as long as this server runs.
        let own = || format!("{:x?}", random_bytes::<12>().unwrap_or_default());
        Self { boot: mount_epoch::boot_id().unwrap_or_else(own), epochs: Mutex::default() }
    }

    /// Returns the current mount epoch of the files in a folder.
    pub(crate) fn epoch(&self, folder: impl AsFd) -> String {
        mount_epoch::of(&self.boot, folder)
    }

    /// Returns how many bytes at the front of a part can be trusted.
    pub(crate) fn trusted_len(&self, part: &File) -> io::Result<u64> {
        let (size, epoch) = (Version::of(part)?.size(), self.epoch(part));
        let mut buffer = [0; MAX_NOTE];
        let record = match fgetxattr(part, ATTRIBUTE, &mut buffer[..]) {
            Ok(len) => SyncRecord::parse(&buffer[..len]),
            Err(Errno::OPNOTSUPP) => {
                let is_known = lock(&self.epochs).get(&FileId::of(&fstat(part)?)) == Some(&epoch);
                return Ok(if is_known { size } else { 0 });
            }
            Err(_) => None,
        };
        Ok(match record {
            Some(note) if note.epoch == epoch => size,
            Some(note) => note.synced.min(size),
            None => 0,
        })
    }

    /// Truncates a part to `len` bytes before more is written after them; its trusted bytes stay
    /// trusted.
    pub(crate) fn truncate(&self, part: &File, len: u64) -> io::Result<()> {
        let synced = self.synced(part).min(len);
        self.record(part, synced);
        // Setting the length gives back space that is reserved after it.
        if part.metadata()?.len() != len {
            part.set_len(len)?;
        }
        Ok(())
    }

    /// Records that `synced` bytes of a part are on the disk, and that it is written in this epoch.
    pub(crate) fn record(&self, part: &File, synced: u64) {
        let epoch = self.epoch(part);
        let mut text = epoch.clone();
        // Writing to a string does not fail.
        let _ = writeln!(text, "synced {synced}");
        match fsetxattr(part, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => self.remember(part, epoch),
            // An older record is no longer valid.
            Err(_) => self.remove_record(part),
        }
    }

    /// Removes the record, if there is one: a complete file does not have it.
    pub(crate) fn remove_record(&self, part: &File) {
        if fremovexattr(part, ATTRIBUTE) == Err(Errno::OPNOTSUPP)
            && let Ok(stat) = fstat(part)
        {
            lock(&self.epochs).remove(&FileId::of(&stat));
        }
    }

    fn remember(&self, part: &File, epoch: String) {
        let Ok(stat) = fstat(part) else { return };
        let mut epochs = lock(&self.epochs);
        if epochs.len() >= MAX_PARTS {
            // Those parts have to be sent again.
            epochs.clear();
        }
        epochs.insert(FileId::of(&stat), epoch);
    }

    fn synced(&self, part: &File) -> u64 {
        let mut buffer = [0; MAX_NOTE];
        let len = fgetxattr(part, ATTRIBUTE, &mut buffer[..]).unwrap_or(0);
        SyncRecord::parse(&buffer[..len]).map_or(0, |note| note.synced)
    }
}

impl<'a> SyncRecord<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (epoch, rest) = text.split_at(text.find('\n')? + 1);
        let synced = rest.strip_prefix("synced ")?.strip_suffix('\n')?.parse().ok()?;
        Some(Self { epoch, synced })
    }
}

const ATTRIBUTE: &CStr = c"user.underpass.written";

/// The maximum length of a note.
const MAX_NOTE: usize = mount_epoch::MAX_LEN + 32;

#[cfg(test)]
mod tests {
    use std::fs;

    use underpass_testkit::mounts::{FileSystem, Mounted};

    use super::*;

    #[test]
    fn without_attributes_only_parts_of_this_process_are_trusted_whatever_their_times_are() {
        let Some(disk) = Mounted::new(FileSystem::Ramfs, 0) else { return };
        let [own, other] = ["own", "other"].map(|name| {
            fs::write(disk.root().join(name), "part").unwrap();
            File::options().write(true).open(disk.root().join(name)).unwrap()
        });
        let tracker = SyncTracker::new();
        tracker.record(&own, 0);
        assert_eq!(tracker.trusted_len(&own).unwrap(), 4);
        assert_eq!(tracker.trusted_len(&other).unwrap(), 0);
        // It was written before the disk was removed.
        lock(&tracker.epochs).values_mut().for_each(|epoch| epoch.push('x'));
        assert_eq!(tracker.trusted_len(&own).unwrap(), 0);
    }

    #[test]
    fn only_complete_sync_records_are_read() {
        let note = SyncRecord { epoch: "boot a mount 1\n", synced: 5 };
        assert_eq!(SyncRecord::parse(b"boot a mount 1\nsynced 5\n"), Some(note));
        for text in ["", "boot a mount 1\n", "boot a mount 1\nsynced 5", "synced 5\n", "\0\0\0"] {
            assert_eq!(SyncRecord::parse(text.as_bytes()), None, "{text:?}");
        }
    }
}
