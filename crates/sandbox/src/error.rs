//! The reason why the sandbox cannot be applied.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// The reason why the sandbox cannot be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refuses to change the user.
    #[error("{user}: cannot switch to this user: {source}")]
    ChangeUser {
        /// The user, as typed.
        user: String,
        /// The error of the system.
        source: Errno,
    },
    /// The process does not run as root, and only root can switch users.
    #[error("{user}: only root can switch to another user")]
    NotRoot {
        /// The user, as typed.
        user: String,
    },
    /// The user of the process cannot read the served folder or file.
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// The reason why a text does not name a user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// The number is the reserved one (-1), which names no user.
    #[error("this is not a valid user ID")]
    Invalid,
    /// The name contains a NUL byte.
    #[error("a name cannot contain a NUL")]
    Nul,
    /// There is no group of this name.
    #[error("there is no group {0}")]
    UnknownGroup(String),
    /// There is no user of this name.
    #[error("there is no user {0} on this machine")]
    UnknownUser(String),
    /// The system's database of groups cannot be read.
    #[error("the groups cannot be read: {0}")]
    UnreadableGroups(nix::errno::Errno),
    /// The system's database of users cannot be read.
    #[error("the users cannot be read: {0}")]
    UnreadableUsers(nix::errno::Errno),
}
