//! What is kept of each exchange for the log and the metrics.
//!
//! A response that the kernel has taken is not yet one that the client has. So its line waits
//! until the last byte is acknowledged, the connection ends, or at least the next request proves
//! that somebody is there.

use std::time::Instant;

use crate::connection::outcome::SendOutcome;
use crate::connection::peer::Peer;
use crate::observe::access_log::{AccessEntry, Secured, TimeText};
use crate::observe::transfers::{TransferFacts, without_token};
use crate::request::Request;
use crate::routing::context::RequestContext;
use crate::server::settings::Note;
use crate::server::worker::Worker;
use crate::tls;
use crate::upload::without_tokens;
use crate::uploads::Received;

/// An exchange whose response was sent, until it is known how much of it arrived.
#[derive(Debug)]
pub(crate) struct Pending {
    exchange: Box<AccessEntry>,
    /// Bytes written to the connection when the response was outcome.
    end: u64,
}

/// What the lines of one worker are made with.
#[derive(Debug)]
pub(crate) struct Desk {
    time: TimeText,
    line: Vec<u8>,
    /// Exchanges whose memory can be used again.
    #[allow(clippy::vec_box)] // each is handed on as it is, and is large
    spare: Vec<Box<AccessEntry>>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { time: TimeText::local(), line: Vec::new(), spare: Vec::new() }
    }
}

/// Notes what is asked.
pub(crate) fn begin(worker: &Worker, peer: &Peer, request: &Request) -> Box<AccessEntry> {
    let mut exchange = worker.desk.borrow_mut().spare.pop().unwrap_or_default();
    exchange.clear();
    exchange.verb.push_str(&request.verb[..request.verb.len().min(MAX_VERB)]);
    keep(&mut exchange.target, request.target, MAX_TARGET);
    exchange.minor_version = request.minor_version;
    exchange.tls = peer.session().map(|session| secured(session.facts()));
    let Some(format) = &worker.shared.settings.log else { return exchange };
    for (name, value) in
        [("referer", &mut exchange.referer), ("user-agent", &mut exchange.user_agent)]
    {
        keep(value, request.field(name).unwrap_or_default(), MAX_FIELD);
    }
    for name in format.needs() {
        let mut value = Vec::new();
        keep(&mut value, request.field(name).unwrap_or_default(), MAX_FIELD);
        exchange.fields.push((name.clone(), value));
    }
    exchange
}

/// Takes what came from a client without its tokens, but no more than `most` bytes of it.
fn keep(kept: &mut Vec<u8>, value: &[u8], most: usize) {
    let value = without_tokens(value);
    kept.extend_from_slice(&value[..value.len().min(most)]);
    if value.len() > most {
        kept.extend_from_slice(b"...");
    }
}

/// The TLS of a connection, as the log tells it.
fn secured(facts: &tls::Facts) -> Secured {
    let tls::Facts { version, suite, is_resumed, place } = *facts;
    let why = match place {
        tls::Place::Kernel => None,
        tls::Place::UserSpace(why) => Some(why.name()),
    };
    Secured { version, suite, is_resumed, why }
}

/// Notes what cannot be understood by its first line.
pub(crate) fn begin_unreadable(worker: &Worker, peer: &Peer, bytes: &[u8]) -> Box<AccessEntry> {
    let mut exchange = worker.desk.borrow_mut().spare.pop().unwrap_or_default();
    exchange.clear();
    exchange.tls = peer.session().map(|session| secured(session.facts()));
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    exchange.target.extend_from_slice(&without_tokens(&line[..line.len().min(MOST_LINE)]));
    exchange
}

/// Notes how the body of a request was received.
pub(crate) fn received(worker: &Worker, exchange: &mut AccessEntry, received: &Received) {
    exchange.received = received.report.bytes();
    exchange.record(&received.report);
    if let Some(broken) = &received.broken {
        exchange.failure = Some(broken.word);
        worker.shared.metrics.worker(worker.index).failed(broken.word);
        if let Some(reason) = broken.reason.clone() {
            let target = String::from_utf8_lossy(&exchange.target).into_owned();
            worker.shared.note(Note::Failed { target, reason });
        }
    }
}

/// Notes how the response ended, of which the first `head_len` bytes were its head.
pub(crate) fn finish(
    worker: &Worker,
    peer: &Peer,
    mut exchange: Box<AccessEntry>,
    outcome: &SendOutcome,
    head_len: usize,
) {
    let metrics = worker.shared.metrics.worker(worker.index);
    metrics.request(exchange.status, exchange.duration);
    if !outcome.is_counted {
        metrics.record(&outcome.report);
    }
    exchange.sent = outcome.report.bytes().saturating_sub(head_len as u64);
    if let Some(failure) = &outcome.failure {
        exchange.failure.get_or_insert(failure.word());
        metrics.failed(failure.word());
        if let Some(reason) = failure.reason() {
            let target = String::from_utf8_lossy(&exchange.target).into_owned();
            worker.shared.note(Note::Failed { target, reason });
        }
    }
    if worker.shared.settings.log.is_none() {
        recycle(worker, exchange);
        return;
    }
    exchange.record(&outcome.report);
    exchange.usage = exchange.usage + outcome.usage;
    let pending = Pending { exchange, end: peer.written.get() };
    peer.pending.borrow_mut().push_back(pending);
}

/// Whether the responses that have not arrived are so few that there may be one more.
pub(crate) fn has_room(worker: &Worker, peer: &Peer) -> bool {
    let pending = peer.pending.borrow();
    let bytes = pending.iter().map(|pending| pending.exchange.memory()).sum();
    // One can always be noted, whatever others have.
    let is_within_budget = worker.shared.entries.hold(&peer.entries, bytes) || pending.is_empty();
    is_within_budget && pending.len() < MAX_PENDING && bytes < MAX_PENDING_BYTES
}

/// Writes the lines of responses of which everything has arrived; at the connection's end those
/// of all.
pub(crate) fn settle(worker: &Worker, peer: &Peer, is_over: bool) {
    let mut pending = peer.pending.borrow_mut();
    if pending.is_empty() {
        return;
    }
    let acknowledged = peer.acknowledged();
    while let Some(front) = pending.front() {
        let missing = front.end.saturating_sub(acknowledged);
        if missing > 0 && !is_over {
            break;
        }
        let Some(Pending { mut exchange, .. }) = pending.pop_front() else { break };
        exchange.acknowledged = exchange.sent.saturating_sub(missing);
        exchange.is_complete = exchange.failure.is_none() && missing == 0;
        write(worker, peer, &mut exchange);
        recycle(worker, exchange);
    }
    if is_over {
        worker.shared.entries.release(&peer.entries);
    }
}

/// Writes one line, unless nobody wants any.
fn write(worker: &Worker, peer: &Peer, exchange: &mut AccessEntry) {
    let Some(format) = &worker.shared.settings.log else { return };
    exchange.peer.clear();
    peer.write_name(&mut exchange.peer);
    let Desk { time, line, .. } = &mut *worker.desk.borrow_mut();
    line.clear();
    format.line_into(exchange, time, line);
    (worker.shared.log)(line);
}

/// Keeps the memory of an entry for another one.
pub(crate) fn recycle(worker: &Worker, exchange: Box<AccessEntry>) {
    let spare = &mut worker.desk.borrow_mut().spare;
    if spare.len() < MOST_SPARE {
        spare.push(exchange);
    }
}

/// Returns what the register of live transfers is told about a request before there is a response.
pub(crate) fn request_facts(ctx: &RequestContext<'_>) -> TransferFacts {
    let entry = begin(ctx.worker, ctx.peer, &ctx.request);
    let facts =
        TransferFacts { user: ctx.user.clone(), ..transfer_facts(ctx.peer, &entry, ctx.started) };
    recycle(ctx.worker, entry);
    facts
}

/// What the register of live transfers is told about a response.
pub(crate) fn transfer_facts(
    peer: &Peer,
    exchange: &AccessEntry,
    started: Instant,
) -> TransferFacts {
    let mut name = String::new();
    peer.write_name(&mut name);
    TransferFacts {
        peer: name,
        user: exchange.user.clone(),
        verb: exchange.verb.clone(),
        target: without_token(&exchange.target),
        status: exchange.status,
        expected: exchange.body_len,
        started,
    }
}

/// Responses of one connection that may be unread before its next request is looked at.
const MAX_PENDING: usize = 128;

/// Bytes that are kept of those for the log.
const MAX_PENDING_BYTES: usize = 64 << 10;

/// Bytes of a method that are logged.
const MAX_VERB: usize = 32;

/// Bytes of a target that are logged.
const MAX_TARGET: usize = 2 << 10;

/// Bytes of a field that are logged.
const MAX_FIELD: usize = 512;

/// Bytes of an unreadable request that are logged.
const MOST_LINE: usize = 512;

/// Exchanges kept for their memory.
const MOST_SPARE: usize = 64;
