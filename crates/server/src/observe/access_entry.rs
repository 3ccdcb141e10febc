//! Collects the log entry and the metrics of each exchange.
//!
//! A response that the kernel has accepted may not have reached the client. So its line is held
//! until the last byte is acknowledged, which is checked every second, or the connection ends.

use std::ops::ControlFlow;
use std::time::{Instant, SystemTime};

use crate::connection::Link;
use crate::connection::outcome::{SendFailure, SendOutcome};
use crate::connection::peer::Peer;
use crate::observe::pending_entry::{LineBuffers, PendingEntry};
use crate::routing::context::RequestContext;
use crate::server::settings::ServerEvent;
use crate::server::worker::Worker;
use crate::uploads::ReceivedUpload;
use underpass_observe::access_log::{AccessEntry, Secured};
use underpass_observe::transfers::TransferFacts;
use underpass_protocol::upload::without_tokens;
use underpass_transport::tls;

/// Creates the entry of a request; [`finish`] adds the client's address.
pub(crate) fn begin(ctx: &RequestContext<'_>) -> Box<AccessEntry> {
    let (Link { worker, peer }, request) = (ctx.link(), &ctx.request);
    let mut entry = worker.line_buffers.borrow_mut().spare.pop().unwrap_or_default();
    entry.clear();
    entry.verb.push_str(&request.verb[..request.verb.len().min(MAX_VERB)]);
    push_text(&mut entry.target, request.target, MAX_TARGET);
    entry.minor_version = request.minor_version;
    entry.is_secure = peer.is_secure();
    entry.tls = peer.session().map(|session| secured(session.facts()));
    let Some(format) = &worker.shared.settings.log else { return entry };
    for (name, value) in [("referer", &mut entry.referer), ("user-agent", &mut entry.user_agent)] {
        push_text(value, request.field(name).unwrap_or_default(), MAX_FIELD);
    }
    for name in format.needs() {
        let mut value = Vec::new();
        push_text(&mut value, request.field(name).unwrap_or_default(), MAX_FIELD);
        entry.fields.push((name.clone(), value));
    }
    entry
}

/// Appends text from a client, without its tokens and cut to `max` bytes.
fn push_text(kept: &mut Vec<u8>, value: &[u8], max: usize) {
    let value = without_tokens(value);
    kept.extend_from_slice(&value[..value.len().min(max)]);
    if value.len() > max {
        kept.extend_from_slice(b"...");
    }
}

/// Returns the TLS properties of a connection for the log.
fn secured(facts: &tls::SessionFacts) -> Secured {
    let tls::SessionFacts { version, suite, is_resumed, encrypted_by } = *facts;
    let why = match encrypted_by {
        tls::EncryptedBy::Kernel => None,
        tls::EncryptedBy::UserSpace(why) => Some(why.name()),
    };
    Secured { version, suite, is_resumed, why }
}

/// Creates the entry of an unreadable request from its first line.
pub(crate) fn begin_unreadable(link: Link<'_>, bytes: &[u8]) -> Box<AccessEntry> {
    let Link { worker, peer } = link;
    let mut entry = worker.line_buffers.borrow_mut().spare.pop().unwrap_or_default();
    entry.clear();
    entry.is_secure = peer.is_secure();
    entry.tls = peer.session().map(|session| secured(session.facts()));
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    entry.target.extend_from_slice(&without_tokens(&line[..line.len().min(MAX_LINE)]));
    entry
}

/// Logs a request of which only these bytes arrived in time, and which got no response.
pub(crate) fn timed_out(link: Link<'_>, bytes: &[u8]) {
    let Link { worker, peer } = link;
    let mut entry = begin_unreadable(link, bytes);
    entry.status = 408;
    entry.failure = Some(SendFailure::Stalled.label());
    entry.started = SystemTime::now();
    peer.write_name(&mut entry.peer);
    let metrics = worker.metrics();
    metrics.request(entry.status, entry.duration);
    metrics.failed(SendFailure::Stalled.label());
    let _ = write(worker, &entry);
    recycle(worker, entry);
}

/// Records how the body of a request was received.
pub(crate) fn received(worker: &Worker, entry: &mut AccessEntry, received: &ReceivedUpload) {
    entry.received = received.report.bytes();
    entry.record(&received.report);
    if let Some(broken) = &received.broken {
        entry.failure = Some(broken.cause.label());
        worker.metrics().failed(broken.cause.label());
        if let Some(reason) = broken.reason.clone() {
            let target = String::from_utf8_lossy(&entry.target).into_owned();
            worker.shared.report(ServerEvent::Failed { target, reason });
        }
    }
}

/// Records how the response ended; its first `head_len` bytes were the head.
pub(crate) fn finish(
    Link { worker, peer }: Link<'_>,
    mut entry: Box<AccessEntry>,
    outcome: &SendOutcome,
    head_len: usize,
) {
    let metrics = worker.metrics();
    metrics.request(entry.status, entry.duration);
    if !outcome.is_counted {
        metrics.record(&outcome.report);
    }
    entry.waited += outcome.waited;
    entry.sent = outcome.report.bytes().saturating_sub(head_len as u64);
    entry.origin_bytes = entry.origin_bytes.min(entry.sent);
    if let Some(site) = &entry.site {
        site.count(outcome.report.bytes());
    }
    if let Some(failure) = &outcome.failure {
        entry.failure.get_or_insert(failure.label());
        metrics.failed(failure.label());
        if let Some(reason) = failure.reason() {
            let target = String::from_utf8_lossy(&entry.target).into_owned();
            let reason = format!("{reason}; the client saw a reset");
            worker.shared.report(ServerEvent::Failed { target, reason });
        }
    }
    if worker.shared.settings.log.is_none() && worker.shared.observer.get().is_none() {
        peer.is_unconfirmed.set(entry.failure.is_none());
        recycle(worker, entry);
        return;
    }
    // Formatted as late as possible: this takes as long as finding a hot file.
    peer.write_name(&mut entry.peer);
    entry.record(&outcome.report);
    entry.usage = entry.usage + outcome.usage.as_deref().copied().unwrap_or_default();
    let pending = PendingEntry { entry, end: peer.written.get() };
    peer.pending.borrow_mut().push(pending);
}

/// Returns whether one more response may wait for its acknowledgement.
pub(crate) fn has_room(Link { worker, peer }: Link<'_>) -> bool {
    let pending = peer.pending.borrow();
    let bytes = pending.iter().map(|pending| pending.entry.memory()).sum();
    // One response is always allowed, whatever other connections hold.
    let is_within_budget =
        worker.shared.entries.hold(&peer.entries, peer.address(), bytes) || pending.is_empty();
    is_within_budget && pending.len() < MAX_PENDING && bytes < MAX_PENDING_BYTES
}

/// Writes the lines of completely acknowledged responses or, at the connection's end, of all.
/// Returns whether the observer wants the connection to continue.
pub(crate) fn write_arrived(Link { worker, peer }: Link<'_>, is_over: bool) -> ControlFlow<()> {
    let failed = || {
        let failure = if peer.is_expired() { SendFailure::Stalled } else { SendFailure::Left };
        worker.metrics().failed(failure.label());
        failure.label()
    };
    if is_over && peer.is_unconfirmed.get() && peer.acknowledged() < peer.written.get() {
        failed();
    }
    let mut pending = peer.pending.borrow_mut();
    let mut then = ControlFlow::Continue(());
    if pending.is_empty() {
        return then;
    }
    let acknowledged = peer.acknowledged();
    while let Some(first) = pending.first() {
        let missing = first.end.saturating_sub(acknowledged);
        if missing > 0 && !is_over {
            break;
        }
        let PendingEntry { mut entry, .. } = pending.remove(0);
        entry.acknowledged = entry.sent.saturating_sub(missing);
        if missing > 0 {
            entry.failure.get_or_insert_with(failed);
        }
        entry.is_complete = entry.failure.is_none();
        if write(worker, &entry).is_break() {
            then = ControlFlow::Break(());
        }
        recycle(worker, entry);
    }
    if is_over {
        peer.entries.release();
    }
    then
}

/// Writes the lines of acknowledged responses before the next request, if there is an observer or
/// several responses wait. Asking the kernel takes as long as reading a small file, so for all
/// others it is asked every second.
pub(crate) fn write_arrived_before_next(link: Link<'_>) -> ControlFlow<()> {
    let Link { worker, peer } = link;
    let is_due = worker.shared.observer.get().is_some() || peer.pending.borrow().len() >= MIN_ASKED;
    if is_due { write_arrived(link, false) } else { ControlFlow::Continue(()) }
}

/// Writes one line, if the access log is enabled, and calls the observer, whose answer it returns.
fn write(worker: &Worker, entry: &AccessEntry) -> ControlFlow<()> {
    let observer = worker.shared.observer.get();
    let then = observer.map_or(ControlFlow::Continue(()), |observer| observer(entry));
    let Some(format) = &worker.shared.settings.log else { return then };
    let LineBuffers { time, line, .. } = &mut *worker.line_buffers.borrow_mut();
    line.clear();
    format.line_into(entry, time, line);
    worker.shared.log(line);
    then
}

/// Keeps the memory of an entry for reuse.
pub(crate) fn recycle(worker: &Worker, entry: Box<AccessEntry>) {
    let spare = &mut worker.line_buffers.borrow_mut().spare;
    if spare.len() < MAX_SPARE {
        spare.push(entry);
    }
}

/// Returns the facts about a request for the register of live transfers, before there is a
/// response.
pub(crate) fn request_facts(ctx: &RequestContext<'_>) -> TransferFacts {
    let entry = begin(ctx);
    let facts = TransferFacts {
        site: ctx.site().counts.clone(),
        user: ctx.user.clone(),
        ..transfer_facts(&entry, ctx.peer, ctx.started)
    };
    recycle(ctx.worker, entry);
    facts
}

/// Returns the facts about a response for the register of live transfers.
pub(crate) fn transfer_facts(
    entry: &AccessEntry,
    client: &Peer,
    started: Instant,
) -> TransferFacts {
    let mut peer = String::new();
    client.write_name(&mut peer);
    TransferFacts {
        peer,
        site: entry.site.clone(),
        user: entry.user.clone(),
        verb: entry.verb.clone(),
        target: entry.target.clone(),
        status: entry.status,
        expected: entry.body_len,
        started,
    }
}

/// The maximum number of unacknowledged responses of a connection; beyond it, no request is read.
const MAX_PENDING: usize = 128;

/// The number of waiting responses from which on the kernel is asked before each request.
const MIN_ASKED: usize = 8;

/// The maximum number of bytes kept for the log of these responses.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// The maximum number of bytes of a method in the log.
const MAX_VERB: usize = 32;

/// The maximum number of bytes of a target in the log.
const MAX_TARGET: usize = 2 << 10;

/// The maximum number of bytes of a field in the log.
const MAX_FIELD: usize = 512;

/// The maximum number of bytes of an unreadable request in the log.
const MAX_LINE: usize = 512;

/// The maximum number of entries kept for reuse.
const MAX_SPARE: usize = 64;
