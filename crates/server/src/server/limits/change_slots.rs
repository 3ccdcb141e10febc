//! Limits the changes in progress, and how many of them one client and one site may have.
//!
//! Removing and copying large folders takes minutes. One client cannot take all places for it, nor
//! delay others by the number of its waiting changes, and neither can a site with an unresponsive
//! disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use underpass_engine::wait::lock;
use underpass_protocol::upload::Owner;

/// The changes in progress.
#[derive(Debug, Default)]
pub(crate) struct ChangeSlots {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    /// The changes in progress.
    running: Vec<ChangePlace>,
    /// Those that may not begin yet, in order of arrival.
    waiting: VecDeque<(ChangePlace, oneshot::Sender<ChangeSlot>)>,
}

/// The client and the site of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChangePlace {
    owner: Owner,
    /// The address of the site in memory.
    site: usize,
}

/// The place of a change in progress, which is given back on drop.
#[derive(Debug)]
pub(crate) struct ChangeSlot {
    slots: Arc<ChangeSlots>,
    place: ChangePlace,
}

impl ChangeSlots {
    /// Waits until a change of this client may begin.
    pub(crate) async fn acquire<S>(self: &Arc<Self>, owner: Owner, site: &Arc<S>) -> ChangeSlot {
        let place = ChangePlace { owner, site: Arc::as_ptr(site).addr() };
        let slot = {
            let mut state = lock(&self.state);
            if state.may_begin(&place) {
                return self.begin(&mut state, place);
            }
            let (given, slot) = oneshot::channel();
            state.waiting.push_back((place.clone(), given));
            slot
        };
        // A sender is used before it is dropped, so this cannot fail.
        slot.await.unwrap_or_else(|_| self.begin(&mut lock(&self.state), place))
    }

    fn begin(self: &Arc<Self>, state: &mut SlotState, place: ChangePlace) -> ChangeSlot {
        state.running.push(place.clone());
        ChangeSlot { slots: Arc::clone(self), place }
    }
}

impl SlotState {
    fn may_begin(&self, place: &ChangePlace) -> bool {
        let count = |is_it: &dyn Fn(&ChangePlace) -> bool| {
            self.running.iter().filter(|other| is_it(other)).count()
        };
        let all = self.running.len();
        all < MAX_CHANGES / 2
            || (all < MAX_CHANGES
                && count(&|other| other.owner == place.owner) < OWNER_SHARE
                && count(&|other| other.site == place.site) < SITE_SHARE)
    }

    /// Takes the first waiting change that may begin and whose client has not left.
    fn next(&mut self) -> Option<(ChangePlace, oneshot::Sender<ChangeSlot>)> {
        self.waiting.retain(|(_, given)| !given.is_closed());
        let at = self.waiting.iter().position(|(place, _)| self.may_begin(place))?;
        self.waiting.remove(at)
    }
}

impl Drop for ChangeSlot {
    fn drop(&mut self) {
        let mut state = lock(&self.slots.state);
        if let Some(at) = state.running.iter().position(|of| *of == self.place) {
            state.running.swap_remove(at);
        }
        while let Some((place, given)) = state.next() {
            let slot = self.slots.begin(&mut state, place);
            // If its client has left by now, it ends here, and the next one begins.
            drop(state);
            let _ = given.send(slot);
            state = lock(&self.slots.state);
        }
    }
}

/// The maximum number of changes in progress: they keep disks busy, and must leave helpers for
/// clients that only read.
const MAX_CHANGES: usize = 16;

/// The maximum number of changes of one user, or of one address for clients without a user, once
/// half of all are taken.
const OWNER_SHARE: usize = 2;

/// The maximum number of changes of one site.
const SITE_SHARE: usize = 12;

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Taking = Pin<Box<dyn Future<Output = ChangeSlot>>>;

    fn acquire(slots: &Arc<ChangeSlots>, name: &str) -> Taking {
        // Each has a site of its own.
        acquire_at(slots, name, &Arc::new(0))
    }

    fn acquire_at(slots: &Arc<ChangeSlots>, name: &str, site: &Arc<u8>) -> Taking {
        let (slots, owner, site) = (Arc::clone(slots), Owner::User(name.into()), Arc::clone(site));
        Box::pin(async move { slots.acquire(owner, &site).await })
    }

    fn begun(taking: &mut Taking) -> Option<ChangeSlot> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => Some(slot),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_site_that_hangs_leaves_places_for_others() {
        let slots = Arc::new(ChangeSlots::default());
        let (hung, other) = (Arc::new(0), Arc::new(0));
        let names: Vec<_> = (0..40).map(|number| format!("user {number}")).collect();
        let mut waiting: Vec<_> = names.iter().map(|it| acquire_at(&slots, it, &hung)).collect();
        let held: Vec<_> = waiting.iter_mut().filter_map(begun).collect();
        assert_eq!(held.len(), SITE_SHARE);
        assert!(begun(&mut acquire_at(&slots, "user 0", &other)).is_some());
    }

    #[test]
    fn one_client_leaves_places_for_others() {
        let slots = Arc::new(ChangeSlots::default());
        let mut many: Vec<_> = (0..40).map(|_| acquire(&slots, "one")).collect();
        let mut held: Vec<_> = many.iter_mut().filter_map(begun).collect();
        assert_eq!(held.len(), MAX_CHANGES / 2);
        for name in ["two", "two", "three", "three", "four", "four", "five", "five"] {
            held.extend(begun(&mut acquire(&slots, name)));
        }
        assert_eq!(held.len(), MAX_CHANGES);
        let (mut six, mut gone) = (acquire(&slots, "six"), acquire(&slots, "seven"));
        assert!(begun(&mut six).is_none() && begun(&mut gone).is_none());
        drop(gone);
        drop(held.remove(0));
        let six = begun(&mut six);
        assert!(six.is_some(), "those of the first client still wait");
        drop((held, six));
        let rest: Vec<_> = many.drain(8..).filter_map(|mut one| begun(&mut one)).collect();
        assert_eq!(rest.len(), MAX_CHANGES / 2);
        drop(rest);
        let state = lock(&slots.state);
        assert_eq!((state.running.len(), state.waiting.len()), (0, 0));
    }
}
