//! A request with its response, from when both are known until the response has been sent.

use std::rc::Rc;
use std::time::{Instant, SystemTime};

use crate::connection::Link;
use crate::connection::discard_body::{MAX_DISCARDED, MAX_REFUSED};
use crate::connection::peer::Activity;
use crate::connection::send::{Sending, SlowSend};
use crate::files::resume;
use crate::observe::access_entry;
use crate::routing::context::RequestContext;
use crate::routing::response::{Body, RETRY_SOON, Response};
use crate::server::sites::local::{LocalSite, Selection};
use crate::uploads::BodyState;
use underpass_observe::access_log::AccessEntry;
use underpass_protocol::request::{BodyLength, OwnedRequest, Request};
use underpass_protocol::response::head::{ConnectionField, ResponseHead};

/// A request that waits for its response.
pub(crate) struct PendingRequest {
    pub(crate) request: OwnedRequest,
    pub(crate) selection: Selection,
    pub(crate) body: BodyLength,
    /// The time at which its first byte arrived.
    pub(crate) started: Instant,
}

impl PendingRequest {
    pub(crate) fn new(
        request: &Request<'_, '_>,
        selection: Selection,
        body: BodyLength,
        started: Instant,
    ) -> Self {
        Self { request: OwnedRequest::new(request), selection, body, started }
    }
}

/// A request with its response.
pub(crate) struct Exchange {
    site: Rc<LocalSite>,
    pub(crate) response: Response,
    pub(crate) entry: Box<AccessEntry>,
    started: Instant,
    now: SystemTime,
    /// The rest of the request's body; `None` if a handler has received it.
    pub(crate) unread: Option<BodyLength>,
    /// Whether the client waits for an invitation to send the body, and will not get one.
    pub(crate) is_body_withheld: bool,
    /// Whether the client and the response allow keeping the connection.
    pub(crate) keeps_alive: bool,
    is_http10: bool,
    /// The maximum number of bytes to discard after the last response, so that no reset loses it.
    max_discarded: u64,
}

impl Exchange {
    pub(crate) fn new(ctx: &mut RequestContext<'_>, response: Response, body: BodyLength) -> Self {
        let (Link { worker, peer }, request) = (ctx.link(), &ctx.request);
        let mut exchange = Self {
            site: Rc::clone(&ctx.selection.site),
            entry: access_entry::begin(ctx),
            started: ctx.started,
            now: ctx.now,
            unread: Some(body),
            is_body_withheld: request.expects_continue(),
            keeps_alive: request.keeps_alive() && !response.is_last() && !peer.is_for_health,
            is_http10: request.minor_version == 0,
            max_discarded: if response.status < 400 { MAX_DISCARDED } else { MAX_REFUSED },
            response,
        };
        exchange.entry.user = ctx.user.take();
        exchange.entry.site.clone_from(&ctx.site().counts);
        exchange.note_response();
        if let Some(received) = ctx.received.take() {
            peer.written.set(peer.written.get() + received.interim);
            access_entry::received(worker, &mut exchange.entry, &received);
            exchange.unread = exchange.unread.filter(|_| received.body == BodyState::Untouched);
            exchange.keeps_alive &= received.body != BodyState::Incomplete;
            exchange.max_discarded = MAX_REFUSED;
        }
        exchange
    }

    /// Creates the last response of a connection, to a request of which little is known.
    pub(crate) fn rejected(
        link: Link<'_>,
        bytes: &[u8],
        mut response: Response,
        started: Instant,
    ) -> Self {
        // A request that is refused for lack of room must not keep taking it.
        let is_busy = response.status == 503;
        // RFC 9110 9.3.2.
        if bytes.trim_ascii_start().starts_with(b"HEAD ") {
            response.body = Body::Nothing;
        }
        let mut exchange = Self {
            site: link.worker.default_site(),
            response,
            entry: access_entry::begin_unreadable(link, bytes),
            started,
            now: SystemTime::now(),
            unread: None,
            is_body_withheld: false,
            keeps_alive: false,
            is_http10: false,
            max_discarded: if is_busy { MAX_DISCARDED } else { MAX_REFUSED },
        };
        exchange.note_response();
        exchange
    }

    /// Creates the last response of a connection, for a file that kept changing before its first
    /// byte was sent.
    pub(crate) fn being_written(ending: SentResponse) -> Self {
        let SentResponse { site, entry, started, now, max_discarded, .. } = ending;
        let mut response = Response::error(503, "the file is being written to; try again soon");
        response.add_field("Retry-After", RETRY_SOON);
        let mut exchange = Self {
            site,
            response,
            entry,
            started,
            now,
            unread: None,
            is_body_withheld: false,
            keeps_alive: false,
            is_http10: false,
            max_discarded,
        };
        exchange.note_response();
        exchange
    }

    fn note_response(&mut self) {
        self.entry.status = self.response.status;
        self.entry.body_len = self.response.len.unwrap_or(0);
        self.entry.part = self.response.part;
        self.entry.has_stored = self.response.has_stored;
        if let Some(cache) = &self.response.cache {
            self.entry.cache = Some(cache.status.label());
            self.entry.origin_bytes = cache.origin_bytes;
            self.entry.waited = cache.waited;
        }
    }

    /// Returns whether sending checks the file before its first byte, so that another response is
    /// still possible if it has changed.
    pub(crate) fn is_guarded(&self) -> bool {
        matches!(&self.response.body, Body::File(file) if file.is_guarded)
    }

    /// Begins to send the response, with the field that tells whether the connection is kept.
    pub(crate) fn start<'a>(
        self,
        link: Link<'a>,
        keeps_alive: bool,
    ) -> (SentResponse, Sending<'a>) {
        let Link { worker, peer } = link;
        let Self { site, response, entry, started, now, is_http10, max_discarded, .. } = self;
        let mut head = worker.message.take();
        head.clear();
        head.reserve(HEAD_CAPACITY);
        let connection =
            if keeps_alive { ConnectionField::KeepAlive } else { ConnectionField::Close };
        let custom = response.custom.as_deref().unwrap_or(&site.site.custom_fields);
        worker.with_date(response.date.unwrap_or(now), |date| {
            let fields = response.rendered.as_deref().unwrap_or(&response.fields);
            let status = response.status;
            ResponseHead { status, date, connection, is_http10, custom, fields }.write(&mut head);
        });
        let (head_len, integrity) = (head.len(), site.site.settings.integrity);
        peer.set_activity(Activity::Sending, started);
        resume::begin(link, response.download, head_len);
        let facts = || access_entry::transfer_facts(&entry, peer, started);
        let body_len = if let Body::Nothing = response.body { Some(0) } else { response.len };
        let promised = body_len.map(|len| head_len as u64 + len);
        let sending = Sending::start(link, integrity, head, started, response.body, facts);
        let is_logged = response.is_logged;
        let sent = SentResponse {
            site,
            entry,
            started,
            now,
            head_len,
            promised,
            is_logged,
            keeps_alive,
            max_discarded,
        };
        (sent, sending)
    }
}

/// The state that is needed to finish a response once it has been sent.
pub(crate) struct SentResponse {
    /// The site that the request is for.
    pub(crate) site: Rc<LocalSite>,
    pub(crate) entry: Box<AccessEntry>,
    pub(crate) started: Instant,
    pub(crate) now: SystemTime,
    pub(crate) head_len: usize,
    /// The number of bytes of head and body; `None` if the body delimits itself.
    pub(crate) promised: Option<u64>,
    pub(crate) is_logged: bool,
    pub(crate) keeps_alive: bool,
    pub(crate) max_discarded: u64,
}

/// The size of a typical head in bytes.
const HEAD_CAPACITY: usize = 512;

/// A response whose sending has begun.
pub(crate) struct BegunResponse<'a> {
    pub(crate) ending: SentResponse,
    pub(crate) sending: SlowSend<'a>,
    /// The request, if it may have to be answered again.
    pub(crate) retry: Option<PendingRequest>,
}
