//! Shares the helper threads of a worker among clients, so that one with files on an unresponsive
//! disk delays only itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

use underpass_protocol::request::ClientNet;

/// The shares of clients in the helper threads of a worker.
#[derive(Debug)]
pub(crate) struct HelperShares {
    /// The number of helpers that may work for one client.
    share: usize,
    clients: RefCell<HashMap<ClientNet, Arc<Semaphore>>>,
}

impl HelperShares {
    /// Creates the shares in this number of helpers, of which one client may have a quarter.
    pub(crate) fn new(helpers: usize) -> Self {
        Self { share: helpers.div_ceil(4), clients: RefCell::default() }
    }

    /// Has a helper do work for a client, as soon as the client has a place in its share. The place
    /// is taken until the work ends, even if nothing waits for it any more.
    ///
    /// # Errors
    ///
    /// The panic of the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: ClientNet,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed.
        let place = self.of(client).acquire_owned().await.ok();
        begin(place, work).await
    }

    /// Has a helper begin work for a client; `None` if all places of its share are taken.
    pub(crate) fn try_begin<T: Send + 'static>(
        &self,
        client: ClientNet,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let place = self.of(client).try_acquire_owned().ok()?;
        Some(begin(Some(place), work))
    }

    /// Returns the places of a client.
    fn of(&self, client: ClientNet) -> Arc<Semaphore> {
        let mut clients = self.clients.borrow_mut();
        if clients.len() >= FORGET_IDLE_FROM && !clients.contains_key(&client) {
            // Each permit, and each request that waits for one, holds a reference to the semaphore.
            clients.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let places = clients.entry(client).or_insert_with(|| Arc::new(Semaphore::new(self.share)));
        Arc::clone(places)
    }
}

/// Has a helper begin work, which ends with giving back the place.
fn begin<T: Send + 'static>(
    place: Option<OwnedSemaphorePermit>,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    spawn_blocking(move || {
        let _place = place;
        work()
    })
}

/// The number of clients from which on those without work are forgotten.
const FORGET_IDLE_FROM: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_client_has_a_quarter_of_the_helpers_until_its_work_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        let shares = HelperShares::new(8);
        runtime.block_on(async {
            let mut ends = Vec::new();
            let mut wait = || {
                let (end, is_over) = mpsc::channel::<()>();
                ends.push(end);
                // The sender that is dropped ends it.
                move || is_over.recv().unwrap_or_default()
            };
            let first = shares.try_begin(client(1), wait()).unwrap();
            // Nothing waits for the second one.
            drop(shares.try_begin(client(1), wait()).unwrap());
            assert!(shares.try_begin(client(1), || ()).is_none());
            shares.run(client(2), || ()).await.unwrap();
            ends.remove(0);
            first.await.unwrap();
            shares.run(client(1), || ()).await.unwrap();
            ends.clear();
        });
    }
}
