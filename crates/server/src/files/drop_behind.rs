//! Gives pages back that only one transfer wanted.
//!
//! A large file that one client reads once would push out of the page cache what many read often.
//! Dropping what others use is worse: so only those parts go that were not there when this
//! transfer began, and only once the client has them.

use std::collections::VecDeque;
use std::num::NonZero;
use std::sync::Arc;

use rustix::fs::{Advice, fadvise};
use tokio::task::spawn_blocking;

use crate::files::prefetch::{MissingRange, Residency, Span};

/// The parts of a chain that were not in the page cache when it began, in order.
#[derive(Debug, Default)]
pub(crate) struct DropBehind(VecDeque<Run>);

/// Parts of a file that follow each other without a gap.
#[derive(Debug)]
struct Run {
    span: Span,
    /// Where it begins in the chain.
    begin: u64,
    /// How much of it has been given back.
    done: u64,
}

impl DropBehind {
    /// Looks at everything that is to be sent. That takes microseconds for each MiB, which is why
    /// a helper does it.
    pub(crate) async fn look(residency: &Residency) -> Self {
        let residency = residency.clone();
        let absent = spawn_blocking(move || residency.absent()).await.unwrap_or_default();
        let mut runs: VecDeque<Run> = VecDeque::new();
        for MissingRange { span, begin, .. } in absent {
            match runs.back_mut() {
                Some(run) if run.is_followed_by(&span) => run.span.len += span.len,
                _ => runs.push_back(Run { span, begin, done: 0 }),
            }
        }
        Self(runs)
    }

    /// Whether nothing is left to be given back.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Gives back what lies before this place of the chain, which the client has up to there.
    pub(crate) fn drop_before(&mut self, place: u64) {
        while let Some(run) = self.0.front_mut() {
            let ready = place.saturating_sub(run.begin).min(run.span.len);
            let is_whole = ready == run.span.len;
            if ready < run.done + AT_ONCE && !is_whole {
                return;
            }
            // The kernel keeps pages in pieces of some MiB, and one that reaches over the end of a
            // range with the range behind it: so a little of what is done is done again.
            let from = run.done.saturating_sub(OVERLAP);
            let (file, offset) = (Arc::clone(&run.span.file), run.span.offset + from);
            run.done = ready;
            // Nobody waits for it. Pages that somebody uses stay, and so they should.
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

impl Run {
    fn is_followed_by(&self, span: &Span) -> bool {
        Arc::ptr_eq(&self.span.file, &span.file) && self.span.offset + self.span.len == span.offset
    }
}

/// Bytes given back by one call, as long as more are to come.
const AT_ONCE: u64 = 16 << 20;

/// The largest piece of the page cache, and as much again.
const OVERLAP: u64 = 4 << 20;
