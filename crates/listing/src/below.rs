//! Walks a folder and all folders below it, for a search or to measure them.
//!
//! A tree may be of any size, and any client may request this. So a walk has limits on its entries,
//! its time and its depth, holds the names of one read per level, and reports whether it was cut.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use underpass_protocol::listing::{Format, ListingQuery};

use super::Listing;
use super::entry::Entries;
use super::format::form::{Incomplete, PageCounts};
use super::scan::{BUF_LEN, Scan, ScannedEntry, check_exists, complete, reopen};
use super::text::search_key;

/// The maximum number of entries that a search finds.
const MAX_FOUND: usize = 1_000;

/// The result of a search.
pub(super) struct Hits {
    /// The entries, in the order of the listing. Their names are paths relative to its folder.
    pub(super) found: Vec<ScannedEntry<'static>>,
    /// The reason why there may be more.
    pub(super) incomplete: Option<Incomplete>,
}

/// Finds the entries of a folder and all below it whose names contain the searched word.
pub(super) fn search(listing: &Listing<'_>) -> io::Result<Hits> {
    let word = search_key(listing.query.search.as_deref().unwrap_or_default());
    let limit = listing.query.limit.map_or(MAX_FOUND, |limit| limit.min(MAX_FOUND));
    let mut found = Vec::new();
    let (mut is_full, mut is_unread) = (false, false);
    let is_whole = walk(listing, |folder, entry| {
        if !search_key(&String::from_utf8_lossy(&entry.name)).contains(&word) {
            return ControlFlow::Continue(());
        }
        if found.len() == limit {
            is_full = true;
            return ControlFlow::Break(());
        }
        let read = complete(folder, &entry);
        is_unread |= read.is_err();
        if let Ok(Some(known)) = read {
            let path = folder.path_of(&entry.name);
            let above = listing.path.len() + usize::from(!listing.path.is_empty());
            found.push(ScannedEntry {
                name: path[above..].to_vec().into(),
                is_symlink: known.is_symlink,
                is_folder: known.attributes.is_folder(),
                attributes: Some(known.attributes),
            });
        }
        ControlFlow::Continue(())
    })?;
    let order = listing.query.order;
    found.sort_unstable_by(|a, b| order.compare(&a.place(order.key), &b.place(order.key)));
    let incomplete = match (is_full, is_whole) {
        (true, _) => Some(Incomplete::Limit(limit as u64)),
        (false, is_whole) => (!is_whole || is_unread).then_some(Incomplete::Walk),
    };
    Ok(Hits { found, incomplete })
}

/// Counts the entries of a folder and all below it. Links are not followed and have no size.
pub(super) fn measure(listing: &Listing<'_>) -> io::Result<(PageCounts, Option<Incomplete>)> {
    let mut tally = PageCounts::default();
    let mut is_unread = false;
    let is_whole = walk(listing, |folder, entry| {
        match complete(folder, &entry) {
            Ok(Some(known)) if !known.is_symlink => tally.add(&known),
            read => is_unread |= read.is_err(),
        }
        ControlFlow::Continue(())
    })?;
    Ok((tally, (!is_whole || is_unread).then_some(Incomplete::Walk)))
}

/// The folder being read, or an ancestor of it.
struct FolderLevel {
    folder: Arc<OwnedFd>,
    /// The path of the folder below the root.
    path: Vec<u8>,
    scan: Scan,
    /// The subfolders that were found by the last read and not entered yet.
    pending: Vec<Vec<u8>>,
    is_read: bool,
}

/// Calls `visit` for each visible entry, with its folder, until it breaks; returns whether all were
/// visited.
fn walk(
    listing: &Listing<'_>,
    mut visit: impl FnMut(&Listing<'_>, ScannedEntry<'_>) -> ControlFlow<()>,
) -> io::Result<bool> {
    let until = Instant::now() + MAX_TIME;
    let mut is_whole = true;
    let mut visited = 0;
    let Entries::Folder { folder, root } = listing.entries else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let top = folder;
    let mut levels = vec![level(reopen(folder)?, listing.path.to_vec())];
    while let Some(current) = levels.last_mut() {
        if visited >= MAX_VISITED || Instant::now() > until || !(listing.is_wanted)() {
            return Ok(false);
        }
        if let Some(name) = current.pending.pop() {
            let path = [&current.path, &b"/"[..usize::from(!current.path.is_empty())], &name];
            let path = path.concat();
            match openat(&*current.folder, &*name, FOLDER, Mode::empty()) {
                _ if levels.len() >= MAX_DEPTH => is_whole = false,
                Ok(folder) => levels.push(level(folder, path)),
                // It was removed or replaced meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => is_whole = false,
            }
        } else if current.is_read {
            levels.pop();
        } else {
            let FolderLevel { folder, path, scan, pending, is_read } = current;
            let query = ListingQuery { format: Format::Size, ..ListingQuery::default() };
            let entries = Entries::Folder { folder: folder.as_fd(), root };
            let inside = Listing { entries, path, query, ..listing.clone() };
            let mut has_ended = false;
            let step = scan.step(&inside, BUF_LEN, |found| {
                visited += 1;
                if found.is_folder && !found.is_symlink {
                    pending.push(found.name.to_vec());
                }
                let flow = visit(&inside, found);
                has_ended = flow.is_break();
                Ok(flow)
            });
            match step {
                Ok(_) if has_ended => return Ok(false),
                Ok(step) => *is_read = step.is_break(),
                Err(error) => {
                    // `ENOENT` means that the folder was removed while it was read.
                    is_whole &= Errno::from_io_error(&error) == Some(Errno::NOENT);
                    *is_read = true;
                }
            }
        }
    }
    // If the top folder was removed, an empty rest would look complete.
    check_exists(top)?;
    Ok(is_whole)
}

/// Returns the level of an open folder, before its first entry.
fn level(folder: OwnedFd, path: Vec<u8>) -> FolderLevel {
    let folder = Arc::new(folder);
    let scan = Scan::of(&folder);
    FolderLevel { folder, path, scan, pending: Vec::new(), is_read: false }
}

const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The maximum number of entries that one walk reads: as many as an archive may have.
const MAX_VISITED: usize = 1_000_000;

/// The maximum duration of a walk.
const MAX_TIME: Duration = Duration::from_secs(5);

/// The maximum nesting of folders, each of which stays open while those below it are read.
const MAX_DEPTH: usize = 100;
