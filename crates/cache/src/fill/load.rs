//! Loads objects that an earlier process has stored.

use std::sync::Arc;
use std::time::Duration;

use underpass_protocol::caching::Use;

use super::fetch::fetch;
use super::request::ObjectRequest;
use crate::error::{CacheError, CacheErrorKind};
use crate::object::{FetchGuard, FetchOutcome, PendingFetch};
use crate::ranges::RangeSet;
use crate::shared::{CacheState, Counters, Permit};
use crate::store::{LoadedFile, is_shortage, journal_unit, units};
use crate::version::ObjectVersion;

/// Loads an object that an earlier process stored; fetches it from the origin if there is no usable
/// one.
pub(crate) fn load(
    shared: &Arc<CacheState>,
    guard: FetchGuard,
    wanted: ObjectRequest,
    permit: Permit,
) {
    let object = &guard.object;
    let digest = object.key.digest();
    let origins = &shared.origins.names;
    let files = object.lock_files();
    // Another request may have loaded it meanwhile, after an expiry or a purge. Its file is locked
    // as long as it is in memory.
    let is_loaded = object.state().is_loaded;
    let load = || shared.folder.load(digest, object.key.as_str(), origins);
    let loaded = match if is_loaded { Ok(None) } else { load() } {
        Ok(loaded) => loaded,
        // The next request can load it; a fetch would need descriptors, too.
        Err(error) if is_shortage(&error) => {
            let error = CacheError::new(CacheErrorKind::Busy, error);
            return guard.finish(FetchOutcome::Failed(error, Some(SHORTAGE_WAIT)));
        }
        // The disk has failed.
        Err(_) => {
            Counters::add(&shared.counters.damaged, 1);
            shared.quota.mark_damaged();
            None
        }
    };
    if let Some(LoadedFile { file, journal, contents }) = loaded {
        let is_synced = contents.is_synced();
        let present: RangeSet = contents.present.into_iter().collect();
        let mut units = units(digest, contents.subject.size, present.iter());
        units.push(journal_unit(digest, &contents.subject));
        shared.quota.add_existing(digest, &units);
        let file = Arc::new(file.into());
        let version = ObjectVersion::new(file, contents.subject, Some(journal), present);
        if !is_synced {
            version.mark_dirty();
        }
        object.state().current = Some(Arc::new(version));
    }
    let current = {
        let mut state = object.state();
        state.is_loaded = true;
        state.current.clone()
    };
    drop(files);
    match current {
        Some(current) => match shared.usage(&object.key, &current) {
            Use::Fresh => guard.finish(FetchOutcome::Loaded(current, None)),
            Use::WhileRevalidating => {
                guard.finish(FetchOutcome::Loaded(current, Some("revalidating")));
                revalidate(shared, &guard, &wanted, permit);
            }
            _ => run_fetch(shared, guard, wanted, permit, true),
        },
        None => run_fetch(shared, guard, wanted, permit, false),
    }
}

/// Validates an object that was loaded and may be used meanwhile, unless another request does so.
fn revalidate(
    shared: &Arc<CacheState>,
    loaded: &FetchGuard,
    wanted: &ObjectRequest,
    permit: Permit,
) {
    let object = Arc::clone(&loaded.object);
    let pending = Arc::new(PendingFetch::new(loaded.pending.epoch, wanted.client));
    {
        let mut state = object.state();
        if state.pending.is_some() {
            return;
        }
        state.pending = Some(Arc::clone(&pending));
    }
    let wanted = ObjectRequest { range: None, ..wanted.clone() };
    run_fetch(shared, FetchGuard { object, pending }, wanted, permit, true);
}

fn run_fetch(
    shared: &Arc<CacheState>,
    guard: FetchGuard,
    wanted: ObjectRequest,
    permit: Permit,
    has_version: bool,
) {
    let (for_job, owner) = (Arc::clone(shared), guard.pending.owner.clone());
    shared.run_fetch(has_version, owner, permit, move || fetch(&for_job, &guard, &wanted));
}

/// How long clients are asked to wait when there are too many open files.
const SHORTAGE_WAIT: Duration = Duration::from_secs(1);
