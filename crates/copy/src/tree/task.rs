//! The tasks of a copy.

use std::sync::Arc;

use rustix::fs::Stat;
use underpass_engine::FileId;

use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::{ListedNames, SourceEntry};
use crate::tree::path_chain::PathChain;

/// Work for one thread in a folder. The folder is not complete before it is done.
#[derive(Debug)]
pub(crate) enum FolderTask {
    /// Copies these entries.
    Entries(Arc<DirPair>, Vec<SourceEntry>),
    /// Copies the entries of these names.
    Read(Arc<DirPair>, ListedNames),
    /// Copies a folder in it.
    Enter(Arc<DirPair>, SourceEntry),
    /// Copies the entries of a folder that was too deep.
    Deferred(Box<DeferredDir>),
}

/// A folder whose entries are copied later, without its descriptors.
#[derive(Debug)]
pub(crate) struct DeferredDir {
    /// The folder that the sources are put in.
    pub(crate) top: Arc<DirPair>,
    pub(crate) chain: Arc<PathChain>,
    pub(crate) stat: Stat,
    /// Its copy in the target.
    pub(crate) target: FileId,
    pub(crate) origin: DirOrigin,
    pub(crate) is_trusted: bool,
    pub(crate) is_closed: bool,
    pub(crate) system: &'static str,
    pub(crate) device: Option<u64>,
}

impl FolderTask {
    /// Returns the folder that waits for the task, and whether its final name does, too.
    pub(crate) fn folder(&self) -> (Arc<DirPair>, bool) {
        match self {
            Self::Entries(folder, _) | Self::Read(folder, _) => (Arc::clone(folder), true),
            Self::Enter(folder, _) => (Arc::clone(folder), false),
            Self::Deferred(later) => (Arc::clone(&later.top), false),
        }
    }

    /// Returns the address of the folder that the task fills with files; `None` if it makes at most
    /// one entry.
    pub(crate) fn busy_key(&self) -> Option<usize> {
        match self {
            Self::Entries(folder, _) => Some(Arc::as_ptr(folder).addr()),
            Self::Read(..) | Self::Enter(..) | Self::Deferred(_) => None,
        }
    }
}
