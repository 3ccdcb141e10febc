//! Sees to it that no client appends one version of a file to the beginning of another.

use std::time::Instant;

use super::answer::Asking;
use super::peer::Peer;
use super::worker::Worker;
use crate::plan::{Facts, Plan, PlannedBody, plan, plan_conflict};
use crate::resumption::Download;

impl Asking<'_, '_, '_> {
    /// What to say about a file or archive, and what is to be remembered if that breaks off.
    pub(super) fn plan(&mut self, facts: &Facts) -> Plan {
        // A version that was looked at before, and is none any more, is not the one to remember.
        self.download = None;
        if facts.len <= SMALL && self.request.field("range").is_none() {
            return plan(self.request, facts, self.now);
        }
        let resumptions = &self.worker.shared.resumptions;
        let client = self.peer.address.map(|address| address.ip());
        let download = resumptions.download(client, self.request, facts.etag);
        if download.is_some_and(|download| resumptions.would_mix(&download, self.instant)) {
            return plan_conflict(self.request, facts, self.now);
        }
        let plan = plan(self.request, facts, self.now);
        let is_sent = matches!(plan.body, PlannedBody::Whole | PlannedBody::Range(_));
        self.download = download.filter(|_| is_sent);
        plan
    }
}

/// The next response begins: whoever asks for it has had the one before.
pub(super) fn begin(worker: &Worker, peer: &Peer, download: Option<Download>) {
    if let Some(before) = peer.download.replace(download) {
        worker.shared.resumptions.completed(&before);
    }
}

/// The connection has ended, or its response broke off.
pub(super) fn end(worker: &Worker, peer: &Peer, is_whole: bool) {
    let resumptions = &worker.shared.resumptions;
    match peer.download.take() {
        Some(download) if is_whole => resumptions.completed(&download),
        Some(download) => resumptions.broken_off(&download, Instant::now()),
        None => {}
    }
}

/// Whole files up to this size leave in a call or two, and hardly ever break off.
const SMALL: u64 = 16 << 10;
