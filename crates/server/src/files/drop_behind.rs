//! Gives back pages that only one transfer needed.
//!
//! A large file that one client reads once would push frequently read files out of the page cache.
//! Dropping pages that others use is worse: so only those parts are dropped that were not cached
//! when this transfer began, and only once the client has received them.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use tokio::task::spawn_blocking;

use crate::files::prefetch::{MissingRange, Span};

/// The parts of a chain that were not in the page cache when it began, in order.
#[derive(Debug, Default)]
pub(crate) struct DropBehind(VecDeque<Run>);

/// A run of a file without gaps.
#[derive(Debug)]
struct Run {
    span: Span,
    /// The position in the chain at which it begins.
    begin: u64,
    /// The number of bytes given back.
    done: u64,
}

impl DropBehind {
    /// Creates a state that will give back all pages of these parts.
    pub(crate) fn new(missing: Vec<MissingRange>) -> Self {
        let runs = missing.into_iter();
        Self(runs.map(|MissingRange { span, begin, .. }| Run { span, begin, done: 0 }).collect())
    }

    /// Returns whether nothing is left to give back.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back the pages before this position of the chain, which the client has received.
    pub(crate) fn drop_before(&mut self, place: u64) {
        while let Some(run) = self.0.front_mut() {
            let ready = place.saturating_sub(run.begin).min(run.span.len);
            let is_whole = ready == run.span.len;
            if ready < run.done + AT_ONCE && !is_whole {
                return;
            }
            // The kernel keeps pages in folios of up to some MiB, and does not drop one that
            // reaches beyond the end of a range: so each call overlaps the range before it.
            let from = run.done.saturating_sub(OVERLAP);
            let (file, offset) = (Arc::clone(&run.span.file), run.span.offset + from);
            run.done = ready;
            // The result is not awaited. Pages that other processes use remain, as they should.
            drop(spawn_blocking(move || {
                fadvise(file, offset, NonZero::new(ready - from), Advice::DontNeed)
            }));
            if !is_whole {
                return;
            }
            self.0.pop_front();
        }
    }
}

/// The minimum number of bytes that one call gives back, except at the end of a run.
const AT_ONCE: u64 = 16 << 20;

/// Twice the size of the largest folio of the page cache.
const OVERLAP: u64 = 4 << 20;
