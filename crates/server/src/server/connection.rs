//! One connection: reads requests, has them answered, sends the answers in their order.

mod rest;

use std::time::{Instant, SystemTime};

use tokio::time::sleep;
use underpass_engine::socket;

use self::rest::MOST_SKIPPED;
use super::answer::Asking;
use super::canned::{BEING_WRITTEN, TOO_MANY_DETAIL};
use super::endpoints;
use super::peer::{Doing, Peer};
use super::poll::poll_interval;
use super::question::{Known, Question};
use super::record;
use super::response::{Body, Response};
use super::resume;
use super::role::Role;
use super::send::Sending;
use super::sent::Sent;
use super::shake;
use super::uploads::{BodyState, Outcome, Upload};
use super::worker::Worker;
use crate::access_log::Exchange;
use crate::head::{Connection as Wish, write_head};
use crate::request::{self, BodyLength, Malformed};
use crate::resumption::Download;
use crate::transfers::TransferFacts;

/// Serves one connection to its end.
pub(super) async fn serve(worker: &Worker, peer: &Peer) {
    if let (Role::Tls, Some(credentials)) = (peer.role, &worker.shared.settings.tls) {
        // On the heap: nothing of it is left when the first request comes.
        if !Box::pin(shake::hands(worker, peer, credentials)).await {
            return;
        }
    }
    let last = Instant::now();
    let mut connection = Connection { worker, peer, buffer: Vec::new(), attempts: 0, last };
    while let Some(turn) = connection.next().await {
        if !connection.take_turn(turn).await {
            break;
        }
    }
    worker.shared.requests.release(&peer.requests);
    resume::end(worker, peer, peer.has_everything());
    record::settle(worker, peer, true);
    if matches!(peer.doing(), Doing::Idle | Doing::Reading) {
        peer.take_leave();
    }
}

/// A connection and what was read of requests that are not answered yet.
struct Connection<'a> {
    worker: &'a Worker,
    peer: &'a Peer,
    buffer: Vec<u8>,
    /// How often the request at hand was answered from a file that had changed by then.
    attempts: u32,
    /// When the last response was with the kernel.
    last: Instant,
}

/// A request with its answer.
struct Turn {
    response: Response,
    exchange: Box<Exchange>,
    started: Instant,
    /// What of the request is still to come.
    body: BodyLength,
    /// Whether the client waits to be told that it may send the body, and will not be.
    is_body_withheld: bool,
    keeps_alive: bool,
    is_http10: bool,
    is_logged: bool,
    /// The request, if it may have to be answered anew.
    again: Option<Box<[u8]>>,
    /// What is to be remembered if the response breaks off.
    download: Option<Download>,
    now: SystemTime,
}

/// How far what was read suffices.
enum Look {
    /// The request is not complete.
    More,
    /// It has to be found out what to answer.
    Ask(Question),
    /// It is answered. The number is the length of its head.
    Answered(Box<Turn>, usize),
}

impl Connection<'_> {
    /// The next request with its answer; `None` if there is none.
    async fn next(&mut self) -> Option<Box<Turn>> {
        if !self.entries_have_room().await {
            return None;
        }
        let mut started = self.last;
        self.peer.begins(Doing::Idle, started);
        let mut known = Known::default();
        if !self.buffer.is_empty() {
            let bytes = std::mem::take(&mut self.buffer);
            let look = self.look(&bytes, started, &mut known);
            if let Some(turn) = self.follow(look, bytes, started, &mut known).await {
                return Some(turn);
            }
        }
        loop {
            if self.worker.is_draining() && self.buffer.is_empty() {
                return None;
            }
            self.peer.readable().await.ok()?;
            let now = Instant::now();
            if self.buffer.is_empty() {
                started = now;
            }
            // Most requests come whole, and are answered in the buffer of the worker: a
            // connection that waits has none of its own.
            let (look, bytes) = {
                let mut scratch = self.worker.scratch.borrow_mut();
                let read = match self.peer.take(&mut scratch) {
                    Ok(Some(0)) => return self.ended(started),
                    Ok(Some(read)) => read,
                    Ok(None) => continue,
                    Err(_) => return None,
                };
                record::settle(self.worker, self.peer, false);
                if self.buffer.is_empty() {
                    let bytes = &scratch[..read];
                    let look = self.look(bytes, started, &mut known);
                    if let Look::Answered(turn, len) = look {
                        let rest = if len < bytes.len() { bytes[len..].to_vec() } else { vec![] };
                        return Some(self.keep(turn, rest));
                    }
                    (look, bytes.to_vec())
                } else {
                    let mut bytes = std::mem::take(&mut self.buffer);
                    bytes.reserve_exact(read.next_multiple_of(GROWTH));
                    bytes.extend_from_slice(&scratch[..read]);
                    let is_worth_a_look = may_be_over(&bytes, read);
                    let look = if is_worth_a_look {
                        self.look(&bytes, started, &mut known)
                    } else {
                        Look::More
                    };
                    (look, bytes)
                }
            };
            if self.peer.doing() == Doing::Idle {
                self.peer.begins_request(now);
            }
            if let Some(turn) = self.follow(look, bytes, started, &mut known).await {
                return Some(turn);
            }
        }
    }

    /// Asks until there is an answer; `None` if the request is not complete, which is kept.
    async fn follow(
        &mut self,
        mut look: Look,
        mut bytes: Vec<u8>,
        started: Instant,
        known: &mut Known,
    ) -> Option<Box<Turn>> {
        loop {
            match look {
                Look::Answered(turn, len) => {
                    bytes.drain(..len);
                    return Some(self.keep(turn, bytes));
                }
                _ if !self.holds(bytes.len()) => {
                    return Some(self.reject(&bytes, 503, REQUESTS_TOO_LARGE, started));
                }
                Look::More => {
                    self.buffer = bytes;
                    return None;
                }
                Look::Ask(question) => {
                    self.peer.begins(Doing::Waiting, Instant::now());
                    // On the heap: few requests need it, and every connection would have its size.
                    Box::pin(question.ask(self.worker, self.peer, known)).await;
                    look = self.look(&bytes, started, known);
                }
            }
        }
    }

    /// Notes how much of requests is kept until more comes or an answer is known; whether that much
    /// may be.
    fn holds(&self, bytes: usize) -> bool {
        let encrypted = self.peer.session().map_or(0, |session| session.kept());
        self.worker.shared.requests.hold(&self.peer.requests, bytes + encrypted)
    }

    /// Keeps what came behind a request until that is answered. If there is no room for it, the
    /// connection ends with the answer, and its client may send the rest anew.
    fn keep(&mut self, mut turn: Box<Turn>, mut rest: Vec<u8>) -> Box<Turn> {
        self.peer.has_asked();
        if !self.holds(rest.len()) && turn.body == BodyLength::None {
            turn.keeps_alive = false;
            rest.clear();
        }
        if rest.capacity() > rest.len() + GROWTH {
            rest.shrink_to_fit();
        }
        self.buffer = rest;
        turn
    }

    /// Waits until so few responses are unread that one more can be noted for the log; false if the
    /// client does not go on reading.
    async fn entries_have_room(&self) -> bool {
        let since = Instant::now();
        while !record::has_room(self.worker, self.peer) && !self.worker.is_draining() {
            if self.peer.doing() != Doing::Sending {
                self.peer.begins(Doing::Sending, since);
            }
            sleep(poll_interval(since)).await;
            if self.peer.is_expired() {
                return false;
            }
            record::settle(self.worker, self.peer, false);
        }
        true
    }

    /// Reads the request at the front, and answers it if that can be done at once.
    fn look(&self, bytes: &[u8], started: Instant, known: &mut Known) -> Look {
        let mut storage = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let (request, len) = match request::parse(bytes, &mut storage) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if bytes.len() < MOST_HEAD => return Look::More,
            Ok(None) => return self.malformed(bytes, &request::too_long(bytes), started),
            Err(fault) => return self.malformed(bytes, &fault, started),
        };
        let body = match request.body() {
            Ok(body) => body,
            Err(fault) => return self.malformed(bytes, &fault, started),
        };
        if self.peer.is_reserve && !endpoints::is_health(&self.worker.shared.settings, &request) {
            let turn = self.turn_away(&bytes[..len], started);
            return Look::Answered(turn, len);
        }
        let mut asking =
            Asking::new(self.worker, self.peer, &request, &bytes[..len], known, started);
        let response = match asking.answer() {
            Ok(response) => response,
            Err(question) => return Look::Ask(question),
        };
        let is_guarded = matches!(&response.body, Body::File(file) if file.is_guarded)
            && body == BodyLength::None;
        let mut exchange = record::begin(self.worker, self.peer, &request);
        exchange.user = asking.user.take();
        exchange.status = response.status;
        exchange.body_len = response.len.unwrap_or(0);
        let turn = Turn {
            exchange,
            started,
            body,
            is_body_withheld: request.expects_continue(),
            keeps_alive: request.keeps_alive() && !response.closes && !self.peer.is_reserve,
            is_http10: request.minor_version == 0,
            is_logged: asking.is_logged,
            again: (is_guarded && len <= MAX_KEPT_HEAD).then(|| bytes[..len].into()),
            download: asking.download,
            now: asking.now,
            response,
        };
        Look::Answered(Box::new(turn), len)
    }

    /// What is said to a request that cannot be understood; nothing behind it can be either.
    fn malformed(&self, bytes: &[u8], fault: &Malformed, started: Instant) -> Look {
        Look::Answered(self.reject(bytes, fault.status(), &fault.to_string(), started), bytes.len())
    }

    /// The last word of a connection, to a request of which little is known.
    fn reject(&self, bytes: &[u8], status: u16, detail: &str, started: Instant) -> Box<Turn> {
        let response = Response::error(status, detail, false, false).closing();
        let mut exchange = record::begin_unreadable(self.worker, self.peer, bytes);
        exchange.status = response.status;
        exchange.body_len = response.len.unwrap_or(0);
        Box::new(Turn {
            response,
            exchange,
            started,
            body: BodyLength::None,
            is_body_withheld: false,
            keeps_alive: false,
            is_http10: false,
            is_logged: true,
            again: None,
            download: None,
            now: SystemTime::now(),
        })
    }

    /// The answer of the reserve to what is not the health check.
    fn turn_away(&self, bytes: &[u8], started: Instant) -> Box<Turn> {
        self.worker.shared.metrics.worker(self.worker.index).connection_refused();
        let mut turn = self.reject(bytes, 503, TOO_MANY_DETAIL, started);
        turn.response.add_field("Retry-After", "5");
        turn.is_logged = false;
        turn
    }

    /// Nothing more comes: the end, or one more word if a request was begun and took too long.
    fn ended(&mut self, started: Instant) -> Option<Box<Turn>> {
        let bytes = std::mem::take(&mut self.buffer);
        if self.peer.is_reserve && self.peer.is_expired() {
            return Some(self.turn_away(&bytes, started));
        }
        let is_begun = !bytes.is_empty() && self.peer.is_expired();
        is_begun.then(|| self.reject(&bytes, 408, "the request was not complete in time", started))
    }

    /// Sends an answer; whether the connection goes on.
    async fn take_turn(&mut self, turn: Box<Turn>) -> bool {
        let Turn { mut response, mut exchange, started, body, now, .. } = *turn;
        let (mut is_read, mut most_skipped) = (false, MOST_SKIPPED);
        if let Body::Upload(upload) = response.body {
            let Some(outcome) = self.receive(*upload, &mut exchange, started).await else {
                return false;
            };
            (response, is_read) = (outcome.response, outcome.body == BodyState::Read);
            response.closes |= outcome.body == BodyState::Broken;
            most_skipped = MOST_REFUSED;
        }
        let keeps_alive = turn.keeps_alive
            && !response.closes
            && !self.worker.is_draining()
            && (is_read || self.skip_body(body, turn.is_body_withheld).await);
        let mut head = Vec::with_capacity(HEAD_CAPACITY);
        let wish = if keeps_alive { Wish::KeepAlive } else { Wish::Close };
        let custom = &self.worker.shared.custom_fields;
        self.worker.with_date(now, |date| {
            let (status, fields) = (response.status, &response.fields);
            write_head(&mut head, status, date, wish, turn.is_http10, custom, fields);
        });
        let head_len = head.len();
        self.peer.begins(Doing::Sending, started);
        resume::begin(self.worker, self.peer, turn.download);
        let facts = || record::facts(self.peer, &exchange, started);
        let mut sent = match Sending::begin(self.worker, self.peer, head, response.body, facts) {
            Sending::Done(sent) => sent,
            Sending::Slow(sending) => sending.await,
        };
        if sent.is_unsent_change() {
            // Whoever broke it off may have seen to it that the client notices.
            let _ = socket::disarm_reset(&self.peer.socket);
            if let Some(request) = turn.again.filter(|_| self.attempts < ATTEMPTS) {
                // Nothing of the old version has been sent: the new one can be.
                self.attempts += 1;
                self.worker.files.borrow_mut().forget_all();
                self.buffer.splice(..0, request);
                return true;
            }
            let failure = sent.failure.take();
            exchange.status = 503;
            // It says itself that the connection ends.
            sent = Sent { failure, ..self.apologise(&exchange, started).await };
        }
        self.attempts = 0;
        let is_whole = sent.failure.is_none();
        exchange.started = now;
        self.last = Instant::now();
        exchange.duration = self.last.duration_since(started);
        if turn.is_logged {
            record::finish(self.worker, self.peer, exchange, &sent, head_len);
        }
        if !is_whole {
            resume::end(self.worker, self.peer, false);
            return false;
        }
        // The end may have been announced meanwhile, and the last byte still be on its way.
        let keeps_alive = keeps_alive && !self.worker.is_draining();
        if !keeps_alive {
            self.linger(most_skipped).await;
        }
        keeps_alive
    }

    /// Has the body of a request received, and notes what came of it.
    async fn receive(
        &mut self,
        upload: Upload,
        exchange: &mut Exchange,
        started: Instant,
    ) -> Option<Outcome> {
        self.peer.begins(Doing::Receiving, started);
        let shared = &self.worker.shared;
        let facts = TransferFacts { status: 100, ..record::facts(self.peer, exchange, started) };
        let ahead = std::mem::take(&mut self.buffer);
        let receiving = upload.receive(shared, self.worker.index, self.peer, ahead, facts);
        // On the heap: few connections ever need it.
        let mut outcome = Box::pin(receiving).await?;
        self.buffer = std::mem::take(&mut outcome.ahead);
        self.peer.written.set(self.peer.written.get() + outcome.interim);
        exchange.status = outcome.response.status;
        exchange.body_len = outcome.response.len.unwrap_or(0);
        record::received(self.worker, exchange, &outcome);
        Some(outcome)
    }

    /// Says that a file changed before its first byte was sent: nothing is lost yet.
    async fn apologise(&self, exchange: &Exchange, started: Instant) -> Sent {
        let facts = || record::facts(self.peer, exchange, started);
        let body = Body::Nothing;
        match Sending::begin(self.worker, self.peer, BEING_WRITTEN.to_vec(), body, facts) {
            Sending::Done(sent) => sent,
            Sending::Slow(sending) => sending.await,
        }
    }
}

/// Whether a head may be over, or too long, now that its last `read` bytes have come. Of one that
/// trickles in not every byte is worth a look at all of it.
fn may_be_over(bytes: &[u8], read: usize) -> bool {
    let new = &bytes[bytes.len() - read..];
    bytes.len() <= CHEAP_HEAD || bytes.len() >= MOST_HEAD || new.contains(&b'\n')
}

/// How often a request is answered anew because a file changed meanwhile.
const ATTEMPTS: u32 = 4;

/// Fields of a request's head at the most.
pub(super) const MOST_FIELDS: usize = 64;

/// Bytes of a request's head at the most.
const MOST_HEAD: usize = 32 << 10;

/// Bytes of a head that is kept in case that the request has to be answered anew.
const MAX_KEPT_HEAD: usize = 4 << 10;

/// Up to this length a head is looked at whenever any of it comes.
const CHEAP_HEAD: usize = 512;

/// By how many bytes the memory for a request grows.
const GROWTH: usize = 2 << 10;

/// What is said when requests that are not complete have all the memory there is for them.
const REQUESTS_TOO_LARGE: &str = "too many large requests at once; try again soon";

/// Bytes of an upload that was refused, read so that a client that sends all of it before it listens
/// gets the answer.
const MOST_REFUSED: u64 = 64 << 20;

/// A usual head fits into this.
const HEAD_CAPACITY: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_is_looked_at_where_a_line_ends() {
        let mut head = vec![b'x'; 1000];
        assert!(!may_be_over(&head, 1) && !may_be_over(&head, 1000));
        assert!(may_be_over(&head[..CHEAP_HEAD], 1));
        head.push(b'\n');
        assert!(may_be_over(&head, 1) && may_be_over(&head, 7));
        head.push(b'x');
        assert!(!may_be_over(&head, 1) && may_be_over(&head, 2));
        assert!(may_be_over(&vec![b'x'; MOST_HEAD], 1));
    }
}
