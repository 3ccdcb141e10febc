//! Picks the entries of a page in one pass over a folder of any size.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use underpass_protocol::listing::{MAX_ENTRIES, Order, PageCursor};

use super::Listing;
use super::scan::Found;

/// The position after which a page starts.
pub(super) struct Start<'l> {
    /// The order of the listing.
    order: Order,
    /// The last entry of the previous page.
    place: Option<PageCursor<'l>>,
}

impl<'l> Start<'l> {
    /// Returns the start of this listing.
    pub(super) fn new(listing: &'l Listing<'_>) -> Self {
        Self { order: listing.query.order, place: listing.query.start() }
    }

    /// Returns whether the entry belongs to a previous page.
    pub(super) fn is_before(&self, found: &Found<'_>) -> bool {
        self.place.is_some_and(|start| {
            self.order.compare(&found.place(self.order.key), &start) != Ordering::Greater
        })
    }
}

/// Picks the first entries after the start, from any number of entries in any order.
///
/// It holds at most twice the limit: at that number it drops the later half, which costs each entry
/// a constant number of comparisons on average. A heap would compare more.
pub(super) struct Picked<'l> {
    /// The position at which the page starts.
    start: Start<'l>,
    /// The maximum number of entries.
    limit: usize,
    /// Whether all entries were requested, so that more than the limit are too many.
    is_whole: bool,
    /// The entries that may be on the page.
    found: Vec<Found<'static>>,
    /// Whether the first `limit` entries of `found` were the first of all entries seen at the last
    /// cut, with the last of them last in order.
    is_cut: bool,
    /// The number of entries up to the start.
    pub(super) before: u64,
    /// The number of entries after the start.
    pub(super) remaining: u64,
    /// Whether all entries were requested and there are more than can be held.
    pub(super) is_overfull: bool,
}

impl<'l> Picked<'l> {
    /// Creates an empty selection.
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

    /// Keeps the entry if it may be on the page; breaks if there can be no page.
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

    /// Drops all but the first entries.
    fn cut(&mut self) {
        let order = self.start.order;
        self.found.select_nth_unstable_by(self.limit - 1, |a, b| {
            order.compare(&a.place(order.key), &b.place(order.key))
        });
        self.found.truncate(self.limit);
        self.is_cut = true;
    }

    /// Returns the entries of the page, in order.
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
