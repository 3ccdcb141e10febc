//! The listings of folders that object stores have sent lately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;

use crate::fill::{FolderFailure, FolderListing};
use crate::object::PendingOutcome;

/// The outcome of reading a folder.
pub(crate) type FolderOutcome = Result<Arc<FolderListing>, FolderFailure>;

/// Folders of object stores, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<HashMap<String, KnownFolder>>);

/// A folder.
#[derive(Debug, Default)]
struct KnownFolder {
    /// The latest listing, and when it came.
    latest: Option<(Arc<FolderListing>, Instant)>,
    /// The request in progress.
    pending: Option<Arc<PendingOutcome<FolderOutcome>>>,
}

/// The state of a folder's listing.
pub(crate) enum FolderState {
    /// It was listed this long ago.
    Known(Arc<FolderListing>, Duration),
    /// It is being listed.
    Pending(Arc<PendingOutcome<FolderOutcome>>),
    /// It has to be listed, for which this was noted.
    Unknown(Arc<PendingOutcome<FolderOutcome>>),
}

impl Folders {
    /// Returns what is known of a folder; a listing counts if `is_fresh`.
    pub(crate) fn look_up(
        &self,
        key: &str,
        is_fresh: impl Fn(&FolderListing, Duration) -> bool,
    ) -> FolderState {
        let mut folders = lock(&self.0);
        let folder = folders.entry(key.to_owned()).or_default();
        if let Some((listing, since)) = &folder.latest
            && is_fresh(listing, since.elapsed())
        {
            return FolderState::Known(Arc::clone(listing), since.elapsed());
        }
        if let Some(pending) = &folder.pending {
            return FolderState::Pending(Arc::clone(pending));
        }
        FolderState::Unknown(Arc::clone(folder.pending.insert(Arc::default())))
    }

    /// Returns the latest listing, which may be stale, and its age.
    pub(crate) fn latest(&self, key: &str) -> Option<(Arc<FolderListing>, Duration)> {
        let folders = lock(&self.0);
        let (listing, since) = folders.get(key)?.latest.as_ref()?;
        Some((Arc::clone(listing), since.elapsed()))
    }

    /// Ends a request for a folder.
    pub(crate) fn finish(
        &self,
        key: &str,
        pending: &PendingOutcome<FolderOutcome>,
        outcome: FolderOutcome,
    ) {
        let mut folders = lock(&self.0);
        let folder = folders.entry(key.to_owned()).or_default();
        folder.pending = None;
        match &outcome {
            Ok(listing) => folder.latest = Some((Arc::clone(listing), Instant::now())),
            Err(_) if folder.latest.is_none() => drop(folders.remove(key)),
            Err(_) => {}
        }
        reduce(&mut folders);
        drop(folders);
        pending.finish(outcome);
    }

    /// Forgets a folder; returns whether it was known.
    pub(crate) fn forget(&self, key: &str) -> bool {
        let mut folders = lock(&self.0);
        folders.get_mut(key).is_some_and(|folder| folder.latest.take().is_some())
    }
}

/// Forgets the oldest listings until the others are within the bounds.
fn reduce(folders: &mut HashMap<String, KnownFolder>) {
    let memory = |folder: &KnownFolder| folder.latest.as_ref().map_or(0, |(it, _)| it.memory());
    let mut total: usize = folders.values().map(memory).sum();
    while total > MAX_MEMORY || folders.len() > MAX_FOLDERS {
        let known = folders.iter().filter(|(_, folder)| folder.pending.is_none());
        let oldest = known.min_by_key(|(_, folder)| folder.latest.as_ref().map(|(_, at)| *at));
        let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
        total -= folders.remove(&oldest).map_or(0, |folder| memory(&folder));
    }
}

/// The maximum memory of all listings in bytes.
const MAX_MEMORY: usize = 64 << 20;

/// The maximum number of listings.
const MAX_FOLDERS: usize = 1024;
