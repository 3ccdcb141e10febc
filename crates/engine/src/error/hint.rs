//! Hints for users on what to do about a failure.
//!
//! Every crate of this workspace has its own error type, and each implements [`Hinted`]: only
//! that crate knows what was being done. A hint is chosen by matching on values ([`Action`], an
//! errno, a status), never by the text of a message.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

/// A short text for users about the cause or a remedy, such as `the quota is used up`.
///
/// The words may name options of the `underpass` program. A hint can be printed but not compared.
#[derive(Clone, Copy, Debug)]
pub struct Hint(&'static str);

/// An error that may have a hint for users.
pub trait Hinted: std::error::Error {
    /// Returns a hint, if there is one.
    fn hint(&self) -> Option<Hint>;
}

/// The action on a file that the kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Creating a new file or folder.
    Creating,
    /// Creating a symbolic link, device, FIFO or socket.
    CreatingSpecial,
    /// Following a symbolic link.
    Following,
    /// Reading a file or its metadata.
    Reading,
    /// Reading the entries of a folder.
    ReadingFolder,
    /// Replacing an existing entry by a file.
    Replacing,
    /// Replacing an existing entry by a folder.
    ReplacingByFolder,
    /// Making a path available to the clients of a server.
    Serving,
    /// Writing bytes to a file, or giving a new file its name.
    Writing,
    /// Anything else, on which no hint depends, such as `looking at`.
    Other(&'static str),
}

impl Hint {
    /// Creates a hint from its words.
    #[must_use]
    pub const fn new(words: &'static str) -> Self {
        Self(words)
    }

    /// Returns the hint for a network error of binding, listening or connecting.
    #[must_use]
    pub fn of_network(error: &io::Error) -> Option<Self> {
        Some(Self(match Errno::from_io_error(error)? {
            Errno::ADDRINUSE => "another program listens there: choose another port",
            Errno::ADDRNOTAVAIL => "this machine does not have that address",
            Errno::AFNOSUPPORT => {
                "this address family is not available here (IPv6 may be disabled)"
            }
            Errno::CONNREFUSED => "nothing listens there: start the other side first",
            Errno::ACCESS => "ports below 1024 need a privilege: choose a higher one",
            Errno::INVAL => "a link-local address needs its interface, such as fe80::1%eth0",
            Errno::NOTSOCK => "the path exists and is not a socket: choose another path",
            _ => return None,
        }))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Action {
    /// Returns the hint for an action that was refused with `error`.
    #[must_use]
    pub fn hint(self, error: &io::Error) -> Option<Hint> {
        Some(Hint(match (self, Errno::from_io_error(error)?) {
            (Self::Serving, Errno::NOENT) => "name a folder or a file that exists",
            (Self::Serving, Errno::ACCESS) => "give this user the right to read it",
            (Self::Serving, Errno::OPNOTSUPP) => "it is neither a folder nor a regular file",
            (Self::Serving, Errno::NOSYS) => {
                "openat2(2) is refused: run Linux 5.6 or newer, and let filters (seccomp) allow it"
            }
            (Self::Reading, Errno::ISDIR) => {
                "pack a folder with tar: tar -c FOLDER | underpass send - ..."
            }
            (Self::ReadingFolder, Errno::ISDIR) => "add -r to copy folders",
            (Self::Replacing, Errno::ISDIR) => "a folder has that name",
            (Self::ReplacingByFolder, Errno::NOTDIR) => {
                "something that is not a folder has that name"
            }
            (Self::Following, Errno::LOOP) => "the link points to a folder that contains it",
            (Self::Creating, Errno::PERM) => {
                "the folder may be immutable (see lsattr), or was removed meanwhile"
            }
            (Self::CreatingSpecial, Errno::PERM) => {
                "devices need root, FAT has no links or FIFOs, and a folder may be immutable (see lsattr)"
            }
            (Self::Replacing | Self::Writing, Errno::PERM) => {
                "it may be immutable (see lsattr), or be another user's in a folder like /tmp"
            }
            (Self::Creating, Errno::INVAL | Errno::ILSEQ) => {
                "the file system may not allow a character of this name"
            }
            (Self::Creating | Self::CreatingSpecial, Errno::EXIST) => {
                "something else has that name: choose another one"
            }
            (_, Errno::TXTBSY) => {
                "it is swap space in use, or a running program: leave out --in-place, or add --force"
            }
            (_, Errno::EXIST) => "it exists already: --force replaces it",
            (_, Errno::NOSPC) => DISK_FULL,
            (_, Errno::DQUOT) => "the quota is used up",
            (_, Errno::ROFS) => "the file system is mounted read-only: choose another folder",
            _ => return None,
        }))
    }
}

impl From<&'static str> for Action {
    fn from(words: &'static str) -> Self {
        Self::Other(words)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creating | Self::CreatingSpecial => "creating",
            Self::Following => "following",
            Self::Reading => "reading",
            Self::ReadingFolder => "reading the folder",
            Self::Replacing => "replacing",
            Self::ReplacingByFolder => "putting a folder in the place of",
            Self::Serving => "serving",
            Self::Writing => "writing",
            Self::Other(words) => words,
        })
    }
}

/// A failed action on a file or folder.
#[derive(Debug)]
pub struct PathError {
    /// The action that failed.
    pub action: Action,
    /// The file or folder.
    pub path: PathBuf,
    /// The error of the system call.
    pub source: io::Error,
}

impl PathError {
    /// Creates the error of an action.
    pub fn new(
        action: impl Into<Action>,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self { action: action.into(), path: path.into(), source: source.into() }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, path, source } = self;
        let shown = if path.as_os_str().is_empty() { "''".into() } else { path.to_string_lossy() };
        write!(f, "{action} {shown}: {}", in_words(source))
    }
}

impl std::error::Error for PathError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl Hinted for PathError {
    fn hint(&self) -> Option<Hint> {
        let is_folder_name = self.path.as_os_str().as_bytes().ends_with(b"/");
        if is_folder_name && Errno::from_io_error(&self.source) == Some(Errno::NOTDIR) {
            return Some(Hint("no folder has that name: create it, or leave out the slash"));
        }
        self.action.hint(&self.source)
    }
}

/// Turns an error of the system into one that names the file.
pub trait WithPath<T> {
    /// Adds the path, and the action that failed on it.
    ///
    /// # Errors
    ///
    /// A [`PathError`] with both, if `self` is an error.
    fn with_path(self, action: impl Into<Action>, path: impl Into<PathBuf>)
    -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> WithPath<T> for Result<T, E> {
    fn with_path(
        self,
        action: impl Into<Action>,
        path: impl Into<PathBuf>,
    ) -> Result<T, PathError> {
        self.map_err(|source| PathError::new(action, path, source))
    }
}

/// A system error, displayed without what std adds: `(os error 2)` at the end, and the prefix of
/// name resolution errors. Invalid UTF-8 is described as such.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'e>(pub &'e io::Error);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // std's text readers return this kind, without an inner error, for invalid UTF-8.
        if self.0.kind() == io::ErrorKind::InvalidData && self.0.get_ref().is_none() {
            return f.write_str("it is not text in UTF-8");
        }
        let text = self.0.to_string();
        let text = text.split(" (os error").next().unwrap_or(&text);
        f.write_str(text.strip_prefix("failed to lookup address information: ").unwrap_or(text))
    }
}

/// Returns the system's text for an error as messages show it: without what std appends, and
/// "cancelled" for a call that a signal has interrupted.
#[must_use]
pub fn in_words(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::INTR) => "cancelled".to_owned(),
        _ => Plain(error).to_string(),
    }
}

const DISK_FULL: &str =
    "the disk is full or has no more inodes: free some space or choose another folder";

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(action: Action, errno: Errno) -> Option<String> {
        action.hint(&errno.into()).map(|hint| hint.to_string())
    }

    #[test]
    fn a_hint_depends_on_what_was_being_done() {
        assert!(hint(Action::Serving, Errno::NOENT).is_some_and(|it| it.contains("exists")));
        assert_eq!(hint(Action::Creating, Errno::NOENT), None);
        assert!(hint(Action::Reading, Errno::ISDIR).is_some_and(|it| it.contains("tar")));
        assert!(hint(Action::ReadingFolder, Errno::ISDIR).is_some_and(|it| it.contains("-r")));
        assert_eq!(hint(Action::Other("reading"), Errno::ISDIR), None);
        assert!(hint(Action::Creating, Errno::ILSEQ).is_some_and(|it| it.contains("name")));
        assert!(hint(Action::CreatingSpecial, Errno::PERM).is_some_and(|it| it.contains("root")));
        assert_eq!(hint("looking at".into(), Errno::NOSPC).as_deref(), Some(DISK_FULL));
    }

    #[test]
    fn the_number_of_an_error_is_left_out() {
        assert_eq!(Plain(&Errno::PIPE.into()).to_string(), "Broken pipe");
        let unknown = io::Error::other("failed to lookup address information: Name unknown");
        assert_eq!(Plain(&unknown).to_string(), "Name unknown");
        assert_eq!(Plain(&io::Error::other("its own words")).to_string(), "its own words");
        let own = io::Error::new(io::ErrorKind::InvalidData, "its own words");
        assert_eq!(Plain(&own).to_string(), "its own words");
        let read = io::read_to_string(&b"\xff"[..]).unwrap_err();
        assert_eq!(Plain(&read).to_string(), "it is not text in UTF-8");
    }

    #[test]
    fn a_slash_at_the_end_of_a_file_name_is_explained() {
        let hint = |path| PathError::new(Action::Creating, path, Errno::NOTDIR).hint();
        assert!(hint("none/").is_some_and(|hint| hint.to_string().contains("slash")));
        assert!(hint("file/new").is_none());
    }
}
