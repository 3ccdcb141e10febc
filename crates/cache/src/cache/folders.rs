//! The folders of object stores.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use underpass_protocol::caching::{CacheStatus, Forward};

use super::Cache;
use crate::error::CacheErrorKind;
use crate::fill::{FolderFailure, FolderListing};
use crate::key::Key;
use crate::node::{Counters, FolderOutcome, FolderState, Node};
use crate::object::Pending;

/// The result of looking for a folder of an object store.
#[derive(Debug)]
pub struct FolderLookup {
    /// What is in it, or why that is not known.
    pub outcome: Result<Arc<FolderListing>, FolderFailure>,
    /// The age of the listing.
    pub age: Duration,
    /// How the cache handled the request.
    pub cache: CacheStatus,
}

impl Cache {
    /// Lists a folder of the object store, whose key ends in a slash. A listing is used for a short
    /// time, and concurrent requests for one folder share one. `client` is as that of
    /// [`ObjectRequest`](crate::ObjectRequest).
    pub async fn list(&self, folder: &Key, client: Option<IpAddr>) -> FolderLookup {
        let (node, key) = (&self.node, folder.as_str());
        let fresh = node.options.rules.fresh.map_or(MAX_FRESH, |fresh| fresh.min(MAX_FRESH));
        let is_expired =
            |listing: &FolderListing| node.expiry.covers(&folder.escaped(), listing.requested);
        let is_fresh = |listing: &FolderListing, age: Duration| age < fresh && !is_expired(listing);
        let (pending, is_own) = match node.folders.look_up(key, is_fresh) {
            FolderState::Known(listing, age) => {
                return FolderLookup { outcome: Ok(listing), age, cache: CacheStatus::default() };
            }
            FolderState::Pending(pending) => (pending, false),
            FolderState::Unknown(pending) => {
                self.request_folder(folder, &pending, client);
                (pending, true)
            }
        };
        if !is_own {
            Counters::add(&node.counters.collapsed, 1);
        }
        let outcome = pending.outcome().await;
        let cache = CacheStatus {
            forward: Some(Forward::UriMiss),
            is_collapsed: !is_own,
            ..CacheStatus::default()
        };
        let Err(failure) = &outcome else {
            let cache = CacheStatus { is_stored: true, forward_status: Some(200), ..cache };
            return FolderLookup { outcome, age: Duration::ZERO, cache };
        };
        let detail = Some(failure.error.kind().label());
        let is_usable = |age| age < fresh + node.options.rules.stale_if_error;
        let stale = node.folders.latest(key).filter(|(listing, age)| {
            failure.error.kind().is_transient() && is_usable(*age) && !is_expired(listing)
        });
        if let Some((listing, age)) = stale {
            let cache = CacheStatus { detail, ..CacheStatus::default() };
            return FolderLookup { outcome: Ok(listing), age, cache };
        }
        FolderLookup { outcome, age: Duration::ZERO, cache: CacheStatus { detail, ..cache } }
    }

    /// Requests a listing on another thread.
    fn request_folder(
        &self,
        folder: &Key,
        pending: &Arc<Pending<FolderOutcome>>,
        client: Option<IpAddr>,
    ) {
        let guard = FolderGuard {
            node: Arc::clone(&self.node),
            key: folder.clone(),
            pending: Arc::clone(pending),
        };
        // Without a permit, and if the pool is full, dropping the guard ends the request.
        let Some(permit) = self.node.clients.acquire(client) else { return };
        self.node.fills.run(move || {
            let node = &guard.node;
            let outcome = node.origins.list(&guard.key, &node.counters.requests).map(Arc::new);
            node.folders.finish(guard.key.as_str(), &guard.pending, outcome);
            drop(permit);
        });
    }

    /// Forgets the listing of a folder; returns whether there was one.
    #[must_use]
    pub fn forget_folder(&self, folder: &Key) -> bool {
        self.node.folders.forget(folder.as_str())
    }
}

/// Ends the request for a folder as failed when it is dropped without an outcome.
struct FolderGuard {
    node: Arc<Node>,
    key: Key,
    pending: Arc<Pending<FolderOutcome>>,
}

impl Drop for FolderGuard {
    fn drop(&mut self) {
        if !self.pending.is_finished() {
            let failure = CacheErrorKind::Busy.into();
            self.node.folders.finish(self.key.as_str(), &self.pending, Err(failure));
        }
    }
}

/// The maximum time for which a listing is used.
const MAX_FRESH: Duration = Duration::from_secs(60);
