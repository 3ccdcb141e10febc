//! Folders laid out as archives, kept for the moment in which a client asks for many ranges.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::files::LIFETIME;
use super::shared::Shared;
use crate::archive::{ArchiveError, Layout, WalkOptions, walk};

/// Archives laid out a moment ago.
#[derive(Debug, Default)]
pub(super) struct Layouts {
    kept: Mutex<HashMap<Vec<u8>, (Instant, Kept)>>,
}

/// An archive and the folder that it is of.
pub(super) type Kept = (Arc<Layout>, Arc<OwnedFd>);

impl Layouts {
    /// The archive of a folder, if it was laid out a moment ago. A file that was changed since
    /// then breaks the transfer off, so that this cannot mix two versions.
    pub(super) fn get(&self, path: &[u8]) -> Option<Kept> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (made, _)| made.elapsed() < LIFETIME);
        kept.get(path).map(|(_, kept)| kept.clone())
    }

    /// Forgets all of them: names were changed.
    pub(super) fn forget_all(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn put(&self, path: &[u8], made: &Kept) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(path.to_vec(), (Instant::now(), made.clone()));
    }
}

/// Lays out the archive of a folder. May wait for the disk.
pub(super) fn lay_out(shared: &Shared, path: &[u8], folder: OwnedFd) -> Result<Kept, ArchiveError> {
    if let Some(kept) = shared.layouts.get(path) {
        return Ok(kept);
    }
    let options = WalkOptions {
        top: path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(),
        base: path,
        shows_hidden: shared.settings.shows_hidden,
        hides: &|path, _| shared.root.hides(path),
        ..WalkOptions::default()
    };
    let layout = walk(&folder, &options)?;
    let made = (Arc::new(layout), Arc::new(folder));
    shared.layouts.put(path, &made);
    Ok(made)
}
