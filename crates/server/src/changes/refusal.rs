//! Why changes are refused, as responses to the client.

use std::borrow::Cow;
use std::fmt::Display;
use std::io;

use rustix::io::Errno;
use underpass_copy::CopyError;
use underpass_engine::Error;

use crate::files::root::{is_incomplete, join};

pub(super) type Result<T, E = ChangeRefusal> = std::result::Result<T, E>;

/// A file or folder at which a change of a whole folder failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FailedEntry {
    pub(crate) path: Vec<u8>,
    pub(crate) is_folder: bool,
    pub(crate) status: u16,
    pub(crate) detail: Cow<'static, str>,
    pub(super) cause: RefusalCause,
}

impl FailedEntry {
    pub(crate) fn new(path: &[u8], is_folder: bool, refusal: ChangeRefusal) -> Self {
        let ChangeRefusal { status, detail, cause, .. } = refusal;
        Self { path: path.to_vec(), is_folder, status, detail, cause }
    }

    /// Returns the path to report to the client, and whether it is that of a folder: for a hidden
    /// entry of a request that is in progress, its folder.
    pub(crate) fn visible_path(&self) -> (&[u8], bool) {
        let mut end = 0_usize;
        for name in self.path.split(|byte| *byte == b'/') {
            if is_incomplete(name) {
                return (&self.path[..end.saturating_sub(1)], true);
            }
            end += name.len() + 1;
        }
        (&self.path, self.is_folder)
    }
}

/// The cause of a refusal, on which the further steps of a change depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalCause {
    /// The error of a system call.
    Errno(Errno),
    /// An entry was changed while it was copied, and remains.
    ChangedOriginal,
    /// Anything else.
    Other,
}

/// Returns the refusal of the removal or move of a folder with hidden entries.
pub(super) fn hidden_inside() -> ChangeRefusal {
    ChangeRefusal::new(403, "the folder contains hidden entries")
}

/// The reason why a change was not made, or not completely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChangeRefusal {
    pub(crate) status: u16,
    pub(crate) detail: Cow<'static, str>,
    pub(super) cause: RefusalCause,
    /// Whether the names have changed all the same, and only what follows failed.
    pub(crate) is_made: bool,
    /// Whether a move has put a copy in the place of the destination, and some or all of the
    /// original is still there.
    pub(crate) is_copied: bool,
    /// The entries in a folder that failed, if any (RFC 4918 9.6.1, 9.8.3).
    pub(crate) failed: Vec<FailedEntry>,
}

impl ChangeRefusal {
    pub(crate) fn new(status: u16, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, cause) = (detail.into(), RefusalCause::Other);
        Self { status, detail, cause, is_made: false, is_copied: false, failed: Vec::new() }
    }

    /// Creates the response to a change that was made, but with this flaw.
    pub(crate) fn made(flaw: impl Display) -> Self {
        Self { is_made: true, ..Self::new(500, format!("the change was made, but {flaw}")) }
    }

    /// Creates the response to a change that failed because of these entries, of which there is at
    /// least one.
    pub(crate) fn of_entries(failed: Vec<FailedEntry>) -> Self {
        let first = failed.first().map(|first| (first.status, first.detail.clone()));
        let (status, detail) = first.unwrap_or((500, Cow::Borrowed("")));
        Self { failed, ..Self::new(status, detail) }
    }

    /// Returns whether the system refused it with this error.
    pub(super) fn is_by(&self, errno: Errno) -> bool {
        self.cause == RefusalCause::Errno(errno)
    }

    /// Prefixes the paths of failed entries with that of their folder; an empty path is the folder
    /// itself.
    pub(crate) fn beneath(mut self, folder: &[u8]) -> Self {
        for entry in &mut self.failed {
            entry.path = join(folder, &entry.path);
        }
        self
    }

    /// Appends `more` to the message, and to that of each entry.
    pub(crate) fn adding(mut self, more: &str) -> Self {
        let entries = self.failed.iter_mut().map(|entry| &mut entry.detail);
        entries.chain([&mut self.detail]).for_each(|detail| detail.to_mut().push_str(more));
        self
    }

    /// Creates the refusal for an error of reading.
    pub(crate) fn of_reading(errno: Errno) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::new(403, "the server may not read this"),
            errno => errno.into(),
        }
    }

    /// Creates the response to a change that was made, but may not be on the disk.
    pub(crate) fn unsynced(errno: Errno) -> Self {
        let error = io::Error::from(errno);
        Self::made(format_args!("may not survive a power cut; the system says: {error}"))
    }

    /// Creates the refusal to remove the original of a copy that may not be on the disk.
    pub(crate) fn unsynced_copy(errno: Errno) -> Self {
        let error = io::Error::from(errno);
        let detail = "the copy may not survive a power cut, so both remain; the system says:";
        Self::new(500, format!("{detail} {error}"))
    }

    /// Creates the refusal of the copy of a file that is changing.
    pub(crate) fn written_to() -> Self {
        Self::new(409, "the file was written to while it was copied; try again")
    }

    /// Creates the refusal to change an entry that was replaced since it was checked.
    pub(crate) fn replaced() -> Self {
        Self::new(409, TAKEN)
    }

    /// Creates the refusal for an error at the destination of a write, which need not exist yet:
    /// `ENOENT` means that its folder is missing (RFC 4918 9.3.1, 9.8.5, 9.9.4).
    pub(crate) fn at_target(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::new(409, "its parent folder does not exist"),
            Errno::NOTDIR => Self::new(409, "a file is in the place of its parent folder"),
            Errno::INVAL | Errno::ILSEQ => Self::new(400, NAME_REFUSED),
            errno => errno.into(),
        }
    }
}

/// The message if a name is hidden or may not be created.
pub(crate) const NAME_HIDDEN: &str = "such names are hidden here";

/// The message if a file system rejects a name.
pub(crate) const NAME_REFUSED: &str = "the file system does not allow a character of this name";

impl From<Errno> for ChangeRefusal {
    fn from(errno: Errno) -> Self {
        let cause = RefusalCause::Errno(errno);
        let (status, detail) = match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => (404, ""),
            // A socket or a device without a driver cannot be opened, and is not served either.
            Errno::NXIO | Errno::NODEV => (404, ""),
            Errno::ACCESS | Errno::PERM => (403, "the server may not change this"),
            Errno::ROFS => (403, "the file system is read-only"),
            Errno::XDEV => (403, "a link in the path leads out of the served folder"),
            Errno::EXIST => (412, "this name is already taken"),
            Errno::NOTEMPTY => (409, "another program is writing into the folder; try again"),
            // It was a file when it was checked.
            Errno::ISDIR => (409, TAKEN),
            Errno::BUSY => (409, "it is in use as a mount point"),
            Errno::NAMETOOLONG => (400, "the name is too long for the file system"),
            Errno::NOSPC => (507, "no space is left"),
            Errno::DQUOT => (507, "the quota is used up"),
            Errno::FBIG => (507, "the file is too large for the file system"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
                (503, "the server is too busy; try again soon")
            }
            // It may still exist, and a client would treat a 404 as its removal.
            Errno::STALE => (503, "it was moved or replaced meanwhile; try again soon"),
            _ => {
                let detail = format!("the system says: {}", io::Error::from(errno));
                return Self { cause, ..Self::new(500, detail) };
            }
        };
        Self { cause, ..Self::new(status, detail) }
    }
}

impl From<io::Error> for ChangeRefusal {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::new(500, error.to_string()),
        }
    }
}

impl From<CopyError> for ChangeRefusal {
    fn from(error: CopyError) -> Self {
        match error {
            CopyError::Path { source, .. } => source.into(),
            CopyError::Transfer { source, .. } => source.into(),
            error => Self::new(500, error.to_string()),
        }
    }
}

impl From<Error> for ChangeRefusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { source, .. } => source.into(),
            Error::SourceChanged { .. } | Error::SourceEnded { .. } => Self::written_to(),
            error => Self::new(500, error.to_string()),
        }
    }
}

const TAKEN: &str = "the name was taken meanwhile; try again";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_handle_of_a_network_file_system_is_not_a_404() {
        assert_eq!(ChangeRefusal::from(Errno::NOENT).status, 404);
        assert_eq!(ChangeRefusal::from(Errno::STALE).status, 503);
    }
}
