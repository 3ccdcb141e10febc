//! The file systems below the root of a site that are being searched for stale uploads, each by its
//! own thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Mutex;

use underpass_engine::wait::lock;

/// The devices that threads search, each with the paths at which its thread continues.
#[derive(Debug, Default)]
pub(crate) struct Searches(Mutex<HashMap<u64, Vec<Vec<u8>>>>);

/// How the search at a path begins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// A thread has to be started.
    New,
    /// The thread of this device searches there next.
    Queued,
    /// There are too many threads.
    TooMany,
}

impl Searches {
    /// Queues a path in the file system of a device for its thread.
    pub(crate) fn begin(&self, device: u64, path: &[u8]) -> Begun {
        let mut searches = lock(&self.0);
        let count = searches.len();
        match searches.entry(device) {
            Entry::Occupied(mut queued) => {
                let queued = queued.get_mut();
                if !queued.iter().any(|other| other == path) && queued.len() < MAX_QUEUED {
                    queued.push(path.to_vec());
                }
                Begun::Queued
            }
            Entry::Vacant(_) if count >= MAX_SEARCHES => Begun::TooMany,
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                Begun::New
            }
        }
    }

    /// Returns the path at which the thread of a device continues; `None` if it is to end.
    pub(crate) fn next(&self, device: u64) -> Option<Vec<u8>> {
        let mut searches = lock(&self.0);
        let next = searches.get_mut(&device).and_then(Vec::pop);
        if next.is_none() {
            searches.remove(&device);
        }
        next
    }

    /// Forgets a device whose thread could not be started.
    pub(crate) fn forget(&self, device: u64) {
        lock(&self.0).remove(&device);
    }
}

/// The maximum number of threads for one site. Further file systems are searched by the thread that
/// finds them.
const MAX_SEARCHES: usize = 16;

/// The maximum number of paths that are queued for a thread.
const MAX_QUEUED: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_one_thread_which_searches_all_that_is_queued() {
        let searches = Searches::default();
        assert_eq!(searches.begin(1, b"a"), Begun::New);
        assert_eq!(searches.begin(1, b"b"), Begun::Queued);
        assert_eq!(searches.begin(1, b"b"), Begun::Queued);
        assert_eq!(searches.next(1), Some(b"b".to_vec()));
        assert_eq!(searches.next(1), None);
        assert!((0..16).all(|device| searches.begin(device, b"a") == Begun::New));
        assert_eq!(searches.begin(16, b"a"), Begun::TooMany);
        searches.forget(3);
        assert_eq!(searches.begin(16, b"a"), Begun::New);
    }
}
