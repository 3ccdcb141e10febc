//! The folders of object stores.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use underpass_protocol::caching::{CacheStatus, Forward};

use super::Cache;
use crate::error::CacheErrorKind;
use crate::fill::{FolderFailure, FolderListing};
use crate::key::CacheKey;
use crate::object::PendingOutcome;
use crate::shared::{CacheState, Counters, FolderOutcome, FolderState};

/// The result of listing a folder of an object store.
#[derive(Debug)]
pub struct FolderLookup {
    /// Its entries, or the reason why they are not known.
    pub outcome: Result<Arc<FolderListing>, FolderFailure>,
    /// The age of the listing.
    pub age: Duration,
    /// How the cache handled the request.
    pub cache: CacheStatus,
}

impl Cache {
    /// Lists a folder of the object store, whose key ends in a slash. A listing is reused for a
    /// short time, and concurrent requests for one folder share one. `client` is that of
    /// [`ObjectRequest`](crate::ObjectRequest), and `sleep` that of [`find`](Self::find).
    pub async fn list<S: Future<Output = ()>>(
        &self,
        folder: &CacheKey,
        client: Option<IpAddr>,
        sleep: impl Fn(Duration) -> S,
    ) -> FolderLookup {
        let (shared, key) = (&self.shared, folder.as_str());
        let fresh = shared.options.rules.fresh.map_or(MAX_FRESH, |fresh| fresh.min(MAX_FRESH));
        let is_expired = |epoch| shared.expiry.covers(&folder.escaped(), epoch);
        let epoch = shared.expiry.newest();
        let (pending, is_own) = match shared.folders.look_up(key, fresh, epoch, client, is_expired)
        {
            FolderState::Known(listing, age) => {
                return FolderLookup { outcome: Ok(listing), age, cache: CacheStatus::default() };
            }
            FolderState::Pending(pending) => {
                shared.join(&pending.owner, client);
                (pending, false)
            }
            FolderState::Unknown(pending) => {
                self.request_folder(folder, &pending, client);
                (pending, true)
            }
        };
        if !is_own {
            Counters::add(&shared.counters.collapsed, 1);
        }
        let outcome = pending.outcome_within(shared.options.timeout, sleep).await;
        let outcome = outcome.unwrap_or_else(|| Err(CacheErrorKind::Busy.into()));
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
        let rules = &shared.options.rules;
        if failure.error.kind().is_transient()
            && let Some((listing, age)) =
                shared.folders.latest(key, fresh + rules.stale_if_error, is_expired)
        {
            let cache = CacheStatus { detail, ..CacheStatus::default() };
            return FolderLookup { outcome: Ok(listing), age, cache };
        }
        FolderLookup { outcome, age: Duration::ZERO, cache: CacheStatus { detail, ..cache } }
    }

    /// Requests a listing on another thread.
    fn request_folder(
        &self,
        folder: &CacheKey,
        pending: &Arc<PendingOutcome<FolderOutcome>>,
        client: Option<IpAddr>,
    ) {
        let guard = FolderGuard {
            shared: Arc::clone(&self.shared),
            key: folder.clone(),
            pending: Arc::clone(pending),
        };
        // If there is no permit or the pool is full, dropping the guard ends the request.
        let Some(permit) = self.shared.clients.acquire(client) else { return };
        self.shared.validations.run_for(&pending.owner, move || {
            let shared = &guard.shared;
            let note = |origin: &str, why: &str| shared.origin_failed(&guard.key, origin, why);
            let outcome = shared.origins.list(&guard.key, &shared.counters.requests, &note);
            let outcome = outcome.map(Arc::new);
            shared.folders.finish(guard.key.as_str(), &guard.pending, outcome);
            drop(permit);
        });
    }

    /// Forgets the listing of a folder; returns whether there was one.
    #[must_use]
    pub fn forget_folder(&self, folder: &CacheKey) -> bool {
        self.shared.folders.forget(folder.as_str())
    }
}

/// Ends the request for a folder as failed if dropped without an outcome.
struct FolderGuard {
    shared: Arc<CacheState>,
    key: CacheKey,
    pending: Arc<PendingOutcome<FolderOutcome>>,
}

impl Drop for FolderGuard {
    fn drop(&mut self) {
        if !self.pending.is_finished() {
            let failure = CacheErrorKind::Busy.into();
            self.shared.folders.finish(self.key.as_str(), &self.pending, Err(failure));
        }
    }
}

/// The maximum time for which a listing is reused.
const MAX_FRESH: Duration = Duration::from_secs(60);
