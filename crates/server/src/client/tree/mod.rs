//! Whole folders: from our own servers as one archive, unpacked while it comes in, and from others
//! by their listings, file by file.
//!
//! In an archive the files come one behind the other: small ones are taken through memory, which is
//! cheaper, and large ones go from the socket to their place by the engine. How far it came is
//! noted in a journal, so that whoever comes after a crash goes on from there. Nothing here prints
//! or reads the environment.

mod archive;
mod crawl;
mod error;
mod journal;
pub mod listing;
mod paths;
mod pax;
mod place;
mod queue;
mod retry;
mod site;
mod stream;
pub mod tar;
mod unpack;
mod write_log;

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::{Error, Policy, Report};
use url::Url;

use super::Agent;
use crate::incoming::ReceiveError;
use crate::tls::Facts;
pub use error::TreeError;
pub use paths::{Refusal, check_target, relative};

/// How folders are to be fetched.
#[derive(Clone, Debug)]
pub struct TreeWishes {
    /// Connections at the most, for a folder that comes file by file.
    pub connections: u32,
    /// How often one attempt after the other may fail before all is given up.
    pub retries: u32,
    /// Which mechanisms may move the bytes.
    pub policy: Policy,
    /// Bytes asked for in one system call, instead of the mechanism's own default.
    pub step: Option<usize>,
    /// Whether files that are here and others are replaced.
    pub replaces: bool,
    /// Whether the server is asked for an archive first.
    pub archive: bool,
}

impl Default for TreeWishes {
    fn default() -> Self {
        Self {
            connections: 4,
            retries: 8,
            policy: Policy::Auto,
            step: None,
            replaces: false,
            archive: true,
        }
    }
}

/// How far a folder has come, to be looked at by others meanwhile.
#[derive(Debug, Default)]
pub struct TreeGauge {
    files: AtomicU64,
    done: AtomicU64,
    /// One more than the bytes in all; 0 as long as that is unknown.
    total: AtomicU64,
}

impl TreeGauge {
    /// Files that are here.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Bytes that are here: of the archive, if it is one.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes in all, if that is known.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total.load(Ordering::Relaxed).checked_sub(1)
    }
}

/// Something worth telling about a folder that is being fetched.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'e> {
    /// It comes in this way.
    Begun(TreeWay),
    /// Something is not made; all else is.
    LeftOut {
        /// Its path, or its address if it has no path.
        path: &'e [u8],
        /// Why.
        why: &'e dyn Why,
    },
    /// There was a beginning from an earlier run, which is gone on with.
    Resuming {
        /// Bytes of the archive that are here.
        have: u64,
        /// Bytes in all.
        total: u64,
    },
    /// An attempt failed; the next follows after a while.
    Retrying {
        /// Why it failed.
        error: &'e TreeError,
        /// How long the while is.
        after: Duration,
    },
    /// The server's folder is another one now.
    StartingOver,
}

/// A reason that can be told.
pub trait Why: fmt::Display + fmt::Debug {}

impl<T: fmt::Display + fmt::Debug> Why for T {}

/// In which way a folder comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeWay {
    /// As one archive.
    #[default]
    Archive,
    /// File by file.
    Listing,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct TreeDone {
    /// In which way it came.
    pub way: TreeWay,
    /// Files that were fetched.
    pub files: u64,
    /// Files that were here already.
    pub here: u64,
    /// Folders.
    pub folders: u64,
    /// Links, symbolic and hard ones.
    pub links: u64,
    /// What was left out, each told as an event.
    pub left_out: u64,
    /// Bytes of the archive, or of large files, that were here before.
    pub resumed_at: u64,
    /// Connections that were made use of.
    pub connections: u32,
    /// What was moved, and how.
    pub report: Report,
    /// What is known of the TLS that it came over last, if it did.
    pub tls: Option<Facts>,
}

/// A folder that was not fetched to its end.
#[derive(Debug)]
pub struct TreeFailed {
    /// Why.
    pub error: TreeError,
    /// What was done up to then, which is kept to be gone on with.
    pub done: Box<TreeDone>,
}

impl fmt::Display for TreeFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for TreeFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

/// Who is told of what happens.
pub type Tell<'t> = &'t (dyn Fn(&TreeEvent<'_>) + Sync);

/// Fetches everything beneath `url` into the folder `path`, which is made if it is missing.
///
/// What would lead out of the folder is left out and told, and so is what cannot be made for other
/// reasons of its own; the rest goes on.
///
/// # Errors
///
/// [`TreeFailed`].
///
/// # On failure
///
/// What is here is kept, and the same call goes on with it: in a folder of the name with `.part`
/// behind it, if there was none of the name.
pub fn fetch(
    agent: &Agent<'_>,
    wishes: &TreeWishes,
    url: &Url,
    path: &Path,
    gauge: &TreeGauge,
    tell: Tell<'_>,
) -> Result<TreeDone, TreeFailed> {
    let mut done = TreeDone::default();
    let (url, has_answered) = (folder_of(url), &AtomicBool::new(false));
    let mut job = Job { agent, wishes, url, path, gauge, tell, has_answered, done: &mut done };
    match job.run() {
        Ok(()) => Ok(done),
        Err(error) => Err(TreeFailed { error, done: Box::new(done) }),
    }
}

/// What is to be done, and what was.
struct Job<'j, 'a> {
    agent: &'j Agent<'a>,
    wishes: &'j TreeWishes,
    url: Url,
    path: &'j Path,
    gauge: &'j TreeGauge,
    tell: Tell<'j>,
    /// Whether the server has ever answered.
    has_answered: &'j AtomicBool,
    done: &'j mut TreeDone,
}

impl Job<'_, '_> {
    /// Notes that the server has answered.
    fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    fn run(&mut self) -> Result<(), TreeError> {
        if self.wishes.archive
            && let Some(offer) = archive::offer(self)?
        {
            return archive::fetch(self, offer);
        }
        crawl::fetch(self)
    }
}

/// What the folder at an address is called; nothing for the one that a server begins with.
///
/// # Errors
///
/// [`Refusal`] if no folder can be called so.
pub fn name_of(url: &Url) -> Result<Option<Vec<u8>>, Refusal> {
    let Some(last) = url.path().split('/').rfind(|part| !part.is_empty()) else { return Ok(None) };
    let name: Vec<u8> = percent_encoding::percent_decode_str(last).collect();
    if name.contains(&b'/') {
        return Err(Refusal::Slash);
    }
    match relative(&name)? {
        name if name.is_empty() => Err(Refusal::Nul),
        name => Ok(Some(name)),
    }
}

/// The address of a folder ends in a slash.
fn folder_of(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    url
}

/// An address as it may be shown and noted: without the password in it.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Only addresses without a host have no place for them.
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}

/// What people are told about a name for which the system had this answer.
fn reason(errno: Errno) -> String {
    match errno {
        Errno::EXIST => "another one is here already, which only --force replaces".to_owned(),
        Errno::ISDIR => "a folder of that name is here already".to_owned(),
        Errno::NOTDIR => "a file is where its folder should be".to_owned(),
        Errno::LOOP => "a link is where its folder should be".to_owned(),
        errno => errno.to_string(),
    }
}

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// The errno of a failure that is the file's and not the connection's.
fn local(error: &ReceiveError) -> Option<Errno> {
    let ReceiveError::Engine(error) = error else { return None };
    let Error::Io { source, .. } = &**error else { return None };
    Errno::from_io_error(source).filter(|errno| {
        matches!(
            *errno,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG | Errno::IO | Errno::ROFS | Errno::PERM
        )
    })
}
