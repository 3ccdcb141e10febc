//! Limits the memory that clients can make the server hold before it has answered them, for all
//! connections together.
//!
//! Each connection may hold a small amount in any case. Beyond that it needs a share of a budget,
//! and is refused if the budget is used up.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that all connections together may hold beyond the free amount of each.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    limit: usize,
    /// The number of bytes that each connection may always hold.
    free: usize,
}

/// The bytes of one connection, less than 4 GiB. They must be given back with [`Budget::release`].
#[derive(Debug, Default)]
pub(crate) struct BudgetShare(Cell<u32>);

impl Budget {
    pub(crate) const fn new(limit: usize, free: usize) -> Self {
        Self { held: AtomicUsize::new(0), limit, free }
    }

    /// Notes that a connection holds `bytes` now; returns whether it may.
    pub(crate) fn hold(&self, share: &BudgetShare, bytes: usize) -> bool {
        let Ok(kept) = u32::try_from(bytes.saturating_sub(self.free)) else { return false };
        let (wanted, had) = (kept as usize, share.0.get() as usize);
        if wanted == had {
            return true;
        }
        if wanted < had {
            self.held.fetch_sub(had - wanted, Ordering::Relaxed);
        } else {
            let more = wanted - had;
            if self.held.fetch_add(more, Ordering::Relaxed) + more > self.limit {
                self.held.fetch_sub(more, Ordering::Relaxed);
                return false;
            }
        }
        share.0.set(kept);
        true
    }

    /// Notes that a connection no longer holds anything.
    pub(crate) fn release(&self, share: &BudgetShare) {
        let had = share.0.take() as usize;
        if had > 0 {
            self.held.fetch_sub(had, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_shared_and_a_little_is_free() {
        let budget = Budget::new(100, 10);
        let (one, two) = (BudgetShare::default(), BudgetShare::default());
        assert!(budget.hold(&one, 90) && budget.hold(&two, 30));
        assert!(!budget.hold(&two, 31), "all of it is held");
        assert!(budget.hold(&BudgetShare::default(), 10), "this much is free");
        budget.release(&one);
        assert!(budget.hold(&two, 110));
        assert!(!budget.hold(&two, 111));
        assert!(budget.hold(&two, 0) && budget.hold(&one, 110));
        budget.release(&one);
        budget.release(&two);
        assert_eq!(budget.held.load(Ordering::Relaxed), 0);
    }
}
