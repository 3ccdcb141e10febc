//! Readers of objects, which get what is on the disk from there and the rest as it comes.

use std::future::poll_fn;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use crate::failure::Failure;
use crate::fill::{self, Relay};
use crate::generation::{Generation, Step};
use crate::node::Node;
use crate::object::Object;

/// A reader of an object.
#[derive(Debug)]
pub struct Reader {
    node: Arc<Node>,
    object: Arc<Object>,
    generation: Arc<Generation>,
    seen: u64,
    passed: String,
    client: Option<IpAddr>,
    /// The relay of what cannot be kept on the disk, if there is one.
    relay: Mutex<Option<Relay>>,
}

impl Reader {
    pub(super) fn new(
        node: Arc<Node>,
        object: Arc<Object>,
        generation: Arc<Generation>,
        (passed, client): (String, Option<IpAddr>),
        relay: Option<Relay>,
    ) -> Self {
        generation.enter();
        let seen = generation.failures();
        Self { node, object, generation, seen, passed, client, relay: Mutex::new(relay) }
    }

    /// Returns the file, in which each byte that has arrived is at its offset and stays as it is.
    #[must_use]
    pub fn file(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.generation.file)
    }

    /// Returns the pipe from which the next bytes are to be taken that [`arrive`](Self::arrive) has
    /// reported, if there was no room for them in the file.
    #[must_use]
    pub fn pipe(&self) -> Option<Arc<OwnedFd>> {
        self.relay().as_ref().map(Relay::pipe)
    }

    /// Returns how many bytes of a range are here already.
    #[must_use]
    pub fn present(&self, range: &Range<u64>) -> u64 {
        self.generation.count_in(range)
    }

    /// Notes that the disk has failed to read the file: the object is dropped, and fetched again by
    /// those who come.
    pub fn damaged(&self) {
        self.node.damaged(&self.object, &self.generation);
    }

    /// Returns whether the origin has stopped in the middle of a relay.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        let limit = self.node.options.timeout;
        self.relay().as_ref().is_some_and(|relay| relay.has_stalled(limit))
    }

    /// Waits until the byte `at` has arrived, and returns up to where all have, at most `end`. It
    /// has them fetched if nothing else does. It returns `at` itself where the object ends. What it
    /// reports has to be taken before the next call for later bytes.
    ///
    /// # Errors
    ///
    /// Why they will not come. Bytes of another version are no continuation of what was read.
    ///
    /// # On failure
    ///
    /// What it has reported before stays as it is: it is in the file, or in the pipe. The response
    /// has to end there, visibly.
    pub async fn arrive(&self, at: u64, end: u64) -> Result<u64, Failure> {
        poll_fn(|context| self.poll(at, end, context)).await
    }

    fn poll(&self, at: u64, end: u64, context: &Context<'_>) -> Poll<Result<u64, Failure>> {
        let mut relay = self.relay();
        if let Some(polled) = relay.as_ref().and_then(|it| it.poll(at..end, context.waker())) {
            return polled;
        }
        *relay = None;
        match self.generation.step(at, end, self.seen, context.waker()) {
            Step::Send(end) => Poll::Ready(Ok(end)),
            Step::Fail(Failure::NoRoom | Failure::Disk)
                if self.generation.version().is_some() && self.generation.broken().is_none() =>
            {
                let begun = match self.relayed() {
                    Ok(begun) => relay.insert(begun),
                    Err(failure) => return Poll::Ready(Err(failure)),
                };
                let hole = at..self.generation.hole_end(at, end);
                begun.poll(hole, context.waker()).unwrap_or(Poll::Ready(Ok(at)))
            }
            Step::Fail(failure) => Poll::Ready(Err(failure)),
            Step::Wait => Poll::Pending,
            Step::Begin(id, range) => {
                let (node, object) = (Arc::clone(&self.node), Arc::clone(&self.object));
                let (generation, passed) = (Arc::clone(&self.generation), self.passed.clone());
                let is_begun = self.node.clients.enter(self.client).is_some_and(|place| {
                    self.node.fills.run(move || {
                        fill::fill_hole(&node, &object, &generation, (id, range), &passed);
                        drop(place);
                    })
                });
                if is_begun {
                    return Poll::Pending;
                }
                // Others who wait for these bytes have places of their own.
                self.generation.end_fill(id, None);
                Poll::Ready(Err(Failure::Busy))
            }
        }
    }

    /// Begins a relay of bytes for which there is no room.
    fn relayed(&self) -> Result<Relay, Failure> {
        let (relay, writer) = Relay::new().map_err(|_| Failure::Busy)?;
        let (node, object) = (Arc::clone(&self.node), Arc::clone(&self.object));
        let (generation, passed) = (Arc::clone(&self.generation), self.passed.clone());
        let place = self.node.relaying.enter(self.client).ok_or(Failure::Busy)?;
        let job = move || {
            fill::relay(&node, &object, &generation, (writer, None), &passed);
            drop(place);
        };
        if self.node.relays.run(job) { Ok(relay) } else { Err(Failure::Busy) }
    }

    fn relay(&self) -> MutexGuard<'_, Option<Relay>> {
        self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.generation.leave();
    }
}
