//! The results and errors of fetching a folder.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::Serialize;
use underpass_engine::hint::{Action, Plain};
use underpass_engine::{Error, Report};
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::SessionFacts;

use super::tar::TarError;
use crate::backoff::Retryable;
use crate::download::DownloadError;
use crate::error::ClientError;

/// The method by which a folder is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeMethod {
    /// As an archive.
    #[default]
    Archive,
    /// File by file.
    Listing,
}

/// The result of fetching a folder. The names of the counts in JSON are stable.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TreeOutcome {
    /// The method that was used.
    #[serde(rename = "way")]
    pub method: TreeMethod,
    /// Files that were fetched.
    pub files: u64,
    /// Files that existed already.
    pub here: u64,
    /// Folders.
    pub folders: u64,
    /// Links, symbolic and hard ones.
    pub links: u64,
    /// The number of files, folders and links left out, each reported as an event.
    pub left_out: u64,
    /// The error with which a file system refused the server's permissions or times, if one
    /// did so.
    #[serde(skip)]
    pub refused: Option<Errno>,
    /// The number of files, links and folders that were removed here.
    pub removed: u64,
    /// The number of connections used.
    pub connections: u32,
    /// Bytes of the archive, or of large files, from earlier runs.
    pub resumed_at: u64,
    /// The bytes moved, and how.
    #[serde(skip)]
    pub report: Report,
    /// The TLS of the last connection, if there was any.
    #[serde(skip)]
    pub tls: Option<SessionFacts>,
}

/// A folder that was not fetched completely.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct TreeFailed {
    /// The error that ended it.
    #[source]
    pub error: TreeError,
    /// The result until then, which the next run can resume.
    pub done: Box<TreeOutcome>,
}

pub(super) type Result<T, E = TreeError> = std::result::Result<T, E>;

/// The reason why a folder could not be fetched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The request failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A large file could not be fetched.
    #[error("{}: {source}", .path.display())]
    Download {
        /// Its path in the folder.
        path: PathBuf,
        /// The error that ended its download.
        source: Box<DownloadError>,
    },
    /// A system call on a local file or folder failed.
    #[error("{action} {}: {}", .path.display(), Plain(.source))]
    Io {
        /// The action, such as `writing`.
        action: Action,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Nothing was removed, after everything was fetched or left out.
    #[error("nothing was removed: {0}")]
    NothingRemoved(PruneRefusal),
    /// A thread has panicked, which is a bug. Nothing was removed.
    #[error("a thread panicked, so the folder is incomplete")]
    Panicked,
    /// What the server has at the URL is not a folder that can be fetched.
    #[error(transparent)]
    Source(#[from] SourceFolderError),
    /// The folder to be written, or its unfinished copy, cannot be used.
    #[error(transparent)]
    Target(#[from] TargetFolderError),
}

/// The reason why no unlisted entry is removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PruneRefusal {
    /// The listing of the folder is empty.
    #[error("{url} lists nothing")]
    EmptyListing {
        /// The URL of the listing.
        url: String,
    },
    /// A listing may lack entries, as if it was cut off or has further pages.
    #[error("{url} may not list everything")]
    IncompleteListing {
        /// The URL of the listing.
        url: String,
    },
    /// More entries would be removed than are allowed.
    #[error("that would be {count} {}, more than {max}", if *.count == 1 { "entry" } else { "entries" })]
    TooMany {
        /// The number of entries that would be removed.
        count: u64,
        /// The maximum number.
        max: u64,
    },
}

/// The reason why what a server has at a URL cannot be fetched as a folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceFolderError {
    /// The URL is that of a file.
    #[error("it is a file, not a folder")]
    IsFile,
    /// The URL has neither an archive nor a listing.
    #[error(
        "{url} is not a folder that can be fetched: the server answers with {}, \
         neither an archive nor a listing",
        if .media_type.is_empty() { "no media type" } else { .media_type }
    )]
    NotAFolder {
        /// The URL.
        url: String,
        /// The media type of the response; may be empty.
        media_type: String,
    },
    /// No key of the bucket begins with the URL's path.
    #[error("the bucket has no key with this prefix")]
    NotThere,
    /// The archive cannot be read.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// The folder has too many members.
    #[error("the folder has more than {limit} files: fetch its parts one by one")]
    TooMany {
        /// The maximum number.
        limit: u64,
    },
    /// The names of its files and folders take too much memory.
    #[error("its file names take more than {} MiB of memory: fetch its parts one by one", .limit >> 20)]
    TooManyNames {
        /// The maximum in bytes.
        limit: usize,
    },
}

/// The reason why the folder to be written, or its unfinished copy, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetFolderError {
    /// Another process is fetching the folder.
    #[error("another process is fetching {}: wait until it ends", .path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// Another user's folder, or the unfinished folder of another download, is in the way.
    #[error("{}", foreign_text(.path, .url.as_deref()))]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The URL it was fetched from, if known.
        url: Option<String>,
    },
}

impl TreeOutcome {
    /// Returns what the fetched folder at `path` lacks, if anything.
    #[must_use]
    pub fn shortfall(&self, path: &Path) -> Option<String> {
        let path = path.display();
        match self.left_out {
            0 => self.refused.map(|errno| {
                let error = Plain(&errno.into()).to_string();
                format!("{path} has everything, but not all permissions or times: {error}")
            }),
            1 => Some(format!("{path} lacks one file, folder or link")),
            count => Some(format!("{path} lacks {count} files, folders or links")),
        }
    }
}

impl TreeError {
    /// Returns whether a retry may succeed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Client(error) if error.is_temporary())
    }

    /// Creates the error of a system call on a path.
    pub(super) fn io(
        action: impl Into<Action>,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io { action: action.into(), path: path.into(), source: source.into() }
    }
}

impl From<TarError> for TreeError {
    fn from(error: TarError) -> Self {
        SourceFolderError::from(error).into()
    }
}

impl Retryable for TreeError {
    fn of_request(&self) -> Option<&ClientError> {
        if let Self::Client(error) = self { Some(error) } else { None }
    }
}

fn foreign_text(path: &Path, url: Option<&str>) -> String {
    let path = path.display();
    match url {
        Some(url) => {
            format!("{path} is an unfinished download of {url}: finish that, or remove it")
        }
        None => format!("{path} is in the way: remove it, or choose another folder"),
    }
}

/// The error for a file whose name differs from that of another file of this download in case
/// alone, on a file system that ignores case. No system call on a file fails in this way.
pub(super) const CASE_CLASH: Errno = Errno::NOTUNIQ;

/// The error for a folder that another user has put in its place, as in /tmp. No system call on a
/// file fails in this way.
pub(super) const FOLDER_OF_OTHER_USER: Errno = Errno::USERS;

/// The error for a device, FIFO or socket where a file should be, as of open(2).
pub(super) const SPECIAL_FILE: Errno = Errno::NXIO;

/// Returns why an entry was left out, by the system's error.
pub(super) fn explain(errno: Errno) -> String {
    match errno {
        Errno::EXIST => "a different one exists, which only --force replaces".to_owned(),
        Errno::ISDIR => "a folder of that name exists: remove it".to_owned(),
        Errno::NOTDIR => "a file has the name of its folder: remove it".to_owned(),
        CASE_CLASH => {
            "another file of this download has its name in another case, which this file system ignores"
                .to_owned()
        }
        FOLDER_OF_OTHER_USER => {
            "another user has put a folder of that name into one that users share".to_owned()
        }
        SPECIAL_FILE => "a device, FIFO or socket of that name exists: remove it".to_owned(),
        Errno::LOOP => "a link has the name of its folder: remove it".to_owned(),
        errno => Plain(&errno.into()).to_string(),
    }
}

/// Returns the errno of a failure that concerns the file, not the connection.
pub(super) fn local(error: &ReceiveError) -> Option<Errno> {
    let ReceiveError::Engine(error) = error else { return None };
    let Error::Io { source, .. } = &**error else { return None };
    Errno::from_io_error(source).filter(|errno| {
        matches!(
            *errno,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO | Errno::ROFS | Errno::PERM
        )
    })
}

/// Returns whether an error concerns one name only, so that others may still succeed.
pub(super) fn is_about_name(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ACCESS // a folder or file that we may not change
            | Errno::PERM // the same, or a kind that the file system does not have
            | Errno::EXIST // something else is there
            | Errno::ILSEQ // a file system that wants UTF-8
            | Errno::INVAL // or one that does not like the name
            | Errno::ISDIR // a folder where a file should be
            | Errno::LOOP // a link where a folder should be
            | Errno::NAMETOOLONG
            | Errno::NOENT // the target of a hard link that was left out
            | Errno::NOTDIR // a file where a folder should be
            | Errno::NOTEMPTY
            | CASE_CLASH
            | SPECIAL_FILE
            | Errno::OPNOTSUPP // links on FAT
            | FOLDER_OF_OTHER_USER
            | Errno::XDEV // a hard link into another file system
            | Errno::MLINK
    )
}
