//! A limit on bytes of memory, or on open files, for all clients together, with a smaller one for
//! each client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use underpass_engine::wait::lock;

use underpass_protocol::request::ClientNet;

/// The bytes, or the open files, that may be held for clients.
#[derive(Debug)]
pub(crate) struct ClientBudget {
    max: u64,
    share: u64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    used: u64,
    by_client: HashMap<ClientNet, u64>,
}

/// A part of a budget, reserved until this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ClientBudget>,
    client: ClientNet,
    len: u64,
}

impl ClientBudget {
    /// Creates a budget of `max`, of which one client may have `share`.
    pub(crate) fn new(max: u64, share: u64) -> Arc<Self> {
        Arc::new(Self { max, share, state: Mutex::default() })
    }

    /// Creates an empty reservation.
    pub(crate) fn reserve(self: &Arc<Self>, client: ClientNet) -> Reservation {
        Reservation { budget: Arc::clone(self), client, len: 0 }
    }

    /// Returns how much a client may still reserve.
    pub(crate) fn room(&self, client: ClientNet) -> u64 {
        let state = lock(&self.state);
        let own = state.by_client.get(&client).copied().unwrap_or(0);
        (self.max - state.used).min(self.share - own)
    }
}

impl Reservation {
    /// Returns how much is reserved.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Changes the size of the reservation; returns false and changes nothing if it does not fit.
    pub(crate) fn resize(&mut self, len: u64) -> bool {
        let budget = &self.budget;
        let mut state = lock(&budget.state);
        let own = state.by_client.get(&self.client).copied().unwrap_or(0);
        let (used, own) = (state.used - self.len + len, own - self.len + len);
        if len > self.len && (used > budget.max || own > budget.share) {
            return false;
        }
        state.used = used;
        match own {
            0 => state.by_client.remove(&self.client),
            own => state.by_client.insert(self.client, own),
        };
        self.len = len;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_quarter_and_all_have_the_whole() {
        let budget = ClientBudget::new(100, 25);
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        let mut held: Vec<_> = (0..5).map(|last| budget.reserve(client(last))).collect();
        assert!(held[0].resize(25) && !held[0].resize(26));
        let mut more = budget.reserve(client(0));
        assert_eq!((budget.room(client(0)), budget.room(client(1))), (0, 25));
        assert!(!more.resize(1) && held[0].resize(20) && more.resize(5));
        assert!(held[1..4].iter_mut().all(|one| one.resize(25)));
        assert!(!held[4].resize(1) && budget.room(client(4)) == 0);
        held.remove(1);
        assert!(held[3].resize(25));
        drop((held, more));
        assert_eq!(lock(&budget.state).used, 0);
        assert!(lock(&budget.state).by_client.is_empty());
    }
}
