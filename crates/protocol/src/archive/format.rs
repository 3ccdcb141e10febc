//! The formats of archives, and what each puts around a member.

use super::header::{self, MemberFacts, padding};
use super::zip;

/// A format of archives. Neither compresses, so that files can be sent as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ArchiveFormat {
    /// POSIX tar (PAX).
    #[default]
    Tar,
    /// Zip with stored members (method 0).
    Zip,
}

impl ArchiveFormat {
    /// Returns the format of this name.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        [Self::Tar, Self::Zip].into_iter().find(|format| format.name().as_bytes() == name)
    }

    /// Returns its name, which is also the extension of files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Zip => "zip",
        }
    }

    /// Returns its media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Tar => "application/x-tar",
            Self::Zip => "application/zip",
        }
    }

    /// Returns the maximum length of a path in bytes.
    pub(super) const fn max_path(self) -> usize {
        match self {
            Self::Tar => usize::MAX,
            Self::Zip => zip::MAX_PATH,
        }
    }

    /// Returns the length of what precedes a member's contents.
    pub(super) fn head_len(self, facts: &MemberFacts<'_>) -> u64 {
        match self {
            Self::Tar => header::len(facts),
            Self::Zip => zip::head_len(facts),
        }
    }

    /// Writes what precedes a member's contents.
    pub(super) fn write_head(self, out: &mut Vec<u8>, facts: &MemberFacts<'_>) {
        match self {
            Self::Tar => header::write(out, facts),
            Self::Zip => zip::write_head(out, facts),
        }
    }

    /// Returns the length of what follows a member's contents.
    pub(super) fn tail_len(self, facts: &MemberFacts<'_>) -> u64 {
        match self {
            Self::Tar => padding(facts.size),
            Self::Zip => zip::tail_len(facts.size),
        }
    }
}
