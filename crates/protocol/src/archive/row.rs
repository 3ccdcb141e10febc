//! One row of the table of members, as small as it can be.

use crate::version::FileVersion;

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
    pub(super) modified: Moment,
    changed: Moment,
    links: u32,
    /// The index of its file system in the list.
    pub(super) device: u16,
}

impl CompactVersion {
    pub(super) fn of(version: &FileVersion, device: u16) -> Self {
        Self {
            inode: version.inode,
            size: version.size,
            modified: Moment::of(version.modified),
            changed: Moment::of(version.changed),
            // The kernel counts no further.
            links: version.links as u32,
            device,
        }
    }

    pub(super) fn whole(&self, device: u64) -> FileVersion {
        let (inode, size, links) = (self.inode, self.size, self.links.into());
        let (modified, changed) = (self.modified.get(), self.changed.get());
        FileVersion { device, inode, size, modified, changed, links }
    }
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(2))]
pub(super) struct Moment(i64, u32);

impl Moment {
    fn of((seconds, nanoseconds): (i64, i64)) -> Self {
        Self(seconds, nanoseconds as u32)
    }

    pub(super) fn get(self) -> (i64, i64) {
        (self.0, i64::from(self.1))
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
