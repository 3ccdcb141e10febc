//! The kind of file that a descriptor refers to, as far as it decides which mechanism may serve it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Stat, fstat, fstatfs};
use rustix::io::pread;

/// The kind of file that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A block device: seekable, but not a file that copy_file_range or reflink would accept.
    Block,
    /// A character device such as `/dev/null`, `/dev/zero` or a terminal.
    CharDevice,
    /// A pipe or a FIFO.
    Pipe,
    /// A regular file or a memfd, whose size is its length.
    Regular,
    /// A connected stream socket: TCP or Unix.
    Socket,
    /// A file of procfs, sysfs and the like, or one of FUSE with a size of 0: regular by type, but
    /// its size is meaningless.
    Virtual,
}

impl Kind {
    /// Returns the kind of the file behind `fd`, given its `stat`, for reading from it.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory; `EINVAL` for a kind that is not listed here.
    pub fn of(fd: impl AsFd, stat: &Stat) -> io::Result<Self> {
        Self::with(stat, || is_virtual(fd.as_fd(), stat))
    }

    /// Returns the kind of a descriptor that is written to, without reading from it.
    ///
    /// # Errors
    ///
    /// As for [`of`](Self::of).
    pub fn of_sink(fd: impl AsFd, stat: &Stat) -> io::Result<Self> {
        Self::with(stat, || owns_nothing(stat) && is_virtual_system(file_system(fd.as_fd())))
    }

    fn with(stat: &Stat, is_virtual: impl FnOnce() -> bool) -> io::Result<Self> {
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Self::Block,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::Fifo => Self::Pipe,
            FileType::Socket => Self::Socket,
            FileType::RegularFile if is_virtual() => Self::Virtual,
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

    /// Returns whether an operation on this end can fail because it is not ready.
    #[must_use]
    pub const fn can_wait(self) -> bool {
        matches!(self, Self::CharDevice | Self::Pipe | Self::Socket)
    }
}

/// Returns whether the file's contents are generated as it is read, so that its size is 0 or a
/// guess.
///
/// Such files own no blocks, so all others are spared further system calls. On FUSE a program that
/// does not know a size in advance reports 0. Elsewhere a file of size 0 that can be read reveals a
/// virtual file system that is not listed here.
fn is_virtual(fd: BorrowedFd<'_>, stat: &Stat) -> bool {
    if !owns_nothing(stat) {
        return false;
    }
    let system = file_system(fd);
    let can_be_read = || pread(fd, &mut [0], 0) == Ok(1);
    // Another process may have written to it since.
    let is_empty = || fstat(fd).is_ok_and(|now| now.st_size == 0);
    is_virtual_system(system)
        || stat.st_size == 0 && (system == Some(FUSE) || can_be_read() && is_empty())
}

fn owns_nothing(stat: &Stat) -> bool {
    stat.st_size == 0 || stat.st_blocks == 0
}

/// Returns whether a file or folder is on FUSE, where a program answers the calls for it.
pub fn is_on_fuse(file: impl AsFd) -> bool {
    file_system(file.as_fd()) == Some(FUSE)
}

#[allow(clippy::useless_conversion)] // the field's type differs by target
fn file_system(fd: BorrowedFd<'_>) -> Option<i64> {
    fstatfs(fd).ok().map(|facts| i64::from(facts.f_type))
}

fn is_virtual_system(system: Option<i64>) -> bool {
    system.is_some_and(|system| VIRTUAL_FILE_SYSTEMS.contains(&system))
}

const FUSE: i64 = 0x6573_5546; // linux/magic.h

/// File systems whose sizes are meaningless, most of them from linux/magic.h.
const VIRTUAL_FILE_SYSTEMS: [i64; 10] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6265_6570, // configfs
    0x6165_676c, // pstore
    0x1980_0202, // mqueue, from ipc/mqueue.c
];
