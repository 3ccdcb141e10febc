//! Creates the version to which a response is written, and its files.

use std::io;
use std::sync::{Arc, MutexGuard};
use std::time::SystemTime;

use underpass_client::Response;
use underpass_client::download::interpret::StrongValidator;

use super::Fetch;
use crate::error::CacheErrorKind;
use crate::ranges::RangeSet;
use crate::shared::is_full;
use crate::store::{StoredHead, is_of_content, is_shortage, millis, stored_fields};
use crate::version::ObjectVersion;

impl Fetch<'_> {
    /// Returns the metadata of an object from a response.
    pub(super) fn head(&self, response: &Response, size: Option<u64>) -> StoredHead {
        let mut fields = stored_fields(response);
        fields.retain(|(name, _)| response.status != 206 || !is_of_content(name));
        StoredHead {
            key: self.object().key.as_str().to_owned(),
            origins: self.shared.origins.names.clone(),
            body: String::new(),
            inode: 0,
            validator: StrongValidator::of(response),
            size,
            fields,
            requested: millis(self.requested),
            received: millis(SystemTime::now()),
            epoch: self.epoch(),
        }
    }

    /// Creates a version, if necessary after restoring the folder or evicting other objects. The
    /// files of a stored version stay locked until it is in place.
    ///
    /// # Errors
    ///
    /// The reason why the body is relayed.
    pub(super) fn create_or_evict(
        &self,
        response: &Response,
        size: Option<u64>,
        is_stored: bool,
    ) -> Created<'_, CacheErrorKind> {
        let create = || self.create(response, size, is_stored);
        let mut created = match create() {
            Err(_) if self.shared.restore_folder() => create(),
            created => created,
        };
        for _ in 0..MAX_EVICTED_FOR_FILES {
            match &created {
                Err(error) if is_stored && is_full(error) && self.shared.evict(1) => {
                    created = create();
                }
                _ => break,
            }
        }
        self.shared.note_stored(created.as_ref().map(drop));
        created.map_err(|error| match error {
            error if is_full(&error) || is_shortage(&error) => CacheErrorKind::NoRoom,
            _ => CacheErrorKind::Disk,
        })
    }

    fn create(&self, response: &Response, size: Option<u64>, is_stored: bool) -> Created<'_> {
        let mut head = self.head(response, size);
        let digest = self.object().key.digest();
        let nothing = RangeSet::default();
        if !is_stored {
            let file = self.shared.folder.create_unnamed(digest, &mut head)?;
            return Ok((ObjectVersion::new(Arc::new(file.into()), head, None, nothing), None));
        }
        let files = self.object().lock_files();
        // The new journal has the same name, so the old one must no longer be written.
        if let Some(before) = self.object().current() {
            before.detach();
        }
        let kept = self.shared.folder.create(digest, head)?;
        let (file, head) = (Arc::new(kept.file.into()), kept.journal.subject());
        Ok((ObjectVersion::new(file, head, Some(kept.journal), nothing), Some(files)))
    }
}

/// A new version, and the lock on its files if it is stored.
pub(super) type Created<'o, E = io::Error> = Result<(ObjectVersion, Option<MutexGuard<'o, ()>>), E>;

/// The maximum number of objects that are evicted to free inodes for the files of another one.
const MAX_EVICTED_FOR_FILES: u32 = 4;
