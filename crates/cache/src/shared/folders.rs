//! The recent listings of object store folders.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;

use crate::fill::{FolderFailure, FolderListing};
use crate::object::PendingOutcome;

/// The outcome of reading a folder.
pub(crate) type FolderOutcome = Result<Arc<FolderListing>, FolderFailure>;

/// Folders of object stores, by key.
#[derive(Debug, Default)]
pub(crate) struct Folders(Mutex<HashMap<String, KnownFolder>>);

/// A folder.
#[derive(Debug, Default)]
struct KnownFolder {
    /// The latest listing, its time of arrival, and the latest expiry declared before the request.
    latest: Option<(Arc<FolderListing>, Instant, u64)>,
    /// The request in progress.
    pending: Option<Arc<PendingOutcome<FolderOutcome>>>,
}

impl KnownFolder {
    /// Returns the latest listing and its age, unless it is too old or expired.
    fn usable(
        &self,
        max_age: Duration,
        is_expired: impl Fn(u64) -> bool,
    ) -> Option<(Arc<FolderListing>, Duration)> {
        let (listing, since, epoch) = self.latest.as_ref()?;
        let age = since.elapsed();
        (age < max_age && !is_expired(*epoch)).then(|| (Arc::clone(listing), age))
    }
}

/// The state of a folder's listing.
pub(crate) enum FolderState {
    /// It was listed this long ago.
    Known(Arc<FolderListing>, Duration),
    /// It is being listed.
    Pending(Arc<PendingOutcome<FolderOutcome>>),
    /// It must be listed; the pending outcome has been registered.
    Unknown(Arc<PendingOutcome<FolderOutcome>>),
}

impl Folders {
    /// Returns the state of a folder; a listing is used for `fresh`, unless it or the request in
    /// progress `is_expired`. A new request, of this client, begins after the expiry `epoch`.
    pub(crate) fn look_up(
        &self,
        key: &str,
        fresh: Duration,
        epoch: u64,
        client: Option<IpAddr>,
        is_expired: impl Fn(u64) -> bool,
    ) -> FolderState {
        let mut folders = lock(&self.0);
        let folder = folders.entry(key.to_owned()).or_default();
        if let Some((listing, age)) = folder.usable(fresh, &is_expired) {
            return FolderState::Known(listing, age);
        }
        if let Some(pending) = folder.pending.as_ref().filter(|it| !is_expired(it.epoch)) {
            return FolderState::Pending(Arc::clone(pending));
        }
        let pending = Arc::new(PendingOutcome::new(epoch, client));
        FolderState::Unknown(Arc::clone(folder.pending.insert(pending)))
    }

    /// Returns the latest listing of a folder and its age, unless it is too old or expired.
    pub(crate) fn latest(
        &self,
        key: &str,
        max_age: Duration,
        is_expired: impl Fn(u64) -> bool,
    ) -> Option<(Arc<FolderListing>, Duration)> {
        lock(&self.0).get(key)?.usable(max_age, is_expired)
    }

    /// Ends a request for a folder. If another one has begun meanwhile, or the folder was
    /// forgotten, only the tasks that wait for this request get its outcome.
    pub(crate) fn finish(
        &self,
        key: &str,
        pending: &Arc<PendingOutcome<FolderOutcome>>,
        outcome: FolderOutcome,
    ) {
        let mut folders = lock(&self.0);
        if let Some(folder) = folders.get_mut(key)
            && folder.pending.take_if(|own| Arc::ptr_eq(own, pending)).is_some()
        {
            match &outcome {
                Ok(listing) => {
                    let latest = (Arc::clone(listing), Instant::now(), pending.epoch);
                    folder.latest = Some(latest);
                }
                Err(_) if folder.latest.is_none() => drop(folders.remove(key)),
                Err(_) => {}
            }
        }
        reduce(&mut folders);
        drop(folders);
        pending.finish(outcome);
    }

    /// Forgets a folder; returns whether it was known.
    pub(crate) fn forget(&self, key: &str) -> bool {
        let folder = lock(&self.0).remove(key);
        folder.is_some_and(|folder| folder.latest.is_some())
    }
}

/// Forgets the oldest listings until the others are within the limits.
fn reduce(folders: &mut HashMap<String, KnownFolder>) {
    let memory = |folder: &KnownFolder| folder.latest.as_ref().map_or(0, |(it, ..)| it.memory());
    let mut total: usize = folders.values().map(memory).sum();
    while total > MAX_MEMORY || folders.len() > MAX_FOLDERS {
        let known = folders.iter().filter(|(_, folder)| folder.pending.is_none());
        let oldest = known.min_by_key(|(_, folder)| folder.latest.as_ref().map(|(_, at, _)| *at));
        let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { return };
        total -= folders.remove(&oldest).map_or(0, |folder| memory(&folder));
    }
}

/// The maximum memory of all listings in bytes.
const MAX_MEMORY: usize = 64 << 20;

/// The maximum number of listings.
const MAX_FOLDERS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_from_before_a_folder_was_forgotten_is_not_kept() {
        let folders = Folders::default();
        let look_up = || folders.look_up("/", Duration::MAX, 0, None, |_| false);
        let FolderState::Unknown(before) = look_up() else { panic!() };
        assert!(matches!(look_up(), FolderState::Pending(_)));
        folders.forget("/");
        let FolderState::Unknown(after) = look_up() else { panic!() };
        let listing = |id| Ok(Arc::new(FolderListing { id, entries: Vec::new(), exists: true }));
        folders.finish("/", &before, listing(1));
        assert!(before.is_finished() && matches!(look_up(), FolderState::Pending(_)));
        folders.finish("/", &after, listing(2));
        assert!(matches!(look_up(), FolderState::Known(listing, _) if listing.id == 2));
        // A request from before an expiry is not joined, either.
        let FolderState::Unknown(_) = folders.look_up("/", Duration::MAX, 1, None, |it| it < 1)
        else {
            panic!()
        };
    }
}
