//! Limits the changes under way, and how many of them one client may have.
//!
//! Removing and copying large folders takes minutes. One client cannot take all places for it, nor
//! stand in the way of others by the number of its changes that wait.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use underpass_protocol::upload::Owner;

/// The changes under way.
#[derive(Debug, Default)]
pub(crate) struct ChangeSlots {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    all: usize,
    /// The number of changes of each client; none is 0.
    own: HashMap<Owner, usize>,
    /// Those that may not begin yet, in their order.
    waiting: VecDeque<(Owner, oneshot::Sender<ChangeSlot>)>,
}

/// A change under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct ChangeSlot {
    slots: Arc<ChangeSlots>,
    owner: Owner,
}

impl ChangeSlots {
    /// Waits until a change of this client may begin.
    pub(crate) async fn take(self: &Arc<Self>, owner: Owner) -> ChangeSlot {
        let waiting = {
            let mut state = self.lock();
            match state.may_begin(&owner) {
                true => {
                    state.begin(&owner);
                    Err(owner)
                }
                false => {
                    let (given, slot) = oneshot::channel();
                    state.waiting.push_back((owner.clone(), given));
                    Ok((slot, owner))
                }
            }
        };
        match waiting {
            Ok((slot, owner)) => match slot.await {
                Ok(slot) => slot,
                // A sender is used before it is dropped.
                Err(_) => self.forced(owner),
            },
            Err(owner) => ChangeSlot { slots: Arc::clone(self), owner },
        }
    }

    /// Lets a change begin whatever the limits are.
    fn forced(self: &Arc<Self>, owner: Owner) -> ChangeSlot {
        self.lock().begin(&owner);
        ChangeSlot { slots: Arc::clone(self), owner }
    }

    /// Locks even if another thread has panicked: nothing is ever half-written.
    fn lock(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    fn may_begin(&self, owner: &Owner) -> bool {
        let own = || self.own.get(owner).copied().unwrap_or(0);
        self.all < MAX_CHANGES / 2 || (self.all < MAX_CHANGES && own() < OWNER_SHARE)
    }

    fn begin(&mut self, owner: &Owner) {
        self.all += 1;
        *self.own.entry(owner.clone()).or_default() += 1;
    }

    fn end(&mut self, owner: &Owner) {
        self.all -= 1;
        if let Some(own) = self.own.get_mut(owner) {
            *own -= 1;
            if *own == 0 {
                self.own.remove(owner);
            }
        }
    }

    /// Takes the first that waits and may begin, whose client has not left.
    fn next(&mut self) -> Option<(Owner, oneshot::Sender<ChangeSlot>)> {
        self.waiting.retain(|(_, given)| !given.is_closed());
        let at = self.waiting.iter().position(|(owner, _)| self.may_begin(owner))?;
        let next = self.waiting.remove(at)?;
        self.begin(&next.0);
        Some(next)
    }
}

impl Drop for ChangeSlot {
    fn drop(&mut self) {
        self.slots.lock().end(&self.owner);
        loop {
            let Some((owner, given)) = self.slots.lock().next() else { return };
            // If its client has left meanwhile, it ends here, and the next one begins.
            let _ = given.send(ChangeSlot { slots: Arc::clone(&self.slots), owner });
        }
    }
}

/// The maximum number of changes under way: they keep disks busy, and must leave helpers for clients
/// that only read.
const MAX_CHANGES: usize = 16;

/// The maximum number of changes of one user, or of one address for clients without a user, once half
/// of all are taken.
const OWNER_SHARE: usize = 2;

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Taking = Pin<Box<dyn Future<Output = ChangeSlot>>>;

    fn take(slots: &Arc<ChangeSlots>, name: &str) -> Taking {
        let (slots, owner) = (Arc::clone(slots), Owner::User(name.into()));
        Box::pin(async move { slots.take(owner).await })
    }

    fn begun(taking: &mut Taking) -> Option<ChangeSlot> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_client_leaves_places_for_others() {
        let slots = Arc::new(ChangeSlots::default());
        let mut many: Vec<_> = (0..40).map(|_| take(&slots, "one")).collect();
        let mut held: Vec<_> = many.iter_mut().filter_map(begun).collect();
        assert_eq!(held.len(), MAX_CHANGES / 2);
        for name in ["two", "two", "three", "three", "four", "four", "five", "five"] {
            held.extend(begun(&mut take(&slots, name)));
        }
        assert_eq!(held.len(), MAX_CHANGES);
        let (mut six, mut gone) = (take(&slots, "six"), take(&slots, "seven"));
        assert!(begun(&mut six).is_none() && begun(&mut gone).is_none());
        drop(gone);
        drop(held.remove(0));
        let six = begun(&mut six);
        assert!(six.is_some(), "those of the first client still wait");
        drop((held, six));
        let rest: Vec<_> = many.drain(8..).filter_map(|mut one| begun(&mut one)).collect();
        assert_eq!(rest.len(), MAX_CHANGES / 2);
        drop(rest);
        let state = slots.lock();
        assert_eq!((state.all, state.own.len(), state.waiting.len()), (0, 0, 0));
    }
}
