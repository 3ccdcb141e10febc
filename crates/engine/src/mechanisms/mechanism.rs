//! The mechanisms by which the kernel moves bytes, and their names.
//!
//! The names are stable: they appear in flags, receipts, metrics and records.

use std::fmt;
use std::str::FromStr;

/// A mechanism that moves bytes from a source to a sink.
///
/// The variants are ordered by processor time, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// The sink shares the source's blocks: ioctl_ficlonerange(2). No byte moves at all.
    Reflink,
    /// copy_file_range(2): from file to file, in the file system or its server.
    CopyFileRange,
    /// sendfile(2): from a file to anything.
    Sendfile,
    /// splice(2): through a pipe, which need not be one of the two ends.
    Splice,
    /// The source is mapped and the mapping passed to write(2): one crossing.
    Mmap,
    /// read(2) into a buffer and write(2) from it: two crossings. Works everywhere.
    ReadWrite,
}

impl Mechanism {
    /// Every mechanism, in the order of the type.
    pub const ALL: [Self; 6] = [
        Self::Reflink,
        Self::CopyFileRange,
        Self::Sendfile,
        Self::Splice,
        Self::Mmap,
        Self::ReadWrite,
    ];

    /// Returns the name used in flags, receipts and records.
    ///
    /// ```
    /// use underpass_engine::Mechanism;
    /// assert_eq!(Mechanism::CopyFileRange.name(), "copy_file_range");
    /// assert_eq!("read_write".parse(), Ok(Mechanism::ReadWrite));
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reflink => "reflink",
            Self::CopyFileRange => "copy_file_range",
            Self::Sendfile => "sendfile",
            Self::Splice => "splice",
            Self::Mmap => "mmap",
            Self::ReadWrite => "read_write",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Self, UnknownMechanism> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name).ok_or(UnknownMechanism)
    }
}

/// The name is not that of a [`Mechanism`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownMechanism;

impl fmt::Display for UnknownMechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("mechanisms are ")?;
        for (index, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            f.write_str(mechanism.name())?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownMechanism {}
