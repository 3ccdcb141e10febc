//! A request with its response, from the moment in which both are known to that in which the response
//! has been sent.

use std::time::{Instant, SystemTime};

use super::super::access_entry;
use super::super::context::RequestContext;
use super::super::peer::{Doing, Peer};
use super::super::response::{Body, Response};
use super::super::resume;
use super::super::send::Sending;
use super::super::uploads::BodyState;
use super::super::worker::Worker;
use super::discard_body::{MAX_DISCARDED, MAX_REFUSED};
use crate::access_log::AccessEntry;
use crate::head::{Connection as Wish, write_head};
use crate::request::{BodyLength, OwnedRequest};

/// A request that waits for its response.
pub(super) struct Arrival {
    pub(super) request: OwnedRequest,
    pub(super) body: BodyLength,
    /// When its first byte came.
    pub(super) started: Instant,
}

/// A request with its response.
pub(super) struct Exchange {
    pub(super) response: Response,
    pub(super) entry: Box<AccessEntry>,
    started: Instant,
    now: SystemTime,
    /// What of the request's body is still to come; `None` if a handler has received it.
    pub(super) unread: Option<BodyLength>,
    /// Whether the client waits to be told that it may send the body, and will not be.
    pub(super) is_body_withheld: bool,
    /// Whether the client and the response let the connection go on.
    pub(super) keeps_alive: bool,
    is_http10: bool,
    /// Bytes that are read after the last response, so that the client gets it.
    max_discarded: u64,
}

impl Exchange {
    pub(super) fn new(ctx: &mut RequestContext<'_>, response: Response, body: BodyLength) -> Self {
        let (worker, peer, request) = (ctx.worker, ctx.peer, &ctx.request);
        let mut exchange = Self {
            entry: access_entry::begin(worker, peer, request),
            started: ctx.started,
            now: ctx.now,
            unread: Some(body),
            is_body_withheld: request.expects_continue(),
            keeps_alive: request.keeps_alive() && !response.closes && !peer.is_reserve,
            is_http10: request.minor_version == 0,
            max_discarded: MAX_DISCARDED,
            response,
        };
        exchange.entry.user = ctx.user.take();
        exchange.note_response();
        if let Some(received) = ctx.received.take() {
            peer.written.set(peer.written.get() + received.interim);
            access_entry::received(worker, &mut exchange.entry, &received);
            exchange.unread = exchange.unread.filter(|_| received.body == BodyState::Untouched);
            exchange.keeps_alive &= received.body != BodyState::Broken;
            exchange.max_discarded = MAX_REFUSED;
        }
        exchange
    }

    /// The last word of a connection, to a request of which little is known.
    pub(super) fn rejected(
        worker: &Worker,
        peer: &Peer,
        bytes: &[u8],
        response: Response,
        started: Instant,
    ) -> Self {
        let mut exchange = Self {
            response,
            entry: access_entry::begin_unreadable(worker, peer, bytes),
            started,
            now: SystemTime::now(),
            unread: None,
            is_body_withheld: false,
            keeps_alive: false,
            is_http10: false,
            max_discarded: MAX_DISCARDED,
        };
        exchange.note_response();
        exchange
    }

    fn note_response(&mut self) {
        self.entry.status = self.response.status;
        self.entry.body_len = self.response.len.unwrap_or(0);
    }

    /// Returns whether the file may be found changed before its first byte is sent, so that another
    /// response can be.
    pub(super) fn is_guarded(&self) -> bool {
        matches!(&self.response.body, Body::File(file) if file.is_guarded)
    }

    /// Begins to send the response, with the word on whether the connection goes on.
    pub(super) fn send<'a>(
        self,
        worker: &'a Worker,
        peer: &'a Peer,
        keeps_alive: bool,
    ) -> (Ending, Sending<'a>) {
        let Self { response, entry, started, now, is_http10, max_discarded, .. } = self;
        let mut head = Vec::with_capacity(HEAD_CAPACITY);
        let wish = if keeps_alive { Wish::KeepAlive } else { Wish::Close };
        let custom = &worker.shared.custom_fields;
        worker.with_date(now, |date| {
            let (status, fields) = (response.status, &response.fields);
            write_head(&mut head, status, date, wish, is_http10, custom, fields);
        });
        let head_len = head.len();
        peer.begins(Doing::Sending, started);
        resume::begin(worker, peer, response.download);
        let facts = || access_entry::transfer_facts(peer, &entry, started);
        let sending = Sending::begin(worker, peer, head, response.body, facts);
        let is_logged = response.is_logged;
        (Ending { entry, started, now, head_len, is_logged, keeps_alive, max_discarded }, sending)
    }
}

/// What is left to be done when a response has been sent.
pub(super) struct Ending {
    pub(super) entry: Box<AccessEntry>,
    pub(super) started: Instant,
    pub(super) now: SystemTime,
    pub(super) head_len: usize,
    pub(super) is_logged: bool,
    pub(super) keeps_alive: bool,
    pub(super) max_discarded: u64,
}

/// Bytes of a usual head.
const HEAD_CAPACITY: usize = 512;
