//! Requests other workers to close idle connections, because a worker sees only its own.

use std::sync::Mutex;

use tokio::sync::Notify;
use underpass_engine::wait::lock;

use underpass_protocol::request::ClientNet;

/// The requests to each worker.
#[derive(Debug)]
pub(crate) struct Evictions(Vec<EvictionRequest>);

#[derive(Debug, Default)]
struct EvictionRequest {
    /// The address whose connection is to be closed; `None` for any.
    of: Mutex<Option<ClientNet>>,
    bell: Notify,
}

impl Evictions {
    /// Creates the requests for a number of workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| EvictionRequest::default()).collect())
    }

    /// Requests all other workers to close a connection. Several requests before a worker acts
    /// count as one.
    pub(crate) fn request_others(&self, worker: usize, of: Option<ClientNet>) {
        let others = self.0.iter().enumerate().filter(|(index, _)| *index != worker);
        for (_, request) in others {
            *lock(&request.of) = of;
            request.bell.notify_one();
        }
    }

    /// Waits for a request to this worker; returns the address to close.
    pub(crate) async fn requested(&self, worker: usize) -> Option<ClientNet> {
        match self.0.get(worker) {
            Some(request) => {
                request.bell.notified().await;
                *lock(&request.of)
            }
            None => std::future::pending().await,
        }
    }
}
