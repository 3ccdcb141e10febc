//! Closes files that are not local on helper threads: close(2) may wait for a server or a program, too.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use underpass_engine::wait::lock;

use super::ServedFile;

/// The open files that are not local. Each is kept here until nothing else keeps it, so that no
/// worker closes one.
#[derive(Debug, Default)]
pub(crate) struct RemoteFiles {
    open: Mutex<Vec<Arc<OwnedFd>>>,
    /// Held by the helper that closes files, which may wait without end.
    closing: Mutex<()>,
}

impl RemoteFiles {
    /// Keeps a file and its compressed forms, if they are not local. Only helpers may call this.
    pub(crate) fn keep(&self, served: &ServedFile) {
        if served.is_local {
            return;
        }
        let packed = served.packed.iter().map(|(_, packed)| packed);
        let mut open = lock(&self.open);
        open.extend(packed.chain([served]).map(|one| Arc::clone(&one.file)));
        let are_many = open.len() >= MANY;
        drop(open);
        if are_many {
            self.close_unused();
        }
    }

    /// Returns whether none is open.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.open).is_empty()
    }

    /// Closes the files that nothing else keeps. Only helpers may call this.
    pub(crate) fn close_unused(&self) {
        let Ok(_closing) = self.closing.try_lock() else { return };
        let mut open = lock(&self.open);
        let is_used = |file: &Arc<OwnedFd>| Arc::strong_count(file) > 1;
        let (used, unused): (Vec<_>, Vec<_>) = open.drain(..).partition(is_used);
        *open = used;
        drop(open);
        // Others may open files meanwhile.
        drop(unused);
    }
}

/// The number of files from which unused ones are closed with the next that is opened.
const MANY: usize = 128;
