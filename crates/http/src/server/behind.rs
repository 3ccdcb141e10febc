//! Gives pages back that only one transfer wanted.
//!
//! A large file that one client reads once would push out of the page cache what many read often.
//! Dropping what others use is worse: so only those parts go that this transfer had to bring in
//! from the disk, and only once the client has them.

use std::collections::VecDeque;
use std::num::NonZero;

use rustix::fs::{Advice, fadvise};
use tokio::task::spawn_blocking;

use super::warm::Cold;

/// The parts of a transfer that came from the disk, in order.
#[derive(Debug, Default)]
pub(super) struct Behind(VecDeque<Cold>);

impl Behind {
    /// Notes a part that was brought in.
    pub(super) fn push(&mut self, part: Cold) {
        self.0.push_back(part);
    }

    /// Gives back what lies before this place of the chain, which the client has up to there.
    pub(super) fn drop_before(&mut self, place: u64) {
        let count = self.0.iter().take_while(|part| part.end() <= place).count();
        if count == 0 {
            return;
        }
        let parts: Vec<_> = self.0.drain(..count).collect();
        // Nobody waits for it.
        drop(spawn_blocking(move || {
            for part in parts {
                let (file, offset, len) = part.range();
                // Pages that somebody uses stay, and so they should.
                let _ = fadvise(file, offset, NonZero::new(len), Advice::DontNeed);
            }
        }));
    }
}
