//! Picks the entries of a page in one pass over a folder of any size.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use underpass_protocol::listing::{MAX_ENTRIES, Order, PageCursor};

use super::Listing;
use super::scan::Found;

/// The place after which a page starts.
pub(super) struct Start<'l> {
    /// The order in which it is a place.
    order: Order,
    /// The last entry of the page before.
    place: Option<PageCursor<'l>>,
}

impl<'l> Start<'l> {
    /// The start of this listing.
    pub(super) fn new(listing: &'l Listing<'_>) -> Self {
        Self { order: listing.query.order, place: listing.query.start() }
    }

    /// Whether the entry belongs to a page before.
    pub(super) fn is_before(&self, found: &Found<'_>) -> bool {
        self.place.is_some_and(|start| {
            self.order.compare(&found.place(self.order.key), &start) != Ordering::Greater
        })
    }
}

/// The first entries after the start, picked from any number in any order.
///
/// Holds at most twice the limit: at that many the later half is forgotten, which costs each entry
/// a constant number of comparisons on average. A heap would compare more.
pub(super) struct Picked<'l> {
    /// Where the page starts.
    start: Start<'l>,
    /// How many entries there may be.
    limit: usize,
    /// More than the limit is too much, instead of a further page.
    is_whole: bool,
    /// Those that may be on the page.
    found: Vec<Found<'static>>,
    /// The first `limit` of `found` are the first of all that were seen when it was last cut, and
    /// the last of them is the last in order.
    is_cut: bool,
    /// Entries up to the start.
    pub(super) before: u64,
    /// Entries after the start.
    pub(super) remaining: u64,
    /// There are more than can be held, and all were asked for.
    pub(super) is_overfull: bool,
}

impl<'l> Picked<'l> {
    /// Nothing yet.
    pub(super) fn new(listing: &'l Listing<'_>) -> Self {
        let limit = listing.limit();
        Self {
            start: Start::new(listing),
            limit: limit.unwrap_or(MAX_ENTRIES).clamp(1, MAX_ENTRIES),
            is_whole: limit.is_none(),
            found: Vec::new(),
            is_cut: false,
            before: 0,
            remaining: 0,
            is_overfull: false,
        }
    }

    /// Keeps the entry if it may be on the page; breaks when there is no page.
    pub(super) fn offer(&mut self, found: Found<'_>) -> ControlFlow<()> {
        if self.start.is_before(&found) {
            self.before += 1;
            return ControlFlow::Continue(());
        }
        self.remaining += 1;
        if self.is_whole && self.remaining > self.limit as u64 {
            self.is_overfull = true;
            return ControlFlow::Break(());
        }
        let is_beyond =
            self.is_cut && self.compare(&found, &self.found[self.limit - 1]) == Ordering::Greater;
        if !is_beyond {
            self.found.push(found.into_owned());
            if self.found.len() == 2 * self.limit {
                self.cut();
            }
        }
        ControlFlow::Continue(())
    }

    /// Forgets all but the first entries.
    fn cut(&mut self) {
        let order = self.start.order;
        self.found.select_nth_unstable_by(self.limit - 1, |a, b| {
            order.compare(&a.place(order.key), &b.place(order.key))
        });
        self.found.truncate(self.limit);
        self.is_cut = true;
    }

    /// The entries of the page, in order.
    pub(super) fn into_sorted(mut self) -> Vec<Found<'static>> {
        let order = self.start.order;
        self.found.sort_unstable_by(|a, b| order.compare(&a.place(order.key), &b.place(order.key)));
        self.found.truncate(self.limit);
        self.found
    }

    /// Compares two entries in the order of the page.
    fn compare(&self, a: &Found<'_>, b: &Found<'_>) -> Ordering {
        let order = self.start.order;
        order.compare(&a.place(order.key), &b.place(order.key))
    }
}
