//! Moves the bodies of answers to the disk, resumes them where they break off, and finds out when
//! the object has changed.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use rustix::io::Errno;
use underpass_client::Connection;
use underpass_client::backoff::{Backoff, sleep};
use underpass_client::download::interpret::{Interpretation, Version, interpret_response};
use underpass_client::is_of_network;
use underpass_engine::{Error, Report};
use underpass_transport::incoming::{BodyFraming, ReceiveError, ReceiveOptions};

use super::origins::Asked;
use super::relay::RelayWriter;
use super::request::{fields, file_request};
use crate::failure::Failure;
use crate::generation::Generation;
use crate::node::{Counts, FillReport, Node};
use crate::object::Object;

/// A running fill of one version of an object. Dropping it ends it.
pub(super) struct Fill {
    node: Arc<Node>,
    object: Arc<Object>,
    generation: Arc<Generation>,
    id: u64,
    /// The bytes that are still to come; up to the end of the body if the length is not known.
    rest: Range<u64>,
    /// The bytes that are reserved and not yet written.
    reserved: u64,
    passed: String,
    failure: Option<Failure>,
    started: Instant,
    origin: String,
    from: u64,
    report: Report,
    /// Where the bytes go if they do not go to the disk.
    writer: Option<RelayWriter>,
}

/// Fills a hole of a version. The fill was registered by this number.
pub(crate) fn fill_hole(
    node: &Arc<Node>,
    object: &Arc<Object>,
    generation: &Arc<Generation>,
    (id, range): (u64, Range<u64>),
    passed: &str,
) {
    let mut fill = Fill::new(node, object, generation, (id, range.clone()), passed);
    match node.reserve(range.end - range.start) {
        Ok(()) => {
            fill.reserved = range.end - range.start;
            fill.run(None);
        }
        Err(failure) => fill.failure = Some(failure),
    }
}

/// Relays what one client wants of a version, past the disk. `first` is an answer that was not used
/// yet, with the range of its body.
pub(crate) fn relay(
    node: &Arc<Node>,
    object: &Arc<Object>,
    generation: &Arc<Generation>,
    (writer, first): (RelayWriter, Option<(Asked, Range<u64>)>),
    passed: &str,
) {
    let Some(range) = writer.wanted() else { return writer.end(Ok(())) };
    let mut fill = Fill::new(node, object, generation, (0, range.clone()), passed);
    fill.writer = Some(writer);
    let first = first
        .filter(|(_, body)| body.contains(&range.start) && range.start - body.start <= MAX_SKIPPED);
    if let Some((mut asked, body)) = first {
        fill.rest.end = range.end.min(body.end);
        if let Err(failure) = fill.discard(&mut asked.answer.connection, range.start - body.start) {
            fill.failure = Some(failure);
            return;
        }
        fill.run(Some(asked));
        // What the answer did not have is requested next.
        fill.rest.end = if fill.failure.is_some() { fill.rest.start } else { range.end };
    }
    if fill.rest.is_empty() || range.end == u64::MAX {
        return;
    }
    match generation.version() {
        Some(_) => fill.run(None),
        // No other answer is known to be of the same version.
        None => fill.failure = Some(Failure::NoRoom),
    }
}

impl Fill {
    pub(super) fn new(
        node: &Arc<Node>,
        object: &Arc<Object>,
        generation: &Arc<Generation>,
        (id, rest): (u64, Range<u64>),
        passed: &str,
    ) -> Self {
        Self {
            node: Arc::clone(node),
            object: Arc::clone(object),
            generation: Arc::clone(generation),
            id,
            from: rest.start,
            rest,
            reserved: 0,
            passed: passed.to_owned(),
            failure: None,
            started: Instant::now(),
            origin: String::new(),
            report: Report::default(),
            writer: None,
        }
    }

    /// Notes how many bytes were reserved for it.
    pub(super) fn reserved(mut self, bytes: u64) -> Self {
        self.reserved = bytes;
        self
    }

    /// Runs the fill to its end, beginning with an answer if there is one.
    pub(super) fn run(&mut self, mut first: Option<Asked>) {
        let mut backoff = Backoff::new(RETRIES);
        loop {
            let before = self.rest.start;
            let opened = match first.take() {
                Some(asked) => Ok(asked),
                None => self.open(),
            };
            let failure = match opened.and_then(|asked| self.receive(asked)) {
                Ok(()) if self.rest.is_empty() => return,
                Ok(()) => continue,
                Err(failure) => failure,
            };
            if self.rest.start > before {
                backoff.reset();
            }
            if failure == Failure::NoRoom && self.writer.is_none() && self.make_room() {
                continue;
            }
            let may_resume = failure.may_pass()
                && !self.is_left()
                && self.generation.version().is_some()
                && self.generation.len().is_some()
                && self.generation.broken().is_none();
            // An origin that is gone is not waited for as long as one that only stumbles.
            let wait = backoff.next(None).filter(|_| may_resume);
            match wait {
                Some(wait) => drop(sleep(wait, &NEVER)),
                None => {
                    self.give_up(failure);
                    return;
                }
            }
        }
    }

    fn give_up(&mut self, failure: Failure) {
        if self.is_left() {
            return;
        }
        self.failure = Some(failure);
        let cannot_go_on = self.generation.version().is_none() || self.generation.len().is_none();
        if cannot_go_on {
            // No other answer is known to be of the same version.
            self.node.discard(&self.object, &self.generation, failure);
        }
    }

    /// Requests what is still to come.
    fn open(&mut self) -> Result<Asked, Failure> {
        let len = self.generation.len();
        let version = self.generation.version().cloned().map(|version| (version, len));
        let range = Some((self.rest.start, Some(self.rest.end)));
        let asked = file_request(range, version.clone());
        let lines = fields(&asked, &self.node.origins.id, &self.passed);
        let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Counts::add(&self.node.counters.requests, 1);
        let found = self.node.origins.ask(&self.object.key, &lines, true);
        let mut found = found.map_err(|silence| silence.failure)?;
        let response = &found.answer.response;
        let interpreted = interpret_response(&asked, response);
        match interpreted.map_err(|_| Failure::BadAnswer)? {
            Interpretation::Part { range, .. }
                if framed_len(&found).is_some() && response.coding().is_none() =>
            {
                self.rest.end = self.rest.end.min(range.end);
                Ok(found)
            }
            Interpretation::Part { .. } => Err(Failure::BadAnswer),
            Interpretation::Whole { .. } if self.rest.start == 0 => Ok(found),
            Interpretation::Changed if response.status == 200 => {
                let same = version.as_ref().map(|(version, _)| version);
                if Version::of(response).as_ref() == same && framed_len(&found) == len {
                    // It has no ranges: what is here already is passed over.
                    self.generation.set_no_ranges();
                    self.discard(&mut found.answer.connection, self.rest.start)?;
                    return Ok(found);
                }
                Err(self.changed())
            }
            Interpretation::Changed => Err(self.changed()),
            _ => Err(match response.status {
                401 | 403 | 407 => Failure::Denied,
                404 | 410 => self.changed(),
                429 | 500..=599 => Failure::OriginFailed,
                _ => Failure::BadAnswer,
            }),
        }
    }

    /// Notes that the origin has another version.
    fn changed(&self) -> Failure {
        Counts::add(&self.node.counters.changed, 1);
        self.node.discard(&self.object, &self.generation, Failure::Changed);
        Failure::Changed
    }

    /// Discards the beginning of a body, which is here already or not wanted.
    fn discard(&self, connection: &mut Connection<'static>, len: u64) -> Result<(), Failure> {
        let sink = self.node.null.try_clone().map_err(|_| Failure::Disk)?;
        let options = ReceiveOptions { pipes: Some(&self.node.pipes), ..ReceiveOptions::default() };
        let framing = BodyFraming::Length(len);
        let received = connection.incoming().body(framing, &sink, 0, &options, &mut |_| {});
        Counts::add(&self.node.counters.origin_bytes, received.report.bytes());
        received.outcome.map_err(|_| Failure::TimedOut)
    }

    /// Makes room after the disk turned out to be full; returns whether there is some now.
    fn make_room(&self) -> bool {
        self.node.evict(self.rest.end.saturating_sub(self.rest.start).min(BORDER))
    }

    /// Returns whether the client of a relay has left.
    fn is_left(&self) -> bool {
        self.writer.as_ref().is_some_and(|writer| writer.shared.is_left())
    }

    /// Moves a body to its place.
    fn receive(&mut self, asked: Asked) -> Result<(), Failure> {
        let Asked { answer, origin, .. } = asked;
        let (mut connection, response) = (answer.connection, answer.response);
        connection.address().clone_into(&mut self.origin);
        let sink = match &self.writer {
            Some(writer) => {
                let stream = connection.stream().try_clone().map_err(|_| Failure::Busy)?;
                writer.shared.watch(Some(stream));
                // It waits for its client, who notices when the origin stalls.
                connection.incoming().set_timeout(None);
                writer.pipe.try_clone()
            }
            None => self.generation.file.try_clone().map(File::from),
        };
        let file = sink.map_err(|_| Failure::Disk)?;
        let piece =
            self.writer.is_none().then(|| self.generation.begin_piece(&self.rest)).flatten();
        let begun = self.rest.start;
        let whole_body = self.rest.end == u64::MAX;
        while !self.rest.is_empty() {
            let border = (self.rest.start / BORDER + 1) * BORDER;
            let framing = match whole_body {
                true => response.framing,
                false => BodyFraming::Length(self.rest.end.min(border) - self.rest.start),
            };
            self.move_body(&mut connection, framing, &file, (piece, begun))?;
            if whole_body {
                self.rest.end = self.rest.start;
                self.generation.set_len(self.rest.start);
                return self.keep(connection, origin, response.keeps_alive);
            }
            if self.is_deserted() {
                self.rest.end = self.rest.start;
                return Ok(());
            }
            let present = self.generation.present_end(self.rest.start).min(self.rest.end);
            if self.writer.is_none() && present - self.rest.start >= MIN_PASSED {
                // Another fill was here before: its bytes are not fetched again.
                self.rest.start = present;
                return Ok(());
            }
        }
        self.keep(connection, origin, response.keeps_alive && is_at_end(&response, self.rest.end))
    }

    fn keep(
        &self,
        mut connection: Connection<'static>,
        origin: usize,
        keeps_alive: bool,
    ) -> Result<(), Failure> {
        if let Some(writer) = &self.writer {
            writer.shared.watch(None);
            connection.incoming().set_timeout(Some(self.node.options.timeout));
        }
        if keeps_alive && !self.is_left() {
            self.node.origins.keep(origin, connection);
        }
        Ok(())
    }

    /// Moves a part of a body, and tells readers what has come.
    fn move_body(
        &mut self,
        connection: &mut Connection<'static>,
        framing: BodyFraming,
        file: &File,
        (piece, begun): (Option<usize>, u64),
    ) -> Result<(), Failure> {
        let start = self.rest.start;
        let (generation, id) = (Arc::clone(&self.generation), self.id);
        let relay = self.writer.as_ref().map(|writer| Arc::clone(&writer.shared));
        let (mut told, mut noted) = (start, start);
        let mut tell = |at: u64, is_end: bool| {
            if let Some(relay) = &relay {
                return relay.arrived(at);
            }
            if at > told {
                generation.arrived(id, told..at);
                told = at;
            }
            if at > noted && (is_end || at - noted >= NOTE_EVERY) {
                generation.note(piece, at - begun);
                noted = at;
            }
        };
        let options = ReceiveOptions {
            policy: self.node.options.policy,
            pipes: Some(&self.node.pipes),
            progress_every: Some(1),
            limit: Some(MAX_UNKNOWN),
            ..ReceiveOptions::default()
        };
        let received =
            connection.incoming().body(framing, file, start, &options, &mut |progress| {
                tell(start + progress.bytes, false);
            });
        let bytes = received.report.bytes();
        if let Some(writer) = self.writer.as_ref().filter(|_| received.outcome.is_err()) {
            writer.shared.watch(None);
        }
        tell(start + bytes, true);
        self.rest.start = start + bytes;
        self.report.add(&received.report);
        Counts::add(&self.node.counters.origin_bytes, bytes);
        received.outcome.map_err(|error| failure_of(&error, self.writer.is_some()))?;
        match framing {
            BodyFraming::Length(len) if bytes != len => Err(Failure::TimedOut),
            _ => Ok(()),
        }
    }

    /// Returns whether it can stop here: all readers have left, and most is still to come.
    fn is_deserted(&self) -> bool {
        if self.writer.is_some() {
            return self.is_left();
        }
        let is_small = self.rest.end - self.rest.start <= BORDER;
        let len = self.generation.len().unwrap_or(0);
        if self.generation.readers() == 0 && self.generation.broken().is_some() {
            return true;
        }
        self.generation.readers() == 0 && !is_small && self.generation.count() < len / 2
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        let written = self.report.bytes();
        let is_stored = self.generation.is_stored() && self.writer.is_none();
        let digest = self.object.key.digest();
        let kept = self.reserved.min(written);
        self.node.room.settle(is_stored.then_some(digest), kept, self.reserved - kept);
        if is_stored && written > kept {
            self.node.room.settle(Some(digest), written - kept, 0);
        }
        if std::thread::panicking() {
            self.failure = Some(Failure::Disk);
        }
        match &self.writer {
            Some(writer) => {
                Counts::add(&self.node.counters.relayed_bytes, written);
                writer.end(self.failure.map_or(Ok(()), Err));
            }
            None => self.generation.end_fill(self.id, self.failure),
        }
        self.node.report(&FillReport {
            key: self.object.key.as_str(),
            origin: &self.origin,
            from: self.from,
            bytes: written,
            user_space_bytes: self.report.user_space_bytes(),
            mechanism: self.report.main_mechanism().map(underpass_engine::Mechanism::name),
            elapsed: self.started.elapsed(),
            is_relay: self.writer.is_some(),
            failure: self.failure,
        });
    }
}

/// Returns the length of an answer's body, if its head has it.
fn framed_len(asked: &Asked) -> Option<u64> {
    match asked.answer.response.framing {
        BodyFraming::Length(len) => Some(len),
        BodyFraming::Chunked | BodyFraming::UntilEnd => None,
    }
}

/// Returns whether a body that was taken up to here was taken to its end.
fn is_at_end(response: &underpass_client::Response, end: u64) -> bool {
    let range = response.fields.text("content-range").unwrap_or_default();
    let last = range.split(['-', '/']).nth(1).and_then(|last| last.parse::<u64>().ok());
    match response.status {
        206 => last.is_some_and(|last| last + 1 == end),
        _ => response.framing == BodyFraming::Length(end),
    }
}

/// Returns what an error in the middle of a body means.
fn failure_of(error: &ReceiveError, is_relay: bool) -> Failure {
    let error = match error {
        ReceiveError::Engine(error) => error,
        ReceiveError::Chunk(_) | ReceiveError::TooLong => return Failure::BadAnswer,
        _ => return Failure::TimedOut,
    };
    let Error::Io { source, .. } = &**error else { return Failure::Disk };
    match Errno::from_io_error(source) {
        Some(Errno::NOSPC | Errno::DQUOT) => Failure::NoRoom,
        // A file has no reader that could leave.
        Some(Errno::PIPE) if !is_relay => Failure::TimedOut,
        _ if is_of_network(source) => Failure::TimedOut,
        _ => Failure::Disk,
    }
}

/// Nothing cancels the wait between two attempts.
const NEVER: [&AtomicBool; 0] = [];

/// How often a fill is resumed without progress before it is given up.
const RETRIES: u32 = 3;

/// A fill without readers stops at multiples of this.
const BORDER: u64 = 64 << 20;

/// A fill begins anew after what another one has fetched if that is at least this much.
const MIN_PASSED: u64 = 8 << 20;

/// The most that a relay discards of an answer before what its client wants.
const MAX_SKIPPED: u64 = 1 << 20;

/// How often the journal notes what has come.
const NOTE_EVERY: u64 = 1 << 20;

/// The most that is accepted of a body whose length is not known.
const MAX_UNKNOWN: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use underpass_engine::Report;

    use super::*;

    #[test]
    fn only_what_comes_from_the_disk_is_its_failure() {
        for (errno, is_relay, expected) in [
            (Errno::CONNRESET, false, Failure::TimedOut),
            (Errno::HOSTUNREACH, false, Failure::TimedOut),
            (Errno::NETUNREACH, true, Failure::TimedOut),
            (Errno::TIMEDOUT, false, Failure::TimedOut),
            // Without TLS, whose errors are told apart before, this is a broken block.
            (Errno::BADMSG, false, Failure::Disk),
            (Errno::PIPE, false, Failure::TimedOut),
            (Errno::PIPE, true, Failure::Disk),
            (Errno::IO, false, Failure::Disk),
            (Errno::NOSPC, false, Failure::NoRoom),
            (Errno::DQUOT, false, Failure::NoRoom),
        ] {
            let report = Box::new(Report::default());
            let error = Error::Io { mechanism: None, source: errno.into(), report };
            let error = ReceiveError::Engine(Box::new(error));
            assert_eq!(failure_of(&error, is_relay), expected, "{errno}");
        }
    }
}
