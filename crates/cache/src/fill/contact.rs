//! The first question about an object, and the later ones whether it is still valid.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use underpass_client::Response;
use underpass_client::download::interpret::{
    FileRequest, Interpretation, Version, interpret_response,
};
use underpass_protocol::caching::{Use, may_store};
use underpass_transport::incoming::BodyFraming;

use super::body::{Fill, relay};
use super::origins::{Asked, Silence};
use super::relay::Relay;
use super::reply::Reply;
use super::request::{Wanted, fields, file_request};
use crate::failure::Failure;
use crate::generation::Generation;
use crate::node::{Counts, Node, Place};
use crate::object::{Asking, Object, Outcome};
use crate::ranges::RangeSet;
use crate::store::{Head, kept_fields, millis};

/// Looks for an object that an earlier process has stored, and asks the origin if there is none
/// that may be used.
pub(crate) fn load(node: &Arc<Node>, asking: Asking, wanted: Wanted, place: Place) {
    let object = &asking.object;
    let digest = object.key.digest();
    if let Some((kept, contents)) = node.folder.load(digest, object.key.as_str()) {
        let present: RangeSet = contents.present.into_iter().collect();
        node.room.found(digest, present.count());
        let generation = Generation::new(kept.file, contents.subject, Some(kept.journal), present);
        object.state().current = Some(Arc::new(generation));
    }
    let current = {
        let mut state = object.state();
        state.is_loaded = true;
        state.current.clone()
    };
    let usable = current.filter(|current| node.usage(&object.key, current) == Use::Fresh);
    match usable {
        Some(current) => asking.finish(Outcome::Loaded(current)),
        None => {
            let for_job = Arc::clone(node);
            // If there is no place, dropping the question ends it.
            node.fills.run(move || {
                fetch(&for_job, &asking, &wanted);
                drop(place);
            });
        }
    }
}

/// Asks the origin for an object, or whether the one that is stored is still valid.
pub(crate) fn fetch(node: &Arc<Node>, asking: &Asking, wanted: &Wanted) {
    let question = Question { node, asking, wanted, requested: SystemTime::now() };
    match asking.object.current().filter(|current| current.broken().is_none()) {
        Some(current) => question.validate(&current),
        None => question.first(wanted.range.clone().map(|range| (range.start, Some(range.end)))),
    }
}

struct Question<'q> {
    node: &'q Arc<Node>,
    asking: &'q Asking,
    wanted: &'q Wanted,
    requested: SystemTime,
}

impl Question<'_> {
    fn object(&self) -> &Arc<Object> {
        &self.asking.object
    }

    fn ask(&self, asked: &FileRequest, more: &[(&'static str, String)]) -> Result<Asked, Silence> {
        let mut lines = fields(asked, &self.node.origins.id, &self.wanted.passed);
        lines.extend_from_slice(more);
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Counts::add(&self.node.counters.requests, 1);
        self.node.origins.ask(&self.object().key, &lines, false)
    }

    /// Asks whether what is stored is still valid.
    fn validate(&self, current: &Arc<Generation>) {
        let head = current.head();
        let condition = match (head.field("etag"), head.field("last-modified")) {
            (Some(tag), _) => vec![("If-None-Match", tag.to_owned())],
            (None, Some(date)) => vec![("If-Modified-Since", date.to_owned())],
            (None, None) => Vec::new(),
        };
        match self.ask(&file_request(None, None), &condition) {
            Ok(asked) if asked.answer.response.status == 304 && !condition.is_empty() => {
                let Asked { answer, origin, .. } = asked;
                current.describe(|head| head.freshen(&answer.response, self.requested));
                if let Some(connection) = answer.connection.finish(&answer.response) {
                    self.node.origins.keep(origin, connection);
                }
                self.asking.finish(Outcome::Valid(Arc::clone(current), 304));
            }
            // The connection ends here, as its body is here already.
            Ok(asked) if self.is_same(&asked.answer.response, &head) => {
                current.describe(|head| head.freshen(&asked.answer.response, self.requested));
                self.asking.finish(Outcome::Valid(Arc::clone(current), 200));
            }
            Ok(asked) => self.answered(asked, &file_request(None, None), Some(current)),
            Err(silence) => self.silent(silence, Some(current)),
        }
    }

    /// Returns whether an answer has the version that is stored, from an origin that does not know
    /// conditions.
    fn is_same(&self, response: &Response, head: &Head) -> bool {
        let version = Version::of(response);
        let BodyFraming::Length(len) = response.framing else { return false };
        response.status == 200
            && version.is_some()
            && version == head.version
            && head.size == Some(len)
            && response.coding().is_none()
            && may_store(200, &kept_fields(response), &self.node.options.vary_on).is_ok()
    }

    /// Asks for an object of which nothing is known.
    fn first(&self, range: Option<(u64, Option<u64>)>) {
        let asked = file_request(range, None);
        match self.ask(&asked, &[]) {
            // An empty object has no byte that could be asked for, and others may be shorter.
            Ok(found) if found.answer.response.status == 416 && range.is_some() => {
                if let Some(connection) = found.answer.connection.finish(&found.answer.response) {
                    self.node.origins.keep(found.origin, connection);
                }
                self.first(None);
            }
            Ok(found) => self.answered(found, &asked, None),
            Err(silence) => self.silent(silence, None),
        }
    }

    /// Uses what is stored if that is allowed when the origin fails.
    fn silent(&self, silence: Silence, current: Option<&Arc<Generation>>) {
        let Silence { failure, retry_after } = silence;
        self.asking.finish(match current.filter(|current| self.is_usable(current)) {
            Some(current) => Outcome::Stale(Arc::clone(current), failure),
            None => Outcome::Failed(failure, retry_after),
        });
    }

    /// Handles an answer other than that nothing has changed.
    fn answered(&self, found: Asked, asked: &FileRequest, current: Option<&Arc<Generation>>) {
        let response = &found.answer.response;
        let retry_after = response.retry_after(SystemTime::now());
        match response.status {
            200 | 206 => match interpret_response(asked, response) {
                Ok(Interpretation::Whole { total }) => {
                    self.sent(found, total, 0, asked.range.is_some());
                }
                Ok(Interpretation::Part { .. })
                    if !matches!(response.framing, BodyFraming::Length(_))
                        || response.coding().is_some() =>
                {
                    self.failed(Failure::BadAnswer);
                }
                Ok(Interpretation::Part { range, total }) if Version::of(response).is_some() => {
                    self.sent(found, Some(total), range.start, false);
                }
                // Without a version, no other part is known to fit to this one.
                Ok(Interpretation::Part { .. }) if asked.range.is_some() => {
                    drop(found);
                    self.first(None);
                }
                _ => self.silent(Silence { failure: Failure::BadAnswer, retry_after: None }, None),
            },
            404 | 410 => {
                self.node.remove(self.object().key.digest());
                self.reply(found);
            }
            401 | 407 => self.failed(Failure::Denied),
            403 if found.has_secrets => self.failed(Failure::Denied),
            300..=399 if found.has_secrets => self.failed(Failure::Redirected),
            304 => self.failed(Failure::BadAnswer),
            429 | 500..=599 if current.is_some_and(|current| self.is_usable(current)) => {
                self.silent(Silence { failure: Failure::OriginFailed, retry_after }, current);
            }
            _ => self.reply(found),
        }
    }

    /// Passes on an answer that is no object.
    fn reply(&self, found: Asked) {
        let origin = found.origin;
        let names = &self.node.options.vary_on;
        let (reply, connection) = Reply::read(found, self.requested, names);
        if let Some(connection) = connection {
            self.node.origins.keep(origin, connection);
        }
        // An error page is no answer of these statuses, which tell that the body is what was wanted
        // or where it is.
        if matches!(reply.status, 200..=399) && reply.content.is_none() {
            return self.failed(Failure::BadAnswer);
        }
        let reply = Arc::new(reply);
        if reply.is_fresh() {
            self.object().state().reply = Some(Arc::clone(&reply));
        }
        self.asking.finish(Outcome::Reply(reply));
    }

    /// Returns whether a stale version may be used because the origin has failed.
    fn is_usable(&self, current: &Arc<Generation>) -> bool {
        self.node.is_usable_on_error(&self.object().key, current)
    }

    fn failed(&self, failure: Failure) {
        self.asking.finish(Outcome::Failed(failure, None));
    }

    /// Begins a version with an answer whose body begins at `start`, and fills it.
    fn sent(&self, found: Asked, total: Option<u64>, start: u64, has_no_ranges: bool) {
        let status = found.answer.response.status;
        let end = match (&found.answer.response.framing, total) {
            (BodyFraming::Length(len), Some(_)) => start + len,
            _ => u64::MAX,
        };
        // Chunks tell their end; without them a body that was cut looks like a whole one.
        let is_complete_at_end = found.answer.response.framing != BodyFraming::UntilEnd;
        let is_stored = is_complete_at_end
            && may_store(status, &kept_fields(&found.answer.response), &self.node.options.vary_on)
                .is_ok();
        let reserved = if end == u64::MAX { 0 } else { end - start };
        if self.wanted.is_relayed || self.node.reserve(reserved).is_err() {
            return self.relay(found, total, start..end);
        }
        let generation = match self.create(&found.answer.response, total, is_stored) {
            Ok(generation) => Arc::new(generation),
            // The disk is full or broken.
            Err(_) => {
                self.node.room.settle(None, 0, reserved);
                return self.relay(found, total, start..end);
            }
        };
        if has_no_ranges {
            generation.set_no_ranges();
        }
        let id = generation.begin_fill(start, (end != u64::MAX).then_some(end));
        let mut fill =
            Fill::new(self.node, self.object(), &generation, (id, start..end), &self.wanted.passed)
                .reserved(reserved);
        if is_stored {
            self.node.room.removed(self.object().key.digest());
            if self.object().replace(Some(Arc::clone(&generation)), Failure::Changed) {
                Counts::add(&self.node.counters.changed, 1);
            }
        } else {
            self.node.remove(self.object().key.digest());
            self.object().state().private_until = Some(Instant::now() + PRIVATE_TIME);
        }
        self.asking.finish(Outcome::Sent(Arc::clone(&generation), status));
        if end == start {
            // An empty object.
            generation.set_len(total.unwrap_or(0));
        } else {
            fill.run(Some(found));
        }
        drop(fill);
    }

    /// Passes a response on to the reader that caused the request, past the disk. Others send their own.
    fn relay(&self, found: Asked, total: Option<u64>, body: Range<u64>) {
        let status = found.answer.response.status;
        let head = self.head(&found.answer.response, total);
        let file = self.node.null.try_clone().map(OwnedFd::from);
        let place = self.node.relaying.enter(self.wanted.client);
        let (Ok(file), Ok((for_client, writer)), Some(place)) = (file, Relay::new(), place) else {
            return self.failed(Failure::Busy);
        };
        // What is here of an older version is not true any more.
        self.node.remove(self.object().key.digest());
        self.object().state().no_room_until = Some(Instant::now() + NO_ROOM_TIME);
        let generation = Arc::new(Generation::relayed(Arc::new(file), head));
        let (node, object) = (Arc::clone(self.node), Arc::clone(self.object()));
        let (of_job, passed) = (Arc::clone(&generation), self.wanted.passed.clone());
        let job = move || {
            relay(&node, &object, &of_job, (writer, Some((found, body))), &passed);
            drop(place);
        };
        if !self.node.relays.run(job) {
            return self.failed(Failure::Busy);
        }
        let offer = Arc::new(Mutex::new(Some(for_client)));
        self.asking.finish(Outcome::Relayed(generation, status, offer));
    }

    /// Returns what is known of an object by an answer.
    fn head(&self, response: &Response, size: Option<u64>) -> Head {
        Head {
            key: self.object().key.as_str().to_owned(),
            body: String::new(),
            inode: 0,
            version: Version::of(response),
            size,
            fields: kept_fields(response),
            requested: millis(self.requested),
            received: millis(SystemTime::now()),
        }
    }

    fn create(
        &self,
        response: &Response,
        size: Option<u64>,
        is_stored: bool,
    ) -> io::Result<Generation> {
        let mut head = self.head(response, size);
        let digest = self.object().key.digest();
        let nothing = RangeSet::default();
        if !is_stored {
            let file = self.node.folder.create_unnamed(digest, &mut head)?;
            return Ok(Generation::new(file, head, None, nothing));
        }
        let kept = self.node.folder.create(digest, head)?;
        let head = kept.journal.subject().clone();
        Ok(Generation::new(kept.file, head, Some(kept.journal), nothing))
    }
}

/// How long it is believed that there is no room for an object.
const NO_ROOM_TIME: Duration = Duration::from_secs(1);

/// How long it is believed that each client has to ask for itself.
const PRIVATE_TIME: Duration = Duration::from_secs(10);
