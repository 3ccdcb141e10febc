//! Why the sandbox cannot be applied.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why the sandbox cannot be applied.
#[derive(Debug)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refuses to change the user.
    ChangeUser {
        /// The user, as typed.
        user: String,
        /// The error of the system.
        source: Errno,
    },
    /// The process does not run as root, which alone can become another user.
    NotRoot {
        /// The user, as typed.
        user: String,
    },
    /// The user of the process cannot read the served folder or file.
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl fmt::Display for SandboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ChangeUser { user, source } => {
                write!(f, "{user}: cannot become this user: {source}")
            }
            Self::NotRoot { user } => write!(f, "{user}: only root can become another user"),
            Self::Unreadable { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
        }
    }
}

impl Error for SandboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::ChangeUser { source, .. } => Some(source),
            Self::NotRoot { .. } => None,
            Self::Unreadable { source, .. } => Some(source),
        }
    }
}

/// Why a text names no user.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserError {
    /// The number is the one that stands for no user.
    Invalid,
    /// The name contains a NUL byte.
    Nul,
    /// There is no group of this name.
    UnknownGroup(String),
    /// There is no user of this name.
    UnknownUser(String),
    /// The system's database of groups cannot be read.
    UnreadableGroups(nix::errno::Errno),
    /// The system's database of users cannot be read.
    UnreadableUsers(nix::errno::Errno),
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("this number means no user"),
            Self::Nul => f.write_str("a name has no NUL"),
            Self::UnknownGroup(name) => write!(f, "there is no group {name}"),
            Self::UnknownUser(name) => write!(f, "there is no user {name}"),
            Self::UnreadableGroups(errno) => write!(f, "the groups cannot be read: {errno}"),
            Self::UnreadableUsers(errno) => write!(f, "the users cannot be read: {errno}"),
        }
    }
}

impl Error for UserError {}
