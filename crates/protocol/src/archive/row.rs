//! One row of the table of members, as small as it can be.

use crate::version::{FileTime, FileVersion};

/// The compact form of a member.
#[derive(Debug)]
pub(super) struct MemberRow {
    /// The offset of its header.
    pub(super) start: u64,
    pub(super) version: CompactVersion,
    /// The offset of its name.
    pub(super) text: u32,
    pub(super) parent: u32,
    /// Permissions, and the kind above them.
    pub(super) mode: u16,
}

impl MemberRow {
    /// Returns what it is.
    pub(super) fn kind(&self) -> RowKind {
        match self.mode >> KIND_SHIFT {
            0 => RowKind::File,
            1 => RowKind::Folder,
            _ => RowKind::Symlink,
        }
    }
}

/// A version in 46 bytes instead of 72.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
pub(super) struct CompactVersion {
    inode: u64,
    pub(super) size: u64,
    /// The seconds of the times of modification and of change.
    seconds: [i64; 2],
    nanoseconds: [u32; 2],
    links: u32,
    /// The index of its file system in the list.
    pub(super) device: u16,
}

impl CompactVersion {
    pub(super) fn of(version: &FileVersion, device: u16) -> Self {
        Self {
            inode: version.inode,
            size: version.size,
            seconds: [version.modified.seconds, version.changed.seconds],
            nanoseconds: [version.modified.nanoseconds, version.changed.nanoseconds],
            // The kernel's link count has 32 bits.
            links: version.links as u32,
            device,
        }
    }

    pub(super) fn whole(&self, device: u64) -> FileVersion {
        let (inode, size, links) = (self.inode, self.size, self.links.into());
        let [modified, changed] = self.times();
        FileVersion { device, inode, size, modified, changed, links }
    }

    /// Returns when it was modified, and changed.
    pub(super) fn times(&self) -> [FileTime; 2] {
        let (seconds, nanoseconds) = (self.seconds, self.nanoseconds);
        [0, 1].map(|at| FileTime { seconds: seconds[at], nanoseconds: nanoseconds[at] })
    }
}

/// The kind of a member without a link's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    File,
    Folder,
    Symlink,
}

/// The permissions of a mode.
pub(super) const MODE: u16 = 0o7777;

/// The position of the kind in bits, above them.
pub(super) const KIND_SHIFT: u32 = 12;

const _: () = assert!(size_of::<MemberRow>() == 64);
