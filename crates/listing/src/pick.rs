//! Selects the entries of a page in one pass over a folder of any size.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use underpass_protocol::listing::{MAX_ENTRIES, Order, PageCursor};

use super::Listing;
use super::scan::ScannedEntry;

/// The position after which a page starts.
pub(super) struct PageStart<'l> {
    /// The order of the listing.
    order: Order,
    /// The last entry of the previous page.
    place: Option<PageCursor<'l>>,
}

impl<'l> PageStart<'l> {
    /// Returns the start of this listing.
    pub(super) fn new(listing: &'l Listing<'_>) -> Self {
        Self { order: listing.query.order, place: listing.start() }
    }

    /// Returns the start of this listing, given whether the entry before it is a folder.
    pub(super) fn with_kind(listing: &'l Listing<'_>, is_folder: bool) -> Self {
        let place = listing.query.start().map(|start| PageCursor { is_folder, ..start });
        Self { order: listing.query.order, place }
    }

    /// Returns whether the entry belongs to a previous page.
    pub(super) fn is_before(&self, found: &ScannedEntry<'_>) -> bool {
        self.place.is_some_and(|start| {
            self.order.compare(&found.place(self.order.key), &start) != Ordering::Greater
        })
    }
}

/// Keeps the first of any number of entries in any order.
///
/// It holds at most twice the limit: at that number it drops the later half, which costs a constant
/// number of comparisons per entry on average. A heap would need more.
struct FirstFound {
    order: Order,
    /// Whether the order is reversed, so that its last entries count as the first.
    is_reversed: bool,
    limit: usize,
    found: Vec<ScannedEntry<'static>>,
    /// Whether the first `limit` entries of `found` were the first of all at the last cut, ending
    /// with the last of them in order.
    is_cut: bool,
}

impl FirstFound {
    fn new(order: Order, is_reversed: bool, limit: usize) -> Self {
        Self { order, is_reversed, limit, found: Vec::new(), is_cut: false }
    }

    /// Keeps the entry if it may be one of the first.
    fn offer(&mut self, found: ScannedEntry<'_>) {
        let is_beyond =
            self.is_cut && self.compare(&found, &self.found[self.limit - 1]) == Ordering::Greater;
        if is_beyond {
            return;
        }
        self.found.push(found.into_owned());
        if self.found.len() == 2 * self.limit {
            let (order, is_reversed) = (self.order, self.is_reversed);
            self.found
                .select_nth_unstable_by(self.limit - 1, |a, b| compare(order, is_reversed, a, b));
            self.found.truncate(self.limit);
            self.is_cut = true;
        }
    }

    /// Returns the first entries, in order.
    fn into_sorted(mut self) -> Vec<ScannedEntry<'static>> {
        let (order, is_reversed) = (self.order, self.is_reversed);
        self.found.sort_unstable_by(|a, b| compare(order, is_reversed, a, b));
        self.found.truncate(self.limit);
        self.found
    }

    fn compare(&self, a: &ScannedEntry<'_>, b: &ScannedEntry<'_>) -> Ordering {
        compare(self.order, self.is_reversed, a, b)
    }
}

/// Compares two entries in an order or its reverse.
fn compare(
    order: Order,
    is_reversed: bool,
    a: &ScannedEntry<'_>,
    b: &ScannedEntry<'_>,
) -> Ordering {
    let ordering = order.compare(&a.place(order.key), &b.place(order.key));
    if is_reversed { ordering.reverse() } else { ordering }
}

/// Selects the entries of a page: the first ones after its start.
pub(super) struct Picked<'l> {
    /// The position at which the page starts.
    start: PageStart<'l>,
    /// The maximum number of entries.
    limit: usize,
    /// Whether all entries were requested, so that there are too many if they exceed the limit.
    is_whole: bool,
    /// The entries that may be on the page.
    first: FirstFound,
    /// The closest entries before the start: those of the previous page, and one more.
    above: FirstFound,
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
        let (requested, order) = (listing.limit(), listing.query.order);
        let limit = requested.unwrap_or(MAX_ENTRIES).clamp(1, MAX_ENTRIES);
        Self {
            start: PageStart::new(listing),
            limit,
            is_whole: requested.is_none(),
            first: FirstFound::new(order, false, limit),
            above: FirstFound::new(order, true, limit + 1),
            before: 0,
            remaining: 0,
            is_overfull: false,
        }
    }

    /// Keeps the entry if it may be on the page; breaks if there are too many for a page.
    pub(super) fn offer(&mut self, found: ScannedEntry<'_>) -> ControlFlow<()> {
        if self.start.is_before(&found) {
            self.before += 1;
            self.above.offer(found);
            return ControlFlow::Continue(());
        }
        self.remaining += 1;
        if self.is_whole && self.remaining > self.limit as u64 {
            self.is_overfull = true;
            return ControlFlow::Break(());
        }
        self.first.offer(found);
        ControlFlow::Continue(())
    }

    /// Returns where the previous page starts.
    pub(super) fn previous(&mut self) -> PreviousPage {
        let order = self.start.order;
        let above = std::mem::replace(&mut self.above, FirstFound::new(order, true, 1));
        if self.before == 0 {
            return PreviousPage::None;
        }
        let last = above.into_sorted().into_iter().nth(self.limit);
        last.map_or(PreviousPage::First, PreviousPage::After)
    }

    /// Returns the entries of the page, in order.
    pub(super) fn into_sorted(self) -> Vec<ScannedEntry<'static>> {
        self.first.into_sorted()
    }
}
/// Where the previous page starts.
#[derive(Debug)]
pub(super) enum PreviousPage {
    /// There is no previous page.
    None,
    /// At the first entry.
    First,
    /// After this entry.
    After(ScannedEntry<'static>),
}
