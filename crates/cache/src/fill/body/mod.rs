//! Moves response bodies to the disk.

mod resume;

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::panicking;
use std::time::{Duration, Instant};

use underpass_client::backoff::{Backoff, sleep};
use underpass_client::journal::OpenPiece;
use underpass_client::{Connection, Response};
use underpass_engine::Report;
use underpass_transport::incoming::{BodyFraming, ReceiveOptions};

use super::body_error::error_of;
use super::growth::Growth;
use super::origins::OriginResponse;
use super::relay::RelayWriter;
use crate::error::{CacheError, CacheErrorKind, ConnectionFault};
use crate::object::CachedObject;
use crate::ranges::RangeSet;
use crate::shared::{CacheState, Counters, FillReport, extent_end};
use crate::store::{EXTENT, HeldRoom, Room, units};
use crate::version::ObjectVersion;

/// A running fill of one version of an object. Dropping it ends the fill.
pub(super) struct Fill {
    shared: Arc<CacheState>,
    object: Arc<CachedObject>,
    version: Arc<ObjectVersion>,
    id: u64,
    /// The bytes that are still missing; up to the end of the body if the length is unknown.
    rest: Range<u64>,
    /// The space reserved for its bytes.
    room: Room,
    /// The bytes that this fill wrote, without those that another fill had written before.
    stored: RangeSet,
    cdn_loop: String,
    error: Option<CacheError>,
    is_reported: bool,
    started: Instant,
    /// Host and port of the origin.
    pub(super) origin: String,
    report: Report,
    /// The sink of a relay; `None` for a fill of the disk.
    writer: Option<RelayWriter>,
    /// How long the origin asks this server to wait.
    retry_after: Option<Duration>,
}

/// Fills a hole of a version. The fill is registered as `id`.
pub(crate) fn fill_hole(
    shared: &Arc<CacheState>,
    object: &Arc<CachedObject>,
    version: &Arc<ObjectVersion>,
    id: u64,
    range: Range<u64>,
    cdn_loop: &str,
) {
    let mut fill = Fill::new(shared, object, version, id, range.clone(), cdn_loop);
    match shared.room_for(&range, version.is_stored()) {
        Ok(room) => {
            fill.room = room;
            fill.run(None);
        }
        Err(error) => fill.error = Some(error),
    }
}

/// Relays a range of a version to one client without storing it. `first` is a response whose body
/// is still unread, with the range of that body.
pub(crate) fn relay(
    shared: &Arc<CacheState>,
    object: &Arc<CachedObject>,
    version: &Arc<ObjectVersion>,
    writer: RelayWriter,
    first: Option<(OriginResponse, Range<u64>)>,
    cdn_loop: &str,
) {
    let Some(range) = writer.wanted() else { return writer.end(Ok(())) };
    let mut fill = Fill::new(shared, object, version, 0, range.clone(), cdn_loop);
    fill.writer = Some(writer);
    let first = first
        .filter(|(_, body)| body.contains(&range.start) && range.start - body.start <= MAX_SKIPPED);
    if let Some((mut received, body)) = first {
        fill.rest.end = range.end.min(body.end);
        if let Err(error) = fill.discard(&mut received.answer.connection, range.start - body.start)
        {
            fill.error = Some(error);
            return;
        }
        fill.run(Some(received));
        if range.end == u64::MAX {
            return;
        }
    }
    // If the origin sends less than was requested, the rest is requested next.
    while fill.error.is_none() && !fill.has_left() && fill.rest.start < range.end {
        fill.rest.end = range.end;
        match version.validator() {
            Some(_) if range.end != u64::MAX => fill.run(None),
            // No other response can be proved to have the same version.
            _ => fill.error = Some(CacheErrorKind::NoRoom.into()),
        }
    }
}

impl Fill {
    pub(super) fn new(
        shared: &Arc<CacheState>,
        object: &Arc<CachedObject>,
        version: &Arc<ObjectVersion>,
        id: u64,
        rest: Range<u64>,
        cdn_loop: &str,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            object: Arc::clone(object),
            version: Arc::clone(version),
            id,
            rest,
            room: Room::default(),
            stored: RangeSet::default(),
            cdn_loop: cdn_loop.to_owned(),
            error: None,
            is_reported: false,
            started: Instant::now(),
            origin: String::new(),
            report: Report::default(),
            writer: None,
            retry_after: None,
        }
    }

    /// Sets the space reserved for its bytes.
    pub(super) fn with_room(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// Runs the fill to its end, starting with a response if there is one.
    pub(super) fn run(&mut self, mut first: Option<OriginResponse>) {
        let mut backoff = Backoff::new(MAX_RETRIES);
        loop {
            let before = self.rest.start;
            let opened = match first.take() {
                Some(received) => Ok(received),
                None => self.open(),
            };
            let error = match opened.and_then(|received| self.receive(received)) {
                Ok(()) if self.rest.is_empty() => return,
                Ok(()) => continue,
                Err(error) => error,
            };
            if self.rest.start > before {
                backoff.reset();
            }
            let has_len = self.version.len().is_some();
            let is_full = error.kind() == CacheErrorKind::NoRoom && self.writer.is_none();
            if is_full && has_len && self.make_room() {
                continue;
            }
            if is_full && !has_len {
                // The next request for it bypasses the disk from the start.
                self.object.state().relay_for(TOO_LARGE_TIME, CacheErrorKind::NoRoom);
            }
            let may_resume = error.kind().is_transient()
                && !self.has_left()
                && self.version.may_go_on()
                && self.version.broken().is_none();
            // There are few retries: clients do not wait long for an unreachable origin.
            let wait = backoff.next(self.retry_after.take());
            let wait = wait.filter(|wait| may_resume && *wait <= MAX_RETRY_WAIT);
            match wait {
                Some(wait) => drop(sleep(wait, &NO_CANCEL)),
                None => return self.give_up(error),
            }
        }
    }

    fn give_up(&mut self, error: CacheError) {
        if self.has_left() {
            return;
        }
        let kind = error.kind();
        self.error = Some(error);
        self.report_end();
        if kind.is_transient() && self.object.has_fallback(&self.version) {
            // Otherwise new requests would start the same fill again.
            self.object.state().pause = Some((Instant::now() + FALLBACK_TIME, kind));
        }
        self.drop_incomplete(kind);
    }

    /// Reports the fill once, before its readers are told of its end.
    fn report_end(&mut self) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.shared.report(&FillReport {
                key: self.object.key.as_str(),
                origin: &self.origin,
                report: &self.report,
                elapsed: self.started.elapsed(),
                is_relay: self.writer.is_some(),
                error: self.error.clone(),
            });
        }
    }

    /// Drops a version if no other response can be proved to have the rest of it, or if the
    /// previous version was whole and the origin has failed. If the disk is full, it can be
    /// relayed: its clients are told the reason.
    fn drop_incomplete(&self, why: CacheErrorKind) {
        if !why.is_of_disk() && self.object.has_fallback(&self.version) {
            // New clients get the previous version.
            self.shared.discard(&self.object, &self.version, CacheErrorKind::Changed);
        } else if !self.version.may_go_on() {
            self.shared.discard(&self.object, &self.version, why);
        }
    }

    /// Drops a version whose fill ends because no client reads it, if nothing of it can be kept. A
    /// client that has arrived meanwhile starts over if nothing else would bring the rest.
    fn drop_unread(&self) {
        let version = &self.version;
        let is_whole = version.len() == Some(version.count());
        if version.readers() == 0 || !(version.may_go_on() || is_whole) {
            self.drop_incomplete(CacheErrorKind::Changed);
        }
    }

    /// Evicts objects after the disk proved to be full; returns whether there were any.
    fn make_room(&self) -> bool {
        self.shared.evict(self.rest.end.saturating_sub(self.rest.start).min(EXTENT))
    }

    /// Returns whether the client of a relay has disconnected.
    fn has_left(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.shared.has_left())
    }

    /// Moves a body into the file or the pipe.
    fn receive(&mut self, received: OriginResponse) -> Result<(), CacheError> {
        let OriginResponse { answer, origin, .. } = received;
        let (mut connection, response) = (answer.connection, answer.response);
        connection.address().clone_into(&mut self.origin);
        let sink = match &self.writer {
            Some(writer) => {
                let stream = connection
                    .stream()
                    .try_clone()
                    .map_err(|error| CacheError::new(CacheErrorKind::Busy, error))?;
                writer.shared.watch(Some(stream));
                // The pipe may be full for long; the client's side detects a stalled origin.
                connection.incoming().set_timeout(None);
                writer.pipe.try_clone()
            }
            None => self.version.file.try_clone().map(File::from),
        };
        let file = sink.map_err(|error| CacheError::new(CacheErrorKind::Disk, error))?;
        let mut piece = OpenPiece::at(self.rest.start);
        let whole_body = self.rest.end == u64::MAX;
        while !self.rest.is_empty() {
            let next = self.rest.start..self.rest.end.min(extent_end(self.rest.start));
            let framing = if whole_body {
                response.framing
            } else {
                BodyFraming::Length(next.end - next.start)
            };
            if let Err(error) = self.shared.claim(&mut self.room, &next) {
                self.rest.end = self.rest.start;
                self.give_up(error);
                return Ok(());
            }
            let is_complete = self.move_body(&mut connection, framing, &file, &mut piece)?;
            if !is_complete {
                self.rest.end = self.rest.start;
                return Ok(());
            }
            if whole_body {
                self.rest.end = self.rest.start;
                self.version.set_len(self.rest.start);
                return self.recycle(connection, origin, response.keeps_alive);
            }
            if self.may_stop() {
                self.rest.end = self.rest.start;
                self.drop_incomplete(CacheErrorKind::Changed);
                return Ok(());
            }
            let present = self.version.present_end(self.rest.start).min(self.rest.end);
            if self.writer.is_none() && present - self.rest.start >= MIN_SKIPPED {
                // Another fill has brought the next bytes.
                self.rest.start = present;
                return Ok(());
            }
        }
        let keeps_alive = response.keeps_alive && is_at_end(&response, self.rest.end);
        self.recycle(connection, origin, keeps_alive)
    }

    fn recycle(
        &self,
        mut connection: Connection<'static>,
        origin: usize,
        keeps_alive: bool,
    ) -> Result<(), CacheError> {
        if let Some(writer) = &self.writer {
            writer.shared.watch(None);
            connection.incoming().set_timeout(Some(self.shared.options.timeout));
        }
        if keeps_alive && !self.has_left() {
            self.shared.origins.recycle(origin, connection);
        }
        Ok(())
    }

    /// Moves a part of a body, and wakes readers as it arrives. Returns `false` if it was stopped
    /// because no client reads it.
    fn move_body(
        &mut self,
        connection: &mut Connection<'static>,
        framing: BodyFraming,
        file: &File,
        piece: &mut OpenPiece,
    ) -> Result<bool, CacheError> {
        let start = self.rest.start;
        let (version, id) = (Arc::clone(&self.version), self.id);
        let relay = self.writer.as_ref().map(|writer| Arc::clone(&writer.shared));
        let stream = self.writer.is_none().then(|| connection.stream().try_clone()).transpose();
        let stream = stream.map_err(|error| CacheError::new(CacheErrorKind::Busy, error))?;
        let has_len = self.rest.end != u64::MAX;
        let mut growth = Growth::new(id, version.owner_of(id), start, stream, has_len);
        let (mut notified, mut recorded) = (start, start);
        let mut notify = |at: u64, is_end: bool| {
            if let Some(relay) = &relay {
                return relay.arrived(at);
            }
            if !is_end {
                growth.arrived(at, &mut self.room, &self.shared, &self.version);
            }
            if at > notified {
                let new = version.arrived(id, notified..at);
                new.into_iter().for_each(|new| self.stored.add(new));
                notified = at;
            }
            if at > recorded && (is_end || at - recorded >= JOURNAL_INTERVAL) {
                version.record_progress(piece, at);
                // The file system no longer counts them as free.
                self.shared.quota.wrote(&mut self.room, at - recorded);
                recorded = at;
            }
        };
        let options = ReceiveOptions {
            policy: self.shared.options.policy,
            pipes: Some(&self.shared.pipes),
            progress_every: Some(1),
            limit: Some(MAX_UNKNOWN_LEN),
            ..ReceiveOptions::default()
        };
        let received =
            connection.incoming().body(framing, file, start, &options, &mut |progress| {
                notify(start + progress.bytes, false);
            });
        let bytes = received.report.bytes();
        if let Some(writer) = self.writer.as_ref().filter(|_| received.outcome.is_err()) {
            writer.shared.watch(None);
        }
        notify(start + bytes, true);
        self.rest.start = start + bytes;
        self.report.add(&received.report);
        Counters::add(&self.shared.counters.origin_bytes, bytes);
        if let Some(refused) = growth.refused {
            return Err(refused.into());
        }
        if growth.is_unread {
            self.drop_unread();
            return Ok(false);
        }
        received.outcome.map_err(|error| error_of(error, self.writer.is_some()))?;
        match framing {
            BodyFraming::Length(len) if bytes != len => Err(ConnectionFault::CutOff.into()),
            _ => Ok(true),
        }
    }

    /// Returns whether the fill can stop: no client reads its bytes, most bytes are still missing,
    /// and no previous version is kept as a fallback.
    fn may_stop(&self) -> bool {
        if self.writer.is_some() {
            return self.has_left();
        }
        let is_small = self.rest.end - self.rest.start <= EXTENT;
        let is_mostly_missing = self.version.count() < self.version.len().unwrap_or(0) / 2;
        let is_unneeded =
            !is_small && is_mostly_missing && !self.object.has_fallback(&self.version);
        match self.version.broken() {
            Some(_) => self.version.readers() == 0,
            None => is_unneeded && !self.version.is_read(self.id),
        }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        if panicking() {
            self.error = Some(CacheErrorKind::Disk.into());
        } else if self.error.is_none() && self.writer.is_none() && !self.rest.is_empty() {
            // No thread was available for it.
            self.error = Some(CacheErrorKind::Busy.into());
            self.drop_incomplete(CacheErrorKind::Busy);
        }
        let written = self.report.bytes();
        let (digest, len) = (self.object.key.digest(), self.version.len());
        let is_stored = self.version.is_stored() && self.writer.is_none();
        let stored = is_stored.then(|| units(digest, len, self.stored.iter()));
        if !is_stored && self.writer.is_none() {
            self.version.hold(HeldRoom::new(&self.shared.quota, written));
        }
        self.shared.quota.release(&self.room, &stored.unwrap_or_default());
        self.report_end();
        match &self.writer {
            Some(writer) => {
                Counters::add(&self.shared.counters.relayed_bytes, written);
                writer.end(self.error.take().map_or(Ok(()), Err));
            }
            None => self.version.end_fill(self.id, self.error.take()),
        }
    }
}

/// Returns whether a body that was read up to `end` is complete.
fn is_at_end(response: &Response, end: u64) -> bool {
    let range = response.fields.text("content-range").unwrap_or_default();
    let last = range.split(['-', '/']).nth(1).and_then(|last| last.parse::<u64>().ok());
    match response.status {
        206 => last.is_some_and(|last| last + 1 == end),
        _ => response.framing == BodyFraming::Length(end),
    }
}

/// Nothing cancels the wait before a retry.
const NO_CANCEL: [&AtomicBool; 0] = [];

/// The maximum number of attempts without progress after the first.
const MAX_RETRIES: u32 = 3;

/// The maximum time that an origin can make this server wait before a body is resumed.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

/// How long a body of unknown length bypasses the disk after it proved too large.
const TOO_LARGE_TIME: Duration = Duration::from_secs(600);

/// How long a whole version is used after the fill of its successor failed.
const FALLBACK_TIME: Duration = Duration::from_secs(1);

/// The minimum number of bytes fetched by another fill that are worth a new request to skip.
const MIN_SKIPPED: u64 = 8 << 20;

/// The maximum number of bytes that are discarded before the range of a relay.
const MAX_SKIPPED: u64 = 1 << 20;

/// The number of bytes after which the journal is updated.
const JOURNAL_INTERVAL: u64 = 1 << 20;

/// The maximum length of a body without a declared length, in bytes.
const MAX_UNKNOWN_LEN: u64 = 1 << 40;
