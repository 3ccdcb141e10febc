//! Removes objects and versions from the disk and from memory.

use std::io;
use std::sync::Arc;

use underpass_protocol::caching::Use;

use super::{CacheState, Counters, with_versions};
use crate::error::CacheErrorKind;
use crate::key::KeyDigest;
use crate::object::CachedObject;
use crate::version::ObjectVersion;

impl CacheState {
    /// Removes an object from the disk and from memory; returns whether there was one. Its readers
    /// still get all of it.
    pub(crate) fn remove(&self, digest: &KeyDigest) -> io::Result<bool> {
        let object = self.objects.get(digest);
        let _files = object.as_ref().map(|object| object.lock_files());
        self.remove_locked(digest, object.as_deref())
    }

    /// Does the same with an object, if in memory, whose files are locked by the caller.
    pub(super) fn remove_locked(
        &self,
        digest: &KeyDigest,
        object: Option<&CachedObject>,
    ) -> io::Result<bool> {
        let was_open = object.is_some_and(|object| object.detach());
        let was_counted = self.quota.removed(digest) > 0;
        Ok(self.folder.remove(digest)? || was_open || was_counted)
    }

    /// Removes an object that the origin no longer has, or not for all clients: it must not
    /// reappear after a power failure.
    pub(crate) fn withdraw(&self, digest: &KeyDigest) {
        if self.remove(digest).unwrap_or(true) {
            // If the disk fails, nothing more can be done.
            let _ = self.folder.sync_removal(digest);
        }
    }

    /// Removes an unusable version of an object, unless it was replaced already.
    pub(crate) fn discard(
        &self,
        object: &CachedObject,
        version: &Arc<ObjectVersion>,
        why: CacheErrorKind,
    ) {
        let dropped = object.drop_version(version, why);
        self.keep_restored(object, dropped.restored);
        if dropped.was_stored {
            self.remove_version(object, version);
        }
    }

    /// Counts the room of a version that is served again although its file has no name. Without
    /// room, it is not served.
    fn keep_restored(&self, object: &CachedObject, restored: Option<Arc<ObjectVersion>>) {
        // It may have been restored before.
        let Some(restored) = restored.filter(|restored| !restored.holds_room()) else { return };
        match self.quota.keep_unnamed(restored.count(), &self.folder.objects()) {
            Some(room) => restored.hold(room),
            None => object.drop_restored(&restored),
        }
    }

    /// Drops restored versions that may not be used any more, or all if the disk lacks space although
    /// other objects were evicted.
    pub(crate) fn drop_restored(&self) {
        let lacks_space = self.quota.lacks_space(&self.folder.objects());
        for (object, version) in with_versions(self.objects.all()) {
            let is_useful = || {
                self.usage(&object.key, &version) != Use::AfterValidation
                    || self.is_usable_on_error(&object.key, &version)
            };
            if version.holds_room()
                && !version.is_stored()
                && !version.is_busy()
                && (lacks_space || !is_useful())
            {
                object.drop_restored(&version);
            }
        }
    }

    /// Removes the files of a version, unless they were replaced already.
    fn remove_version(&self, object: &CachedObject, version: &ObjectVersion) {
        let digest = object.key.digest();
        let files = object.lock_files();
        let is_removed = self.folder.remove_version(digest, &version.head().body);
        drop(files);
        if is_removed {
            let _ = self.folder.sync_removal(digest);
        }
        // If another version was put in place meanwhile, its units are in the books already, unless
        // it is not stored.
        if is_removed && object.current().is_none_or(|current| !current.is_stored()) {
            self.quota.removed(digest);
        }
    }

    /// Drops a version after a read error. After repeated failures nothing is stored for a while.
    pub(crate) fn mark_damaged(
        self: &Arc<Self>,
        object: &Arc<CachedObject>,
        version: &Arc<ObjectVersion>,
    ) {
        let dropped = object.drop_version(version, CacheErrorKind::Disk);
        self.keep_restored(object, dropped.restored);
        if !dropped.was_stored {
            return;
        }
        Counters::add(&self.counters.damaged, 1);
        self.quota.mark_damaged();
        let (shared, object) = (Arc::clone(self), Arc::clone(object));
        let version = Arc::clone(version);
        self.loads.run(move || shared.remove_version(&object, &version));
    }
}
