//! Fetches an object from the origin, and validates a stored one.

mod create;

use std::cell::Cell;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use underpass_client::Response;
use underpass_client::download::interpret::{
    FileRequest, Interpretation, StrongValidator, interpret_response, may_be_about_range,
};
use underpass_client::s3::is_about_signature;
use underpass_protocol::caching::may_store;
use underpass_transport::incoming::BodyFraming;

use crate::error::{CacheErrorKind, ResponseFault};
use crate::fill::body::{Fill, relay};
use crate::fill::buffered::BufferedResponse;
use crate::fill::origins::{OriginFailure, OriginResponse, host_of};
use crate::fill::relay::Relay;
use crate::fill::request::{ObjectRequest, file_request, send};
use crate::object::{CachedObject, FetchGuard, FetchOutcome, Replacement};
use crate::shared::{CacheState, Counters, FetchedBody};
use crate::store::{Room, StoredHead, journal_unit, stored_fields};
use crate::version::ObjectVersion;

/// Fetches an object from the origin, or validates the stored one. Returns the body that is still
/// to be moved to the disk, if there is one.
pub(crate) fn fetch(
    shared: &Arc<CacheState>,
    guard: &FetchGuard,
    wanted: &ObjectRequest,
) -> Option<FetchedBody> {
    // A version without its file is not validated as a stored one.
    shared.restore_folder();
    let purges = guard.object.state().purges;
    let (requested, has_no_ranges) = (SystemTime::now(), Cell::new(false));
    let body = Cell::new(None);
    let fetch = Fetch { shared, guard, wanted, requested, purges, has_no_ranges, body };
    match guard.object.current().filter(|current| current.is_servable()) {
        Some(current) => {
            guard.pending.is_validation.store(true, Ordering::Relaxed);
            fetch.validate(&current);
        }
        None => fetch.fetch_new(wanted.range.clone().map(|range| (range.start, Some(range.end)))),
    }
    fetch.body.take()
}

struct Fetch<'q> {
    shared: &'q Arc<CacheState>,
    guard: &'q FetchGuard,
    wanted: &'q ObjectRequest,
    requested: SystemTime,
    /// The object's number of purges before the request.
    purges: u64,
    /// Whether the origin has answered a range request with something unusable.
    has_no_ranges: Cell<bool>,
    /// The body that is still to be moved.
    body: Cell<Option<FetchedBody>>,
}

impl Fetch<'_> {
    fn object(&self) -> &Arc<CachedObject> {
        &self.guard.object
    }

    /// Returns the latest expiry that was declared before the request.
    fn epoch(&self) -> u64 {
        self.guard.pending.epoch
    }

    /// Removes the stored version, unless the object was purged since the request: the stored one
    /// may then be from a later fetch.
    fn withdraw(&self) {
        if self.object().state().purges == self.purges {
            self.shared.withdraw(self.object().key.digest());
        }
    }

    fn send(
        &self,
        request: &FileRequest,
        more: &[(&'static str, String)],
    ) -> Result<OriginResponse, OriginFailure> {
        send(self.shared, &self.object().key, request, more, &self.wanted.cdn_loop, false)
    }

    /// Validates the stored version.
    fn validate(&self, current: &Arc<ObjectVersion>) {
        let head = current.head();
        let condition = match (head.field("etag"), head.field("last-modified")) {
            (Some(tag), _) => vec![("If-None-Match", tag.to_owned())],
            (None, Some(date)) => vec![("If-Modified-Since", date.to_owned())],
            (None, None) => Vec::new(),
        };
        match self.send(&file_request(None, None), &condition) {
            Ok(received)
                if received.answer.response.status == 304
                    && !condition.is_empty()
                    && !head.is_denied_by(&received.answer.response) =>
            {
                let OriginResponse { answer, origin, .. } = received;
                let mut newer = StoredHead::clone(&head);
                newer.freshen(&answer.response, self.requested, self.epoch());
                if may_store(200, &newer.fields, &self.shared.options.vary_on).is_err() {
                    // It may no longer be shared: each client gets its own response.
                    self.withdraw();
                    return self.fetch_new(None);
                }
                // The length may have become known since the request.
                current.change_head(|head| {
                    head.freshen(&answer.response, self.requested, self.epoch())
                });
                if let Some(connection) = answer.connection.finish(&answer.response) {
                    self.shared.origins.recycle(origin, connection);
                }
                self.guard.finish(FetchOutcome::Valid(Arc::clone(current), 304));
                // This comes last, because clients need not wait for the disk.
                current.write_head();
            }
            // The connection is dropped with its body, which is stored already.
            Ok(received) if self.is_same(&received.answer.response, &head) => {
                current.change_head(|head| {
                    head.renew(&received.answer.response, self.requested, self.epoch())
                });
                self.guard.finish(FetchOutcome::Valid(Arc::clone(current), 200));
                current.write_head();
            }
            // It confirms a version other than the stored one.
            Ok(received) if received.answer.response.status == 304 => self.fetch_new(None),
            Ok(received) => {
                self.handle_response(received, &file_request(None, None), Some(current))
            }
            Err(failure) => self.handle_failure(failure, Some(current)),
        }
    }

    /// Returns whether a 200 from an origin that ignores conditions is of the stored version.
    fn is_same(&self, response: &Response, head: &StoredHead) -> bool {
        let validator = StrongValidator::of(response);
        let has_same_len = match response.framing {
            BodyFraming::Length(len) => head.size.is_none_or(|size| len == size),
            // Without a length, a date is not enough.
            BodyFraming::Chunked | BodyFraming::UntilEnd => {
                matches!(validator, Some(StrongValidator::Tag(_)))
            }
        };
        response.status == 200
            && validator.is_some()
            && validator == head.validator
            && has_same_len
            && !head.is_denied_by(response)
            && !head.has_other_coding(response)
            && self.may_store(response)
    }

    /// Returns whether a response may be stored for all clients.
    fn may_store(&self, response: &Response) -> bool {
        may_store(response.status, &stored_fields(response), &self.shared.options.vary_on).is_ok()
    }

    /// Returns whether the stored version stays current despite a response, which only the client
    /// that requested it gets.
    fn keeps_stored(&self, response: &Response) -> bool {
        self.object().current().is_some_and(|current| current.is_kept_despite(response))
    }

    /// Fetches an object that is not stored.
    fn fetch_new(&self, range: Option<(u64, Option<u64>)>) {
        let request = file_request(range, None);
        match self.send(&request, &[]) {
            Ok(received)
                if range.is_some() && may_be_about_range(received.answer.response.status) =>
            {
                // After a 416, the object may only be empty or end before the range.
                self.has_no_ranges.set(received.answer.response.status != 416);
                if let Some(connection) =
                    received.answer.connection.finish(&received.answer.response)
                {
                    self.shared.origins.recycle(received.origin, connection);
                }
                self.fetch_new(None);
            }
            Ok(received) => self.handle_response(received, &request, None),
            Err(failure) => self.handle_failure(failure, None),
        }
    }

    /// Uses the stored version, if it may be used when the origin fails.
    fn handle_failure(&self, failure: OriginFailure, current: Option<&Arc<ObjectVersion>>) {
        let OriginFailure { error, retry_after } = failure;
        self.guard.finish(match current.filter(|current| self.is_usable(current)) {
            Some(current) => FetchOutcome::Stale(Arc::clone(current), error),
            None => FetchOutcome::Failed(error, retry_after),
        });
    }

    /// Handles a response other than a successful validation.
    fn handle_response(
        &self,
        received: OriginResponse,
        request: &FileRequest,
        current: Option<&Arc<ObjectVersion>>,
    ) {
        let response = &received.answer.response;
        let retry_after = response.retry_after(SystemTime::now());
        match response.status {
            200 | 206 => self.handle_object(received, request),
            404 | 410 => {
                self.withdraw();
                self.response(received);
            }
            401 | 407 => self.denied(received),
            403 if received.has_secrets => self.denied(received),
            400 if received.answer.connection.refusal_code().is_some_and(is_about_signature) => {
                self.denied(received);
            }
            304 => {
                let reason = "304 Not Modified without a condition";
                self.shared.origin_failed(&self.object().key, &received.base, reason);
                self.failed(ResponseFault::Invalid);
            }
            300..=399 if received.has_secrets => self.redirected(&received),
            429 | 500..=599 if current.is_some_and(|current| self.is_usable(current)) => {
                let pause = retry_after.map(|wait| Instant::now() + wait.min(MAX_PAUSE));
                let fault = ResponseFault::ServerError;
                self.object().state().pause = pause.map(|until| (until, fault.into()));
                let failure = OriginFailure { error: fault.into(), retry_after };
                self.handle_failure(failure, current);
            }
            _ => self.response(received),
        }
    }

    /// Handles a response with an object, or with a part of one.
    fn handle_object(&self, received: OriginResponse, request: &FileRequest) {
        let response = &received.answer.response;
        match interpret_response(request, response) {
            Ok(Interpretation::Whole { total }) => {
                let has_no_ranges = request.range.is_some() || self.has_no_ranges.get();
                self.start_fill(received, total, 0, has_no_ranges);
            }
            Ok(Interpretation::Part { range, total })
                if received.framed_len().is_some() && StrongValidator::of(response).is_some() =>
            {
                self.start_fill(received, Some(total), range.start, false);
            }
            // It is unusable or cannot be combined: chunks, no validator, another range.
            Ok(Interpretation::Part { .. }) | Err(_) if request.range.is_some() => {
                self.has_no_ranges.set(true);
                drop(received);
                self.fetch_new(None);
            }
            Err(error) => {
                self.shared.origin_failed(&self.object().key, &received.base, &error.to_string());
                self.failed(ResponseFault::Invalid);
            }
            Ok(_) => self.failed(ResponseFault::Invalid),
        }
    }

    /// Forwards a response without an object.
    fn response(&self, received: OriginResponse) {
        let origin = received.origin;
        let names = &self.shared.options.vary_on;
        let (response, connection) =
            BufferedResponse::read(received, self.requested, self.epoch(), names);
        if let Some(connection) = connection {
            self.shared.origins.recycle(origin, connection);
        }
        // With these statuses an error page cannot replace the body or the location.
        if matches!(response.status, 200..=399) && response.content.is_none() {
            return self.failed(ResponseFault::Invalid);
        }
        let response = Arc::new(response);
        {
            let mut state = self.object().state();
            if response.is_fresh() && state.purges == self.purges {
                state.response = Some(Arc::clone(&response));
            }
            if !response.is_for_all {
                state.private_until = Some(Instant::now() + PRIVATE_TIME);
            }
        }
        self.guard.finish(FetchOutcome::Response(response));
    }

    /// Returns whether a stale version may be used because the origin has failed.
    fn is_usable(&self, current: &Arc<ObjectVersion>) -> bool {
        self.shared.is_usable_on_error(&self.object().key, current)
    }

    /// Reports the origin's explanation to the operator; it is not meant for clients.
    fn denied(&self, received: OriginResponse) {
        let OriginResponse { answer, base, .. } = received;
        let refusal = answer.connection.refusal(&answer.response);
        self.shared.origin_failed(&self.object().key, &base, &refusal.to_string());
        self.failed(ResponseFault::AccessDenied);
    }

    /// Reports a redirect that is neither followed nor forwarded, as it may contain secrets.
    fn redirected(&self, received: &OriginResponse) {
        let OriginResponse { answer, base, .. } = received;
        let to = answer.response.redirect(&answer.url).ok().flatten();
        let to = to.as_ref().map_or_else(|| "nowhere".to_owned(), host_of);
        let reason = format!("it redirects to {to}, which no --origin-redirect allows");
        self.shared.origin_failed(&self.object().key, base, &reason);
        self.failed(ResponseFault::Redirected);
    }

    fn failed(&self, fault: ResponseFault) {
        self.guard.finish(FetchOutcome::Failed(fault.into(), None));
    }

    /// Creates a version from a response whose body starts at `start`, and fills it.
    fn start_fill(
        &self,
        received: OriginResponse,
        total: Option<u64>,
        start: u64,
        has_no_ranges: bool,
    ) {
        let status = received.answer.response.status;
        let end = match (&received.answer.response.framing, total) {
            (BodyFraming::Length(len), Some(_)) => start + len,
            _ => u64::MAX,
        };
        // A body that ends with the connection may be truncated; others have a detectable end.
        let is_complete_at_end = received.answer.response.framing != BodyFraming::UntilEnd;
        let is_purged = self.object().state().purges != self.purges;
        let keeps_stored = self.keeps_stored(&received.answer.response);
        let is_stored = is_complete_at_end
            && !is_purged
            && !keeps_stored
            && self.may_store(&received.answer.response);
        // A stale version that may be used is validated even if there is no room for a new one.
        let room = match self.room_for(&(start..end), is_stored) {
            Ok(room) => room,
            Err(why) => return self.relay(received, total, start..end, why),
        };
        let created = self.create_or_evict(&received.answer.response, total, is_stored);
        let (version, files) = match created {
            Ok((version, files)) => (Arc::new(version), files),
            Err(why) => {
                self.shared.quota.release(&room, &[]);
                return self.relay(received, total, start..end, why);
            }
        };
        if has_no_ranges {
            version.set_no_ranges();
        }
        let owner = &self.guard.pending.owner;
        let id = version.begin_fill(start, (end != u64::MAX).then_some(end), owner);
        let (object, cdn_loop) = (self.object(), &self.wanted.cdn_loop);
        let fill = Fill::new(self.shared, object, &version, id, start..end, cdn_loop);
        let mut fill = fill.with_room(room);
        if is_stored {
            self.put(&version);
            drop(files);
        } else if !is_purged {
            if !keeps_stored {
                self.withdraw();
            }
            self.object().state().private_until = Some(Instant::now() + PRIVATE_TIME);
        }
        self.guard.finish(FetchOutcome::sent(&version, status));
        received.answer.connection.address().clone_into(&mut fill.origin);
        if end == start {
            // The object is empty.
            version.set_len(total.unwrap_or(0));
            return self.object().forget_fallback(&version);
        }
        let object = Arc::clone(self.object());
        self.body.set(Some(Box::new(move || {
            fill.run(Some(received));
            object.forget_fallback(&version);
        })));
    }

    /// Makes room for a body, or returns why it is relayed.
    fn room_for(&self, body: &Range<u64>, is_stored: bool) -> Result<Room, CacheErrorKind> {
        let why_relayed = self.wanted.why_relayed.or(self.object().state().why_relayed());
        match why_relayed {
            Some(why) => Err(why),
            None => self.shared.room_for(body, is_stored).map_err(|error| error.kind()),
        }
    }

    /// Makes a stored version the current one, unless the object was purged meanwhile.
    fn put(&self, version: &Arc<ObjectVersion>) {
        let digest = self.object().key.digest();
        let is_usable = |before: &ObjectVersion| {
            let is_whole = before.len() == Some(before.count());
            is_whole && self.shared.is_usable_on_error(&self.object().key, before)
        };
        match self.object().replace(version, CacheErrorKind::Changed, self.purges, is_usable) {
            replacement @ (Replacement::First | Replacement::Replaced) => {
                let had_one = replacement == Replacement::Replaced;
                self.shared.quota.removed(digest);
                let journal = [journal_unit(digest, &version.head())];
                self.shared.quota.release(&Room::default(), &journal);
                Counters::add(&self.shared.counters.changed, had_one.into());
            }
            Replacement::Purged => {
                version.detach();
                self.shared.folder.remove_version(digest, &version.head().body);
            }
        }
    }

    /// Relays a response to the client that started the fetch, because it cannot be stored. Other
    /// clients start their own.
    fn relay(
        &self,
        received: OriginResponse,
        total: Option<u64>,
        body: Range<u64>,
        why: CacheErrorKind,
    ) {
        let status = received.answer.response.status;
        let head = self.head(&received.answer.response, total);
        if !self.keeps_stored(&received.answer.response) {
            // The stored version is outdated.
            self.withdraw();
        }
        let mut state = self.object().state();
        // Once that is over, the next request tries the disk again.
        if state.why_relayed().is_none() {
            state.relay_for(RELAY_TIME, why);
        }
        drop(state);
        let file = self.shared.null.try_clone().map(OwnedFd::from);
        let permit = self.shared.relaying.acquire(self.wanted.client);
        let (Ok(file), Ok((for_client, writer)), Some(permit)) = (file, Relay::new(why), permit)
        else {
            return self.guard.finish(FetchOutcome::NotRelayed);
        };
        let version = Arc::new(ObjectVersion::relayed(Arc::new(file), head));
        let (shared, object) = (Arc::clone(self.shared), Arc::clone(self.object()));
        let (of_job, cdn_loop) = (Arc::clone(&version), self.wanted.cdn_loop.clone());
        let job = move || {
            relay(&shared, &object, &of_job, writer, Some((received, body)), &cdn_loop);
            drop(permit);
        };
        if !self.shared.relays.run(job) {
            return self.guard.finish(FetchOutcome::NotRelayed);
        }
        let relay_slot = Arc::new(Mutex::new(Some(for_client)));
        self.guard.finish(FetchOutcome::Relayed(version, status, relay_slot, why));
    }
}

/// The maximum pause that an origin can request while a stale version is used.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long an object is relayed after it could not be stored.
const RELAY_TIME: Duration = Duration::from_secs(1);

/// How long a response that must not be shared is fetched separately for each client.
const PRIVATE_TIME: Duration = Duration::from_secs(10);
