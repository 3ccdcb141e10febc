//! The kind of thing that a descriptor refers to, as far as it decides which mechanism may serve
//! it.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat, fstatfs};

/// The kind of thing that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A block device: seekable, but not a file that copy_file_range or reflink would take.
    Block,
    /// A character device such as `/dev/null`, `/dev/zero` or a terminal.
    CharDevice,
    /// A pipe or a FIFO.
    Pipe,
    /// A regular file or a memfd, whose size is its length.
    Regular,
    /// A connected stream socket: TCP or unix.
    Socket,
    /// A file of procfs, sysfs and the like, or one of FUSE with a size of 0: regular by type, but
    /// its size says nothing.
    Virtual,
}

impl Kind {
    /// Returns the kind of what `fd` names, from its `stat`.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory; `EINVAL` for a kind that is not listed here.
    pub fn of(fd: impl AsFd, stat: &Stat) -> io::Result<Self> {
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Self::Block,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            FileType::RegularFile if is_virtual(fd, stat) => Self::Virtual,
            FileType::RegularFile => Self::Regular,
            FileType::Directory => return Err(rustix::io::Errno::ISDIR.into()),
            _ => return Err(rustix::io::Errno::INVAL.into()),
        })
    }

    /// Returns whether bytes are addressed by an offset.
    #[must_use]
    pub const fn is_seekable(self) -> bool {
        matches!(self, Self::Block | Self::Regular | Self::Virtual)
    }

    /// Returns whether an operation can find this end not ready.
    #[must_use]
    pub const fn can_wait(self) -> bool {
        matches!(self, Self::CharDevice | Self::Pipe | Self::Socket)
    }
}

/// Returns whether the file's contents are made up as it is read, so that its size is 0 or a
/// guess.
///
/// Such files own no blocks, so all others are spared the second system call. On FUSE a program
/// that does not know a size in advance reports 0.
#[allow(clippy::useless_conversion)] // the field's type differs by target
fn is_virtual(fd: impl AsFd, stat: &Stat) -> bool {
    let is_empty = stat.st_size == 0;
    (is_empty || stat.st_blocks == 0)
        && fstatfs(fd).is_ok_and(|fs| {
            let system = i64::from(fs.f_type);
            VIRTUAL_FILE_SYSTEMS.contains(&system) || (is_empty && system == FUSE)
        })
}

const FUSE: i64 = 0x6573_5546; // linux/magic.h

/// File systems whose sizes mean nothing, from linux/magic.h.
const VIRTUAL_FILE_SYSTEMS: [i64; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6265_6570, // configfs
    0x6165_676c, // pstore
];
