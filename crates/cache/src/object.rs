//! One object: what is known of it now, and the question to the origin that is under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::fill::{Relay, Reply};
use crate::generation::Generation;
use crate::key::Key;

/// One object.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) key: Key,
    state: Mutex<ObjectState>,
}

/// What is known of an object.
#[derive(Debug, Default)]
pub(crate) struct ObjectState {
    /// The version that is served.
    pub(crate) current: Option<Arc<Generation>>,
    /// The question under way, which others wait for.
    pub(crate) contact: Option<Arc<Contact>>,
    /// What the origin says instead of an object.
    pub(crate) reply: Option<Arc<Reply>>,
    /// Until when it is known that each client has to ask for itself.
    pub(crate) private_until: Option<Instant>,
    /// Until when it is known that there is no room for it, so that each client asks for itself.
    pub(crate) no_room_until: Option<Instant>,
    /// Whether the disk was looked at.
    pub(crate) is_loaded: bool,
}

impl Object {
    pub(crate) fn new(key: Key) -> Self {
        Self { key, state: Mutex::default() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ObjectState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the version that is served.
    pub(crate) fn current(&self) -> Option<Arc<Generation>> {
        self.state().current.clone()
    }

    /// Puts a version in the place of the one that was served, whose readers go on with what is
    /// there.
    pub(crate) fn replace(&self, generation: Option<Arc<Generation>>, why: Failure) -> bool {
        let before = {
            let mut state = self.state();
            state.reply = None;
            std::mem::replace(&mut state.current, generation)
        };
        before.map(|before| before.retire(why)).is_some()
    }

    /// Takes away the version that was served. Its readers still get all of it. Returns whether there
    /// was one.
    pub(crate) fn detach(&self) -> bool {
        let before = self.state().current.take();
        before.as_ref().map(|before| before.detach()).is_some()
    }

    /// Removes a version, unless another one has taken its place. Returns whether it was stored.
    pub(crate) fn drop_generation(&self, generation: &Arc<Generation>, why: Failure) -> bool {
        let was_stored = generation.retire(why);
        let mut state = self.state();
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, generation)) {
            state.current = None;
        }
        was_stored
    }

    /// Ends a question.
    pub(crate) fn finish(&self, contact: &Arc<Contact>, outcome: Outcome) {
        {
            let mut state = self.state();
            if state.contact.as_ref().is_some_and(|known| Arc::ptr_eq(known, contact)) {
                state.contact = None;
            }
        }
        contact.finish(outcome);
    }

    /// Returns whether nothing refers to it, so that it can be forgotten.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.state();
        state.contact.is_none()
            && state.current.as_ref().is_none_or(|current| {
                current.readers() == 0 && !current.is_filling() && Arc::strong_count(current) == 1
            })
    }
}

/// A question to the origin, with those who wait for its outcome.
#[derive(Debug, Default)]
pub(crate) struct Contact(Mutex<ContactState>);

#[derive(Debug, Default)]
struct ContactState {
    outcome: Option<Outcome>,
    wakers: Vec<Waker>,
}

/// A relay for the reader that caused the request.
pub(crate) type Offer = Arc<Mutex<Option<Relay>>>;

/// The outcome of a question.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// It was stored by an earlier process.
    Loaded(Arc<Generation>),
    /// The origin has sent this version, with this status.
    Sent(Arc<Generation>, u16),
    /// The origin has sent this version, with this status. There is no room for it: it is for the
    /// one who asked.
    Relayed(Arc<Generation>, u16, Offer),
    /// What is stored is still valid, says the origin with this status.
    Valid(Arc<Generation>, u16),
    /// What is stored is stale, and may be used although the origin failed.
    Stale(Arc<Generation>, Failure),
    /// The origin has sent an answer that is no object.
    Reply(Arc<Reply>),
    /// There is no answer.
    Failed(Failure, Option<Duration>),
}

impl Contact {
    fn finish(&self, outcome: Outcome) {
        let wakers = {
            let mut state = self.lock();
            state.outcome.get_or_insert(outcome);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns the outcome once there is one.
    pub(crate) fn outcome(&self) -> impl Future<Output = Outcome> + '_ {
        Waiting(self)
    }

    fn lock(&self) -> MutexGuard<'_, ContactState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the outcome of a question.
struct Waiting<'c>(&'c Contact);

impl Future for Waiting<'_> {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.clone()),
            None => {
                if !state.wakers.iter().any(|known| known.will_wake(context.waker())) {
                    state.wakers.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }
}

/// Ends a question as failed if nothing else has ended it.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) object: Arc<Object>,
    pub(crate) contact: Arc<Contact>,
}

impl Asking {
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.object.finish(&self.contact, outcome);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.finish(Outcome::Failed(Failure::Busy, None));
    }
}
