//! Tells local file systems from those that ask a file server or another program, which may never
//! answer.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Returns whether a file is on a file system that asks no file server and no other program.
pub(crate) fn is_local(file: impl AsFd) -> bool {
    is_of_kind(file, &LOCAL)
}

/// Returns whether the file system of a file has one of these magic numbers.
pub(crate) fn is_of_kind(file: impl AsFd, kinds: &[u32]) -> bool {
    let kind = fstatfs(file).map(|facts| facts.f_type);
    #[allow(clippy::unnecessary_cast)] // the type differs by target
    kind.is_ok_and(|kind| kinds.contains(&(kind as u32)))
}

/// The magic numbers of linux/magic.h and of file system sources: ext2 to ext4, XFS, Btrfs, tmpfs,
/// ramfs, F2FS, ZFS, bcachefs, overlayfs, EROFS, SquashFS, ISO 9660, FAT, exFAT, JFS, NILFS.
const LOCAL: [u32; 16] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x794c_7630,
    0xe0f5_e1e2,
    0x7371_7368,
    0x9660,
    0x4d44,
    0x2011_bab0,
    0x3153_464a,
    0x3434,
];
