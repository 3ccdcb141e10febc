//! Closes remote files on helper threads: close(2) may wait for a file server or a program, too.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use underpass_engine::wait::lock;

use super::ServedFile;

/// The open files that are not local. Each is kept here until nothing else uses it, so that no
/// worker closes one.
#[derive(Debug, Default)]
pub(crate) struct RemoteFiles(Mutex<RemoteState>);

#[derive(Debug, Default)]
struct RemoteState {
    /// The files, each with the device of its file system.
    open: Vec<(u64, Arc<OwnedFd>)>,
    /// The devices whose files a helper is closing, which may take forever.
    closing: HashSet<u64>,
}

impl RemoteFiles {
    /// Keeps a file and its compressed forms, if they are not local. Only helpers may call this.
    pub(crate) fn keep(&self, served: &ServedFile) {
        if served.is_local {
            return;
        }
        served.with_packed().for_each(|one| self.keep_file(one.version.device(), &one.file));
    }

    /// Keeps a file of the file system on a device. Only helpers may call this.
    pub(crate) fn keep_file(&self, device: u64, file: &Arc<OwnedFd>) {
        let mut state = lock(&self.0);
        state.open.push((device, Arc::clone(file)));
        let are_many = state.open.len() >= CLOSE_UNUSED_FROM;
        drop(state);
        if are_many {
            self.close_unused();
        }
    }

    /// Returns whether no remote file is open.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).open.is_empty()
    }

    /// Closes the files that nothing else uses, one file system at a time, so that an unresponsive
    /// one blocks a single helper. Only helpers may call this.
    pub(crate) fn close_unused(&self) {
        loop {
            let mut state = lock(&self.0);
            let RemoteState { open, closing } = &mut *state;
            let is_unused = |device: u64, file: &Arc<OwnedFd>| {
                Arc::strong_count(file) == 1 && !closing.contains(&device)
            };
            let found = open.iter().find(|one| is_unused(one.0, &one.1)).map(|one| one.0);
            let Some(device) = found else { return };
            let unused: Vec<_> =
                open.extract_if(.., |one| one.0 == device && is_unused(one.0, &one.1)).collect();
            closing.insert(device);
            drop(state);
            // Other threads may open and close files while these are closed.
            drop(unused);
            lock(&self.0).closing.remove(&device);
        }
    }
}

/// The number of open files from which on opening another one closes the unused ones.
const CLOSE_UNUSED_FROM: usize = 128;
