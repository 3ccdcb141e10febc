//! The objects in memory, and those that are leaving it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use underpass_engine::wait::lock;

use crate::key::{CacheKey, KeyDigest};
use crate::object::CachedObject;

/// The objects in memory.
#[derive(Debug, Default)]
pub(super) struct Objects(Mutex<ObjectsState>);

#[derive(Debug, Default)]
struct ObjectsState {
    present: HashMap<KeyDigest, Arc<CachedObject>>,
    /// Objects that are leaving memory. They stay here until their files are closed: opening them
    /// again would have to wait for that, and for the sync.
    leaving: HashMap<KeyDigest, Arc<CachedObject>>,
}

impl Objects {
    /// Returns an object that is in memory.
    pub(super) fn get(&self, digest: &KeyDigest) -> Option<Arc<CachedObject>> {
        let state = lock(&self.0);
        state.present.get(digest).or_else(|| state.leaving.get(digest)).cloned()
    }

    /// Returns all objects in memory.
    pub(super) fn all(&self) -> Vec<Arc<CachedObject>> {
        let state = lock(&self.0);
        state.present.values().chain(state.leaving.values()).cloned().collect()
    }

    /// Returns the object of a key, which may be new, and the objects that must leave memory, so
    /// that at most `max` stay. Each of these must be [released](Self::release).
    pub(super) fn get_or_insert(
        &self,
        key: &CacheKey,
        max: usize,
    ) -> (Arc<CachedObject>, Vec<KeyDigest>) {
        let mut state = lock(&self.0);
        if let Some(object) = state.present.get(key.digest()) {
            return (Arc::clone(object), Vec::new());
        }
        let mut forgotten = Vec::new();
        if state.present.len() >= max {
            let idle = state.present.iter().filter(|(_, object)| is_idle(object));
            forgotten.extend(idle.map(|(digest, _)| *digest).take(max / 8 + 1));
            let ObjectsState { present, leaving } = &mut *state;
            leaving.extend(forgotten.iter().filter_map(|digest| present.remove_entry(digest)));
        }
        let leaving = state.leaving.remove(key.digest());
        let object = leaving.unwrap_or_else(|| Arc::new(CachedObject::new(key.clone())));
        state.present.insert(*key.digest(), Arc::clone(&object));
        (object, forgotten)
    }

    /// Closes the files of an object that leaves memory, which may wait for the disk, unless the
    /// object is in use again.
    pub(super) fn release(&self, digest: &KeyDigest) {
        let mut state = lock(&self.0);
        let Some(object) = state.leaving.remove(digest) else { return };
        if is_idle(&object) {
            drop(state);
            drop(object);
        } else {
            state.present.insert(*digest, object);
        }
    }
}

/// Returns whether only the map refers to an object.
fn is_idle(object: &Arc<CachedObject>) -> bool {
    Arc::strong_count(object) == 1 && object.is_idle()
}
