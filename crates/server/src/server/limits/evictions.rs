//! Asks other workers to close idle connections: a worker sees only its own.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::server::limits::admission::Network;

/// What each worker is asked to close.
#[derive(Debug)]
pub(crate) struct Evictions(Vec<Asked>);

#[derive(Debug, Default)]
struct Asked {
    /// The address whose connection is to be closed; `None` is any.
    of: Mutex<Option<Network>>,
    bell: Notify,
}

impl Evictions {
    /// For so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Asked::default()).collect())
    }

    /// Asks all workers but this one. What is asked several times before it is done is done once.
    pub(crate) fn ask_others(&self, worker: usize, of: Option<Network>) {
        let others = self.0.iter().enumerate().filter(|(index, _)| *index != worker);
        for (_, asked) in others {
            *asked.of.lock().unwrap_or_else(PoisonError::into_inner) = of;
            asked.bell.notify_one();
        }
    }

    /// Waits until this worker is asked; returns the address that is meant.
    pub(crate) async fn asked(&self, worker: usize) -> Option<Network> {
        match self.0.get(worker) {
            Some(asked) => {
                asked.bell.notified().await;
                *asked.of.lock().unwrap_or_else(PoisonError::into_inner)
            }
            None => std::future::pending().await,
        }
    }
}
