//! Limits the memory that clients can make the server hold before it has answered them, for all
//! connections together.
//!
//! Each connection may hold a small amount in any case. Beyond that it needs a share of a budget,
//! and is refused if the budget, or the part of it that one client may have, is used up.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::server::limits::client_budget::{ClientBudget, Reservation};
use underpass_protocol::request::ClientNet;

/// The bytes that all connections together may hold beyond the free amount of each.
#[derive(Debug)]
pub(crate) struct Budget {
    memory: Arc<ClientBudget>,
    /// The number of bytes that each connection may always hold.
    free: usize,
}

/// The bytes of one connection. They are given back with [`release`](Self::release), or when this is
/// dropped.
#[derive(Default)]
pub(crate) struct BudgetShare(Cell<Option<Box<Reservation>>>);

impl Budget {
    /// Creates a budget of `limit` bytes, of which all connections of one client may have a
    /// quarter.
    pub(crate) fn new(limit: usize, free: usize) -> Self {
        Self { memory: ClientBudget::new(limit as u64, limit as u64 / 4), free }
    }

    /// Sets the bytes that a connection holds for the client with this address; returns whether
    /// that many are allowed.
    pub(crate) fn hold(
        &self,
        share: &BudgetShare,
        address: Option<SocketAddr>,
        bytes: usize,
    ) -> bool {
        let wanted = bytes.saturating_sub(self.free) as u64;
        let held = share.0.take();
        if held.as_ref().map_or(0, |held| held.len()) == wanted {
            share.0.set(held);
            return true;
        }
        let mut held =
            held.unwrap_or_else(|| Box::new(self.memory.reserve(ClientNet::of(address))));
        let is_allowed = held.resize(wanted);
        // The next request may be of another client, behind the same proxy.
        share.0.set((held.len() > 0).then_some(held));
        is_allowed
    }
}

impl BudgetShare {
    /// Gives back everything that the connection holds.
    pub(crate) fn release(&self) {
        self.0.take();
    }
}

impl fmt::Debug for BudgetShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetShare").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8) -> Option<SocketAddr> {
        Some(([192, 0, 2, last], 1).into())
    }

    #[test]
    fn a_budget_is_shared_and_a_little_is_free() {
        let budget = Budget::new(400, 10);
        let (one, two) = (BudgetShare::default(), BudgetShare::default());
        assert!(budget.hold(&one, client(1), 90) && budget.hold(&two, client(1), 30));
        assert!(!budget.hold(&two, client(1), 31), "all that the client may have is held");
        assert!(budget.hold(&BudgetShare::default(), client(1), 10), "this much is free");
        one.release();
        assert!(budget.hold(&two, client(1), 110));
        assert!(!budget.hold(&two, client(1), 111));
        assert!(budget.hold(&two, client(1), 0) && budget.hold(&one, client(1), 110));
        drop((one, two));
        assert_eq!(budget.memory.room(ClientNet::of(client(1))), 100);
    }

    #[test]
    fn a_client_with_many_connections_leaves_most_to_others() {
        let budget = Budget::new(400, 10);
        let shares: Vec<_> = (0..50).map(|_| BudgetShare::default()).collect();
        let held = shares.iter().filter(|share| budget.hold(share, client(1), 20)).count();
        assert_eq!(held, 10);
        for other in 2..5 {
            assert!(budget.hold(&shares[40 + usize::from(other)], client(other), 110));
        }
        assert!(!budget.hold(&shares[45], client(5), 11), "all of it is held");
    }
}
