//! Makes helper threads read the pages that are sent next, and drops those that the client has.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use tokio::time::timeout;
use underpass_engine::{Integrity, Version};

use super::{CLIENT_CHECK_INTERVAL, SlowResponse};
use crate::files::drop_behind::DropBehind;
use crate::files::prefetch::{MissingRange, Residency};

impl SlowResponse<'_> {
    /// Makes helpers fetch the missing pages of the next turn.
    pub(super) async fn prefetch(&mut self, residency: &mut Residency, place: u64, turn: u64) {
        while let Some(missing) = residency.next_missing(place, turn) {
            let started = Instant::now();
            self.met_missing = true;
            let ahead = self.ahead.take().filter(|(part, _)| part.is(&missing));
            let helpers = &self.link.worker.helpers;
            let client = self.link.peer.client_net();
            let waited = match ahead {
                Some((_, fetching)) => self.while_wanted(fetching).await,
                None => {
                    let fetching = helpers.run(client, self.fetch(&missing));
                    self.while_wanted(fetching).await
                }
            };
            let Some(waited) = waited else { return };
            residency.fetched(&missing, waited.unwrap_or_default());
            self.link.worker.metrics().cold_wait(started.elapsed());
            // A client on this machine shares the pages until it has read them.
            self.drop_behind(place.saturating_sub(UNREAD));
            // The disk reads the next part while this one is sent.
            self.ahead = residency.next().and_then(|next| {
                let fetching = helpers.try_begin(client, self.fetch(&next))?;
                Some((next, fetching))
            });
        }
    }

    /// Makes a helper thread refresh the versions of remote files: the turn itself compares the
    /// kernel's copy in memory.
    pub(super) async fn refresh_version(&mut self, residency: &Residency) {
        let files = residency.remote();
        if self.integrity != Integrity::Fast && !files.is_empty() {
            let client = self.link.peer.client_net();
            // An error is reported by the turn itself.
            let ask = move || files.iter().all(|file| Version::of(file).is_ok());
            self.while_wanted(self.link.worker.helpers.run(client, ask)).await;
        }
    }

    /// Makes a helper find the uncached parts of the chain, whose pages are to be given back.
    pub(super) async fn find_missing(&mut self, residency: &Residency) {
        let (residency, wanted) = (residency.clone(), Arc::downgrade(&self.wanted));
        let find = move || residency.absent(|| wanted.strong_count() > 0);
        let finding = self.link.worker.helpers.run(self.link.peer.client_net(), find);
        let missing = self.while_wanted(finding).await;
        self.drop_behind = DropBehind::new(missing.and_then(Result::ok).unwrap_or_default());
    }

    /// Gives back the pages that the client has received; `place` is the end of the sent part.
    pub(super) fn drop_behind(&mut self, place: u64) {
        if self.drop_behind.is_empty() {
            return;
        }
        let in_flight = self.link.peer.written.get() - self.link.peer.acknowledged();
        self.drop_behind.drop_before(place.saturating_sub(in_flight));
    }

    /// Returns the work of a helper that waits for the pages of a part.
    fn fetch(&self, part: &MissingRange) -> impl FnOnce() -> bool + use<> {
        let (shared, part) = (Arc::clone(&self.link.worker.shared), part.clone());
        let wanted = Arc::downgrade(&self.wanted);
        move || part.fetch(&shared.null, || wanted.strong_count() > 0)
    }

    /// Waits for work as long as the response is worth sending; returns `None` after that.
    pub(super) async fn while_wanted<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            match timeout(CLIENT_CHECK_INTERVAL, work.as_mut()).await {
                Ok(done) => return Some(done),
                Err(_) if self.should_continue() => {}
                Err(_) => return None,
            }
        }
    }
}

/// The maximum size of a receive buffer with usual system settings.
const UNREAD: u64 = 8 << 20;
