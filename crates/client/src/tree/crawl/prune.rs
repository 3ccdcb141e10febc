//! Removes entries that the server does not list, after everything else.
//!
//! Nothing is removed unless every listing was read and is certain to be complete: a page that
//! links to only some of the files would cost all others. Links are removed and never followed, and
//! file systems mounted below the folder stay.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::{AtFlags, FileType, OFlags, Stat, statat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{is_mounted, lock_file, names, open_entry};
use underpass_engine::hint::Action;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, is_folder};
use underpass_sys::open_beneath;
use url::Url;

use crate::download::PARTIAL_ENDS;
use crate::error::ClientError;
use crate::tree::dest::DestFolder;
use crate::tree::error::{PruneRefusal, Result, TreeError, TreeOutcome, explain};
use crate::tree::listing::Listing;
use crate::tree::options::TreeEvent;
use crate::tree::paths::{JOURNAL, WRITE_LOG, joined};
use crate::tree::task::TreeFetch;

/// Names by the paths of their folders.
type ListedNames = HashMap<Vec<u8>, HashSet<Vec<u8>>>;

/// Listed paths, by the local file that each leads to.
type OtherPaths = HashMap<FileId, Vec<Vec<u8>>>;

/// The entries of the listings that were read so far.
#[derive(Debug)]
pub(super) struct Prune {
    /// All listed names by the paths of their folders, and the total bytes of both.
    listed: Mutex<(ListedNames, usize)>,
    /// The reason why nothing is removed, if there is one.
    doubt: Mutex<Option<PruneRefusal>>,
    if_other_kind: IfOtherKind,
    /// Entries that are files here and listed as folders, or vice versa, and the errors with which
    /// fetching them failed.
    other_kind: Mutex<HashMap<Vec<u8>, Errno>>,
}

/// The decision about a file in the place of a folder, or vice versa.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IfOtherKind {
    /// It is removed, as if it were not listed.
    IsRemoved,
    /// It stays, and the listed entry is left out.
    IsLeftOut,
}

impl Prune {
    /// Creates one without entries.
    pub(super) fn new(if_other_kind: IfOtherKind) -> Self {
        let (listed, doubt) = (Mutex::default(), Mutex::default());
        Self { listed, doubt, if_other_kind, other_kind: Mutex::default() }
    }

    /// Returns whether the obstacle to a listed entry will be removed.
    pub(super) fn makes_room(&self, path: &[u8], errno: Errno) -> bool {
        let is_other_kind = matches!(errno, Errno::ISDIR | Errno::NOTDIR);
        let goes = is_other_kind && self.if_other_kind == IfOtherKind::IsRemoved;
        if goes {
            lock(&self.other_kind).insert(path.to_vec(), errno);
        }
        goes
    }

    /// Returns whether obstacles to listed entries were to be removed, and nothing prevented it.
    pub(super) fn has_made_room(&self) -> bool {
        !lock(&self.other_kind).is_empty()
    }

    /// Records the listing of a folder, before unwanted entries are dropped from it. Returns
    /// `false` and stops recording once all paths and names together take more than `max` bytes.
    pub(super) fn record(
        &self,
        url: &Url,
        folder: &[u8],
        is_root: bool,
        listing: &Listing,
        max: usize,
    ) -> bool {
        let redacted = || TreeFetch::redacted(url);
        let doubt = match listing {
            Listing { is_whole: false, .. } => {
                Some(PruneRefusal::IncompleteListing { url: redacted() })
            }
            Listing { entries, .. } if is_root && entries.is_empty() => {
                Some(PruneRefusal::EmptyListing { url: redacted() })
            }
            _ => None,
        };
        if let Some(doubt) = doubt {
            lock(&self.doubt).get_or_insert(doubt);
        }
        let (listed, bytes) = &mut *lock(&self.listed);
        for entry in &listing.entries {
            let path = joined(folder, &entry.path);
            // A link may lead several folders down.
            let first = if folder.is_empty() { 0 } else { folder.len() + 1 };
            let slashes = (first..path.len()).filter(|at| path[*at] == b'/');
            for end in slashes.chain([path.len()]) {
                let slash = path[..end].iter().rposition(|byte| *byte == b'/');
                let (folder, name) = (&path[..slash.unwrap_or(0)], slash.map_or(0, |at| at + 1));
                if !listed.contains_key(folder) {
                    *bytes += folder.len();
                    listed.insert(folder.to_vec(), HashSet::new());
                }
                let name = &path[name..end];
                if let Some(names) = listed.get_mut(folder)
                    && !names.contains(name)
                {
                    *bytes += name.len();
                    names.insert(name.to_vec());
                }
                if *bytes > max {
                    return false;
                }
            }
        }
        true
    }

    /// Removes unlisted entries.
    pub(super) fn run(
        &self,
        tree: &TreeFetch<'_, '_>,
        dest: &DestFolder,
        done: &mut TreeOutcome,
    ) -> Result<()> {
        let doubt = lock(&self.doubt).take();
        if doubt.is_some() || done.left_out > 0 {
            for (path, errno) in lock(&self.other_kind).drain() {
                leave(tree, done, &path, errno);
            }
        }
        if let Some(doubt) = doubt {
            return Err(TreeError::NothingRemoved(doubt));
        }
        if done.left_out > 0 {
            (tree.on_event)(&TreeEvent::NothingRemoved);
            return Ok(());
        }
        let failed = |errno| TreeError::io(Action::Reading, tree.path, errno);
        let root = open_beneath(dest.root().as_fd(), b"", FOLDER).map_err(failed)?;
        let (listed, _) = &*lock(&self.listed);
        let mut other_kind = lock(&self.other_kind);
        let found = Vec::new();
        let mut walk = UnlistedWalk { tree, listed, other_kind: &other_kind, found, done };
        walk.folder(&root, &[], &[Vec::new()], 0).map_err(failed)?;
        let UnlistedWalk { found, .. } = walk;
        let count = found.len() as u64;
        if let Some(max) = tree.options.max_delete.filter(|max| count > *max) {
            for (path, errno) in other_kind.drain() {
                leave(tree, done, &path, errno);
            }
            return Err(TreeError::NothingRemoved(PruneRefusal::TooMany { count, max }));
        }
        // Outer folders first.
        for (path, _) in found.iter().rev().filter(|(_, is_folder)| *is_folder) {
            // If this fails, removing the contents fails, too.
            let _ = dest.make_writable(path);
        }
        for (path, is_folder) in found {
            if tree.client.is_cancelled() {
                return Err(ClientError::Cancelled.into());
            }
            match dest.remove(&path, is_folder) {
                Ok(()) => {
                    done.removed += 1;
                    (tree.on_event)(&TreeEvent::Removed { path: &path });
                }
                Err(Errno::NOENT) => {}
                Err(errno) => leave(tree, done, &path, errno),
            }
        }
        Ok(())
    }
}

/// Finds unlisted entries.
struct UnlistedWalk<'w, 'j, 'a> {
    tree: &'w TreeFetch<'j, 'a>,
    listed: &'w ListedNames,
    /// The entries that are listed as another kind.
    other_kind: &'w HashMap<Vec<u8>, Errno>,
    /// The entries to remove, and whether each is a folder; contents come before their folder.
    found: Vec<(Vec<u8>, bool)>,
    done: &'w mut TreeOutcome,
}

impl UnlistedWalk<'_, '_, '_> {
    /// Walks through a folder, which was listed under these paths; returns whether all of its
    /// contents can be removed.
    fn folder(
        &mut self,
        folder: &OwnedFd,
        path: &[u8],
        listed_as: &[Vec<u8>],
        depth: u32,
    ) -> Result<bool, Errno> {
        let (mut is_emptied, mut found) = (true, Vec::new());
        for name in names(folder)? {
            let name = name.into_bytes();
            match statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(stat) => found.push((name, stat)),
                Err(errno) => {
                    leave(self.tree, self.done, &joined(path, &name), errno);
                    is_emptied = false;
                }
            }
        }
        let other_paths = self.other_paths(folder, listed_as, &found)?;
        for (name, stat) in found {
            let mut listed_as: Vec<_> = listed_as
                .iter()
                .filter(|path| self.listed.get(*path).is_some_and(|names| names.contains(&name)))
                .map(|path| joined(path, &name))
                .collect();
            listed_as.extend(other_paths.get(&FileId::of(&stat)).into_iter().flatten().cloned());
            let below = joined(path, &name);
            let outcome = self.entry(folder, &name, &below, &stat, &listed_as, depth);
            is_emptied &= outcome.unwrap_or_else(|errno| {
                leave(self.tree, self.done, &below, errno);
                false
            });
        }
        Ok(is_emptied)
    }

    /// Returns the listed paths that lead to an entry with a different name here, as on file
    /// systems that ignore case, by that entry's identity.
    fn other_paths(
        &self,
        folder: &OwnedFd,
        listed_as: &[Vec<u8>],
        found: &[(Vec<u8>, Stat)],
    ) -> Result<OtherPaths, Errno> {
        let here: HashSet<&[u8]> = found.iter().map(|(name, _)| name.as_slice()).collect();
        let mut others = OtherPaths::new();
        for path in listed_as {
            for name in self.listed.get(path).into_iter().flatten() {
                if here.contains(name.as_slice()) {
                    continue;
                }
                match statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => {
                        others.entry(FileId::of(&stat)).or_default().push(joined(path, name))
                    }
                    // The entry does not exist here, as it was not wanted.
                    Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        // Some file systems that ignore case change inode numbers when memory is short.
        let here: HashSet<FileId> = found.iter().map(|(_, stat)| FileId::of(stat)).collect();
        if others.keys().all(|own| here.contains(own)) { Ok(others) } else { Err(Errno::STALE) }
    }

    /// Checks an entry of a folder; returns whether it can be removed.
    fn entry(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        path: &[u8],
        stat: &Stat,
        listed_as: &[Vec<u8>],
        depth: u32,
    ) -> Result<bool, Errno> {
        let is_folder = is_folder(stat);
        let known = path.len() - name.len();
        let is_wanted = self.tree.options.wants(path, known, is_folder);
        if name == WRITE_LOG.as_bytes() || !is_wanted || is_in_use(folder, name) {
            return Ok(false);
        }
        // A link to a folder elsewhere was made by the user, and is kept.
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        let mut goes = listed_as.is_empty() || !is_link && self.other_kind.contains_key(path);
        if is_folder {
            let below = open_beneath(folder.as_fd(), name, FOLDER)?;
            if is_mounted(&below, folder)? || depth >= MAX_DEPTH {
                return Ok(false);
            }
            goes &= self.folder(&below, path, listed_as, depth + 1)?;
        }
        if goes {
            self.found.push((path.to_vec(), is_folder));
        }
        Ok(goes)
    }
}

/// Returns whether a name is that of a partial file or folder, or of its journal, to which another
/// process is writing.
fn is_in_use(folder: &OwnedFd, name: &[u8]) -> bool {
    let is_locked =
        |name: &[u8]| open_entry(folder, name).is_ok_and(|file| lock_file(file).is_err());
    if name == JOURNAL.as_bytes() {
        return is_locked(name);
    }
    let Some(end) = PARTIAL_ENDS.iter().find(|end| name.ends_with(end)) else { return false };
    let name = &name[..name.len() - end.len()];
    PARTIAL_ENDS.iter().any(|end| is_locked(&[name, end].concat()))
}

/// Reports an entry that could not be removed.
fn leave(tree: &TreeFetch<'_, '_>, done: &mut TreeOutcome, path: &[u8], errno: Errno) {
    done.left_out += 1;
    (tree.on_event)(&TreeEvent::LeftOut { path, reason: &explain(errno) });
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// The maximum depth of folders: each needs an open descriptor.
const MAX_DEPTH: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::listing::{EntryFacts, ListingEntry};

    /// A path of `n` folders has `n` parents, whose paths are kept, too.
    #[test]
    fn the_parents_of_a_deep_path_count_towards_the_limit() {
        let url = Url::parse("http://h/x/").expect("a URL");
        let entry = |path: String| ListingEntry {
            path: path.into_bytes(),
            url: url.clone(),
            is_folder: true,
            facts: EntryFacts::default(),
        };
        let listing = |path| Listing { entries: vec![entry(path)], ..Listing::default() };
        let prune = Prune::new(IfOtherKind::IsLeftOut);
        let record = |path: String| prune.record(&url, b"", true, &listing(path), 10_000);
        assert!(record("a".to_owned() + &"/a".repeat(49)));
        let bytes = lock(&prune.listed).1;
        // Recording it again takes no more memory.
        assert!(record("a".to_owned() + &"/a".repeat(49)));
        assert_eq!(lock(&prune.listed).1, bytes);
        assert!(!record("b".to_owned() + &"/b".repeat(50_000)));
        assert!(lock(&prune.listed).1 < 11_000);
    }
}
