//! Serves one connection: reads requests, has them answered, and sends the responses in their
//! order.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Instant;

use tokio::time::sleep;
use underpass_engine::socket;

use crate::connection::Link;
use crate::connection::canned::{CONTRADICTION, TOO_MANY_DETAIL};
use crate::connection::discard_body::{MAX_DISCARDED, discard_body, linger};
use crate::connection::exchange::{BegunResponse, Exchange, PendingRequest, SentResponse};
use crate::connection::handshake;
use crate::connection::outcome::{After, Responding, SendFailure, SendOutcome};
use crate::connection::peer::Activity;
use crate::connection::proxy_header::RefusedHeader;
use crate::connection::send::Sending;
use crate::connection::turn::{MAX_IN_TURN, is_costly, poll_interval, wait_in_line};
use crate::files::resume;
use crate::observe::access_entry;
use crate::routing::context::RequestContext;
use crate::routing::endpoints;
use crate::routing::response::{RETRY_LATER, RETRY_SOON, Response};
use crate::routing::router;
use crate::server::listen::kind::ListenerKind;
use crate::server::sites::local::Selection;
use underpass_protocol::request::{self, BodyLength, MAX_HEAD, Malformed, Request};

/// Serves one connection to its end.
///
/// Not an `async fn`, which would store its argument twice, for as long as the connection lasts.
#[expect(clippy::manual_async_fn, reason = "it is smaller")]
pub(crate) fn serve<'a>(mut connection: Box<Connection<'a>>) -> impl Future<Output = ()> + 'a {
    async move {
        let link = connection.link;
        if let (ListenerKind::Tls, Some(credentials), None) =
            (link.peer.listener, &link.worker.shared.settings.tls, &connection.refused)
        {
            // Boxed, so that its memory is free again when the first request arrives.
            if !Box::pin(handshake::run(link, credentials)).await {
                return;
            }
        }
        let end = loop {
            let next = connection.next().await;
            let then = connection.handle(next).await;
            if !matches!(then, After::ReadOn) {
                break then;
            }
        };
        if let After::Linger(max_discarded) = end {
            Box::pin(linger(connection.link, max_discarded)).await;
        }
        connection.end();
    }
}

/// A connection with the bytes of requests that are not answered yet.
pub(crate) struct Connection<'a> {
    link: Link<'a>,
    /// The bytes that arrived instead of a proxy's header.
    refused: Option<Box<RefusedHeader>>,
    buffer: Vec<u8>,
    /// The time at which the first bytes of the current request arrived. For a pipelined request,
    /// and until any arrive, the time at which the kernel had all of the last response.
    started: Instant,
    /// The number of requests answered since other connections had their turn.
    in_turn: u8,
    /// Whether the last read was so large that the client's next request waits in line.
    is_costly: bool,
}

/// The next action about a request.
enum Next<'a> {
    /// None: it was for a hot file, and the kernel has the response.
    Done(After),
    /// Send the rest of a hot file.
    Continue(Box<BegunResponse<'a>>),
    /// Answer the request.
    Answer(Box<PendingRequest>),
    /// Send a response that is known already.
    Reject(Box<Exchange>),
}

impl<'a> Connection<'a> {
    /// Creates the state of a new connection. If its proxy sent no valid header, `refused` has the
    /// bytes that arrived instead.
    pub(crate) fn new(link: Link<'a>, refused: Option<Box<RefusedHeader>>) -> Self {
        let started = Instant::now();
        Self { link, refused, buffer: Vec::new(), started, in_turn: 0, is_costly: false }
    }

    /// Responds to a request, or returns how the connection ends if there is none.
    fn handle(&mut self, next: Option<Next<'a>>) -> Responding<'_> {
        match next {
            Some(Next::Done(then)) => Responding::Done(then),
            Some(next) => {
                self.in_turn = MAX_IN_TURN;
                // Boxed, which keeps waiting connections small.
                Responding::Slow(Box::pin(self.respond_in_turn(next)))
            }
            None if self.link.peer.is_sending_on() => {
                Responding::Done(After::Linger(MAX_DISCARDED))
            }
            None => Responding::Done(After::Close),
        }
    }

    /// Writes the last entries of the log, and closes the TLS session.
    fn end(&self) {
        let peer = self.link.peer;
        peer.requests.release();
        resume::end(self.link, peer.has_delivered_all());
        let _ = access_entry::write_arrived(self.link, true);
        if matches!(peer.activity(), Activity::Idle | Activity::Reading) {
            peer.send_close_notify();
        }
    }

    /// Reads the next request; `None` if there is none.
    async fn next(&mut self) -> Option<Next<'a>> {
        if let Some(refused) = self.refused.take() {
            let detail = refused.fault.to_string();
            return Some(self.reject(&refused.bytes, 400, &detail, Instant::now()));
        }
        // Boxed because it is rare.
        if !access_entry::has_room(self.link) && !Box::pin(self.entries_have_room()).await {
            return None;
        }
        self.link.peer.set_activity(Activity::Idle, self.started);
        if self.buffer.is_empty() {
            self.in_turn = 0;
        } else {
            // A client that pipelines requests must not keep others waiting.
            let waits = self.in_turn >= MAX_IN_TURN || self.is_costly;
            if waits {
                self.link.peer.set_activity(Activity::Waiting, self.started);
            }
            let turn = if waits { Some(wait_in_line(self.link, self.started).await) } else { None };
            self.in_turn = if waits { 1 } else { self.in_turn + 1 };
            let bytes = std::mem::take(&mut self.buffer);
            let next = self.parse_buffered(bytes, self.started);
            drop(turn);
            if next.is_some() {
                return next;
            }
            self.link.peer.begin_request(Instant::now());
        }
        loop {
            if self.link.worker.is_draining() && self.buffer.is_empty() && self.link.peer.is_done()
            {
                return None;
            }
            self.link.peer.readable().await.ok()?;
            let waits = self.is_costly;
            let turn = if waits { Some(wait_in_line(self.link, self.started).await) } else { None };
            let now = Instant::now();
            if self.buffer.is_empty() {
                self.started = now;
            }
            let next = self.read(self.started);
            drop(turn);
            if let Break(next) = next {
                return next;
            }
            if !self.buffer.is_empty() && self.link.peer.activity() == Activity::Idle {
                self.link.peer.begin_request(now);
            }
        }
    }

    /// Reads available bytes; breaks with the next action if they complete a request, and with
    /// `None` if nothing more arrives.
    fn read(&mut self, started: Instant) -> ControlFlow<Option<Next<'a>>> {
        // Most requests arrive whole and are answered from the worker's buffer, so a waiting
        // connection needs none.
        let mut scratch = self.link.worker.scratch.borrow_mut();
        let read = match self.link.peer.read(&mut scratch) {
            Ok(Some(0)) => return Break(self.input_ended(started)),
            Ok(Some(read)) => &scratch[..read],
            Ok(None) => return Continue(()),
            Err(_) => return Break(None),
        };
        self.is_costly = is_costly(read.len());
        if access_entry::write_arrived_before_next(self.link).is_break() {
            return Break(None);
        }
        if self.buffer.is_empty() {
            let Some((next, len)) = self.parse_next(read, started) else {
                self.buffer = read.to_vec();
                return Continue(());
            };
            self.keep_unread(read[len..].to_vec());
            return Break(Some(next));
        }
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.reserve_exact(read.len().next_multiple_of(GROWTH));
        bytes.extend_from_slice(read);
        let next = if request::may_be_over(&bytes, read.len()) {
            self.parse_buffered(bytes, started)
        } else {
            let refused = self.wait_for_more(&bytes, started);
            self.buffer = bytes;
            refused.map(|(next, _)| next)
        };
        next.map_or(Continue(()), |next| Break(Some(next)))
    }

    /// Handles all bytes that were read, and keeps those after the request at the front.
    fn parse_buffered(&mut self, mut bytes: Vec<u8>, started: Instant) -> Option<Next<'a>> {
        match self.parse_next(&bytes, started) {
            Some((next, len)) => {
                bytes.drain(..len);
                self.keep_unread(bytes);
                Some(next)
            }
            None => {
                self.buffer = bytes;
                None
            }
        }
    }

    /// Parses the request at the front, if it is complete, and answers it if that is possible at
    /// once; returns the number of bytes used.
    fn parse_next(&mut self, bytes: &[u8], started: Instant) -> Option<(Next<'a>, usize)> {
        let mut usual = [httparse::EMPTY_HEADER; USUAL_FIELDS];
        let mut all = None;
        let mut parsed = request::parse(bytes, &mut usual);
        if matches!(parsed, Err(Malformed::TooManyFields)) {
            parsed = request::parse(bytes, all.insert([httparse::EMPTY_HEADER; MAX_FIELDS]));
        }
        let (request, len) = match parsed {
            Ok(Some(parsed)) if parsed.1 <= MAX_HEAD => parsed,
            Ok(None) if bytes.len() < MAX_HEAD => return self.wait_for_more(bytes, started),
            Ok(_) => return Some(self.malformed(bytes, &request::too_long(bytes), started)),
            Err(fault) => return Some(self.malformed(bytes, &fault, started)),
        };
        let body = match request.body() {
            Ok(body) => body,
            Err(fault) => return Some(self.malformed(bytes, &fault, started)),
        };
        let Link { worker, peer } = self.link;
        peer.note_request();
        if peer.identify(&request, &worker.shared.settings.trusted_proxies).is_err() {
            return Some((self.reject(bytes, 400, CONTRADICTION, started), bytes.len()));
        }
        let selection = worker.select(peer, &request);
        if peer.is_for_health && !endpoints::is_health(&selection.site.site.settings, &request) {
            return Some((self.refuse_connection(&bytes[..len], started), len));
        }
        // Without room for the following bytes the connection ends; the client may send them again.
        let has_room = self.try_hold(bytes.len() - len);
        if body == BodyLength::None
            && let Some(next) = self.respond_at_once(request, &selection, started, has_room)
        {
            return Some((next, if has_room { len } else { bytes.len() }));
        }
        let pending = PendingRequest::new(&request, selection, body, started);
        if !self.try_hold(bytes.len() - len + pending.request.memory()) {
            return Some(self.refuse_large(bytes, started));
        }
        Some((Next::Answer(Box::new(pending)), len))
    }

    /// Answers a request for a hot file, and sends as much as the socket takes; `None` if anything
    /// has to wait before that.
    fn respond_at_once(
        &mut self,
        request: Request<'_, '_>,
        selection: &Selection,
        started: Instant,
        has_room: bool,
    ) -> Option<Next<'a>> {
        let mut ctx = RequestContext::new(self.link, request, selection, started);
        let mut response = router::respond_at_once(&mut ctx)?;
        response.closes |= !has_room;
        let exchange = Exchange::new(&mut ctx, response, BodyLength::None);
        let is_guarded = exchange.is_guarded();
        let keeps_alive = exchange.keeps_alive && !self.link.worker.is_draining();
        match exchange.start(self.link, keeps_alive) {
            (ending, Sending::Done(outcome)) if outcome.is_unsent_change() => {
                access_entry::recycle(self.link.worker, ending.entry);
                self.forget_changed();
                None
            }
            (ending, Sending::Done(outcome)) => {
                Some(Next::Done(self.finish_response(ending, outcome)))
            }
            (ending, Sending::Slow(sending)) => {
                let body = BodyLength::None;
                let again = || PendingRequest::new(&ctx.request, selection.clone(), body, started);
                let retry = is_guarded.then(again);
                Some(Next::Continue(Box::new(BegunResponse { ending, sending, retry })))
            }
        }
    }

    /// Responds as [`respond`](Self::respond) does, in line if the request was costly.
    async fn respond_in_turn(&mut self, next: Next<'a>) -> After {
        if self.is_costly && matches!(next, Next::Answer(_) | Next::Reject(_)) {
            self.link.peer.set_activity(Activity::Waiting, Instant::now());
            return self.link.worker.turns.run(Box::pin(self.respond(next))).await;
        }
        self.respond(next).await
    }

    /// Answers a request if that has not been done yet, and sends the response to its end.
    async fn respond(&mut self, mut next: Next<'a>) -> After {
        let mut attempts = 0;
        loop {
            let BegunResponse { ending, sending, retry } = match next {
                Next::Done(then) => return then,
                Next::Continue(begun) => *begun,
                Next::Reject(exchange) => self.begin_response(*exchange, None).await,
                Next::Answer(pending) => {
                    let exchange = Box::pin(self.answer(&pending)).await;
                    self.begin_response(exchange, Some(pending)).await
                }
            };
            let outcome = sending.await;
            if outcome.is_unsent_change() {
                self.forget_changed();
                // Nothing of the old version was sent, so the new one can be.
                if let Some(pending) = retry.filter(|_| attempts < MAX_ATTEMPTS) {
                    attempts += 1;
                    access_entry::recycle(self.link.worker, ending.entry);
                    next = Next::Answer(Box::new(pending));
                    continue;
                }
                next = Next::Reject(Box::new(Exchange::being_written(ending)));
                continue;
            }
            return self.finish_response(ending, outcome);
        }
    }

    /// Has a handler answer a request.
    async fn answer(&mut self, pending: &PendingRequest) -> Exchange {
        self.link.peer.set_activity(Activity::Waiting, Instant::now());
        let mut fields = Vec::new();
        let request = pending.request.request(&mut fields);
        let (selection, started) = (&pending.selection, pending.started);
        let mut ctx = RequestContext::new(self.link, request, selection, started);
        ctx.ahead.set(std::mem::take(&mut self.buffer));
        let response = router::respond(&mut ctx).await;
        self.buffer = ctx.ahead.take();
        // The amount is less than before, so there is room for it.
        let _ = self.try_hold(self.buffer.len());
        Exchange::new(&mut ctx, response, pending.body)
    }

    /// Discards the body of a request that no handler has received, and begins to send the
    /// response.
    async fn begin_response(
        &mut self,
        exchange: Exchange,
        pending: Option<Box<PendingRequest>>,
    ) -> BegunResponse<'a> {
        let mut keeps_alive = exchange.keeps_alive && !self.link.worker.is_draining();
        if let Some(body) = exchange.unread.filter(|_| keeps_alive) {
            let (buffer, is_withheld) = (&mut self.buffer, exchange.is_body_withheld);
            keeps_alive = discard_body(self.link, buffer, body, is_withheld).await;
        }
        let is_guarded = exchange.is_guarded() && exchange.unread == Some(BodyLength::None);
        let retry = pending.filter(|_| is_guarded).map(|pending| *pending);
        let (ending, sending) = exchange.start(self.link, keeps_alive);
        BegunResponse { ending, sending: sending.into_slow(), retry }
    }

    /// Records the outcome of a response; returns the next action. Every response ends here: one
    /// with fewer bytes than promised has failed, and is reset.
    fn finish_response(&mut self, ending: SentResponse, mut outcome: SendOutcome) -> After {
        let SentResponse { mut entry, started, now, head_len, promised, is_logged, .. } = ending;
        if outcome.is_short(promised) {
            let _ = socket::arm_reset(&self.link.peer.socket);
            outcome.failure = Some(SendFailure::Short);
        }
        entry.started = now;
        self.started = Instant::now();
        entry.duration = self.started.duration_since(started);
        if is_logged {
            access_entry::finish(self.link, entry, &outcome, head_len);
        }
        if outcome.failure.is_some() {
            resume::end(self.link, false);
            return After::Close;
        }
        // The end may have been announced while the last byte was still on its way.
        if ending.keeps_alive && !self.link.worker.is_draining() {
            After::ReadOn
        } else {
            After::Linger(ending.max_discarded)
        }
    }

    /// Closes all open files of the worker, because one changed before its first byte was sent.
    fn forget_changed(&self) {
        // The engine has armed a reset so that a client notices a truncated response.
        let _ = socket::disarm_reset(&self.link.peer.socket);
        // Nothing of this download was sent, so it says nothing about an earlier one.
        self.link.peer.download.set(None);
        self.link.worker.forget_files();
    }

    /// Waits for the rest of a request, if there is room for the bytes so far.
    fn wait_for_more(&mut self, bytes: &[u8], started: Instant) -> Option<(Next<'a>, usize)> {
        (!self.try_hold(bytes.len())).then(|| self.refuse_large(bytes, started))
    }

    /// Reserves memory for bytes of requests that are held until more arrive or a response is
    /// known; returns whether that many are allowed.
    fn try_hold(&self, bytes: usize) -> bool {
        let encrypted = self.link.peer.session().map_or(0, |session| session.kept());
        let Link { worker, peer } = self.link;
        worker.shared.requests.hold(&peer.requests, peer.address(), bytes + encrypted)
    }

    /// Keeps the bytes after a request until it is answered.
    fn keep_unread(&mut self, mut rest: Vec<u8>) {
        if rest.capacity() > rest.len() + GROWTH {
            rest.shrink_to_fit();
        }
        self.buffer = rest;
    }

    /// Waits until the log can hold one more unacknowledged response; returns false if the
    /// connection is to end.
    async fn entries_have_room(&self) -> bool {
        let (link, since) = (self.link, Instant::now());
        let mut then = access_entry::write_arrived(link, false);
        while then.is_continue() && !access_entry::has_room(link) && !link.worker.is_draining() {
            if link.peer.activity() != Activity::Sending {
                link.peer.set_activity(Activity::Sending, since);
            }
            sleep(poll_interval(since)).await;
            if link.peer.is_expired() {
                return false;
            }
            then = access_entry::write_arrived(link, false);
        }
        then.is_continue()
    }

    /// Refuses a malformed request; nothing after it can be parsed either.
    fn malformed(&self, bytes: &[u8], fault: &Malformed, started: Instant) -> (Next<'a>, usize) {
        (self.reject(bytes, fault.status(), &fault.to_string(), started), bytes.len())
    }

    /// Refuses a request for which there is no memory.
    fn refuse_large(&self, bytes: &[u8], started: Instant) -> (Next<'a>, usize) {
        (self.reject(bytes, 503, REQUESTS_TOO_LARGE, started), bytes.len())
    }

    /// Creates the last response of a connection, to a request of which little is known.
    fn reject(&self, bytes: &[u8], status: u16, detail: &str, started: Instant) -> Next<'a> {
        self.link.peer.note_request();
        let mut response = Response::error(status, detail);
        if status == 503 {
            response.add_field("Retry-After", RETRY_SOON);
        }
        Next::Reject(Box::new(Exchange::rejected(self.link, bytes, response, started)))
    }

    /// Refuses a request for anything but the health check, over a connection of the reserve.
    fn refuse_connection(&self, bytes: &[u8], started: Instant) -> Next<'a> {
        self.link.worker.metrics().connection_refused();
        let mut response = Response::error(503, TOO_MANY_DETAIL).unlogged();
        response.add_field("Retry-After", RETRY_LATER);
        Next::Reject(Box::new(Exchange::rejected(self.link, bytes, response, started)))
    }

    /// Ends a connection over which nothing more arrives: at once, or with an error if a request
    /// was begun and took too long.
    fn input_ended(&mut self, started: Instant) -> Option<Next<'a>> {
        let bytes = std::mem::take(&mut self.buffer);
        if self.link.peer.is_for_health && self.link.peer.is_expired() {
            return Some(self.refuse_connection(&bytes, started));
        }
        (!bytes.is_empty() && self.link.peer.is_expired())
            .then(|| self.reject(&bytes, 408, "the request was not complete in time", started))
    }
}

/// The maximum number of attempts to answer a request while a file keeps changing.
const MAX_ATTEMPTS: u32 = 4;

/// The number of fields with initial room: clearing room for more takes as long as parsing.
const USUAL_FIELDS: usize = 16;

/// The maximum number of fields in a request's head.
const MAX_FIELDS: usize = 64;

/// The number of bytes by which the memory for a request grows.
const GROWTH: usize = 2 << 10;

/// The error if incomplete requests have used up their memory.
const REQUESTS_TOO_LARGE: &str = "too many large requests at once; try again soon";
