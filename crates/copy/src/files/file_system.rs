//! Names of file systems.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;

/// Returns the type of the file system that a file lies on, such as `ext4`; `other` or `unknown` if
/// it has no name here. The numbers are those of linux/magic.h.
#[allow(clippy::useless_conversion)] // the field's type differs by target
pub fn name(file: impl AsFd) -> &'static str {
    let Ok(found) = fstatfs(file) else { return "unknown" };
    let kind = i64::from(found.f_type) & 0xffff_ffff;
    NAMES.iter().find(|(number, _)| *number == kind).map_or("other", |(_, name)| name)
}

/// The name of FUSE, where syncfs(2) does not reach the program that stores the files.
pub(crate) const FUSE: &str = "fuse";

/// The name of btrfs, where snapshots share the numbers of inodes.
pub(crate) const BTRFS: &str = "btrfs";

const NAMES: [(i64, &str); 23] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, BTRFS),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlay"),
    (0x8584_58f6, "ramfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0xf2f5_2010, "f2fs"),
    (0x4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x7366_746e, "ntfs"),
    (0x6573_5546, FUSE),
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb"),
    (0x0102_1997, "9p"),
    (0x786f_4256, "vboxsf"),
    (0x00c3_6400, "ceph"),
    (0x7371_7368, "squashfs"),
    (0x9660, "iso9660"),
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];
