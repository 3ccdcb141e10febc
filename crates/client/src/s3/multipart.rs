//! The parts of an upload, and the workers that send them.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use underpass_engine::wait::{lock, unpoison};
use underpass_engine::{Error, Progress, Report, Source};
use underpass_protocol::digest::{self, Algorithm, hex};
use underpass_transport::digest::{ComputeError, compute};
use underpass_transport::tls::SessionFacts;
use url::Url;

use crate::backoff::{Backoff, sleep};
use crate::error::{ClientError, InvalidResponse};
use crate::http::{Connection, HttpClient, Request, xml};
use crate::upload::{
    OnEvent, Upload, UploadBody, UploadError, UploadEvent, UploadExchange, UploadJournal, connect,
};

/// A part that the store has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredPart {
    /// Its number; the first is 1.
    pub(super) number: usize,
    pub(super) len: u64,
    /// Its entity tag.
    pub(super) tag: String,
    /// Its SHA-256 in Base64, if the store has verified it: digits and letters, and `+/=`.
    pub(super) checksum: Option<String>,
}

/// Returns the ranges of the parts of a file. They depend on its length only.
pub(super) fn split(len: u64) -> Vec<Range<u64>> {
    let least = len.div_ceil(MAX_PARTS).next_multiple_of(1 << 20).max(MIN_PART);
    (0..len.div_ceil(least)).map(|n| n * least..len.min((n + 1) * least)).collect()
}

/// Returns whether a file of this many bytes is sent in parts.
pub(super) fn is_in_parts(len: u64) -> bool {
    len >= MIN_PART
}

/// Reads a page of the parts that a store has, without those of a wrong length; also returns the
/// number after which the next page begins, if there is one.
pub(super) fn parts_of(body: &[u8], all: &[Range<u64>]) -> (Vec<StoredPart>, Option<usize>) {
    let (mut found, mut next, mut is_cut) = (Vec::new(), None, false);
    let mut part = StoredPart { number: 0, len: 0, tag: String::new(), checksum: None };
    xml::read(body, |name, text| match name {
        b"partnumber" => part.number = text.parse().unwrap_or(0),
        b"size" => part.len = text.parse().unwrap_or(0),
        b"etag" => text.clone_into(&mut part.tag),
        b"checksumsha256" => {
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
            let is_valid = !text.is_empty() && text.bytes().all(is_plain);
            part.checksum = is_valid.then(|| text.to_owned());
        }
        b"part" => {
            let range = part.number.checked_sub(1).and_then(|index| all.get(index));
            if range.is_some_and(|range| range.end - range.start == part.len) {
                found.push(part.clone());
            }
            part.checksum = None;
        }
        b"nextpartnumbermarker" => next = text.parse().ok(),
        b"istruncated" => is_cut = text == "true",
        _ => {}
    });
    (found, next.filter(|_| is_cut))
}

/// Returns the entity tag, without quotes, of the object that these parts become, at a store whose
/// part tags are MD5 digests; `None` if they are not.
pub(super) fn whole_tag(parts: &[StoredPart]) -> Option<String> {
    let mut digest = Md5::new();
    for part in parts {
        let tag = part.tag.trim_matches('"');
        if tag.len() != 32 {
            return None;
        }
        digest.update(u128::from_str_radix(tag, 16).ok()?.to_be_bytes());
    }
    Some(format!("{}-{}", hex(&digest.finalize()), parts.len()))
}

/// The parts of one upload.
pub(super) struct StoredParts<'p, 'a, 't> {
    client: &'p HttpClient<'a>,
    journal: Option<&'p UploadJournal>,
    upload: &'p Upload<'p>,
    /// The URL of the upload.
    url: &'p Url,
    len: u64,
    on_event: Mutex<&'p mut OnEvent<'t>>,
    state: Mutex<PartsState>,
    /// The bytes that the store has, and those being sent.
    moved: AtomicU64,
    is_over: AtomicBool,
}

/// The state of the parts.
#[derive(Default)]
pub(super) struct PartsState {
    missing: VecDeque<(usize, Range<u64>)>,
    /// The number of workers.
    workers: usize,
    /// The parts that the store has received.
    pub(super) sent: Vec<StoredPart>,
    /// The bytes moved, and how.
    pub(super) report: Report,
    /// Bytes that were read for the digests of parts.
    pub(super) digest_bytes: u64,
    error: Option<UploadError>,
    /// The TLS of a connection.
    pub(super) tls: Option<SessionFacts>,
}

impl<'p, 'a, 't> StoredParts<'p, 'a, 't> {
    pub(super) fn new(
        client: &'p HttpClient<'a>,
        journal: Option<&'p UploadJournal>,
        upload: &'p Upload<'p>,
        url: &'p Url,
        mut sent: Vec<StoredPart>,
        len: u64,
        on_event: &'p mut OnEvent<'t>,
    ) -> Self {
        sent.sort_by_key(|part| part.number);
        sent.dedup_by_key(|part| part.number);
        let is_missing = |(number, _): &(usize, Range<u64>)| {
            sent.binary_search_by_key(number, |part| part.number).is_err()
        };
        let all = split(len).into_iter().enumerate().map(|(index, range)| (index + 1, range));
        let missing = all.filter(is_missing).collect();
        let moved = AtomicU64::new(sent.iter().map(|part| part.len).sum());
        let state = PartsState { missing, sent, ..PartsState::default() };
        Self {
            client,
            journal,
            upload,
            url,
            len,
            on_event: Mutex::new(on_event),
            state: Mutex::new(state),
            moved,
            is_over: AtomicBool::new(false),
        }
    }

    /// Sends the missing parts over up to `connections` connections.
    pub(super) fn send(
        &mut self,
        connections: u32,
        idle: Option<Connection<'a>>,
    ) -> Result<(), UploadError> {
        let count = usize::try_from(connections).unwrap_or(1).clamp(1, MAX_CONNECTIONS);
        let count = count.min(lock(&self.state).missing.len()).max(1);
        lock(&self.state).workers = count;
        let parts = &*self;
        std::thread::scope(|scope| {
            for _ in 1..count {
                // If not all threads can be started, there are fewer workers.
                let started = std::thread::Builder::new()
                    .spawn_scoped(scope, move || parts.work(None, count));
                lock(&parts.state).workers -= usize::from(started.is_err());
            }
            parts.work(idle, count);
        });
        lock(&self.state).error.take().map_or(Ok(()), Err)
    }

    /// Returns the state of the parts, sorted by number.
    pub(super) fn finish(self) -> PartsState {
        let mut state = unpoison(self.state.into_inner());
        state.sent.sort_by_key(|part| part.number);
        state
    }

    /// Sends one part after the other, until none is left or one fails permanently. If the store
    /// refuses only this connection, the other workers send the rest.
    fn work(&self, mut idle: Option<Connection<'a>>, count: usize) {
        let (mut backoff, mut corrections) = (Backoff::new(self.upload.retries), 0);
        while !self.is_over.load(Ordering::Relaxed) {
            let Some((number, range)) = self.next() else { return };
            match self.send_part(number, &range, idle.take(), count) {
                Ok(None) => {
                    lock(&self.state).missing.push_front((number, range));
                    corrections += 1;
                    if corrections > MAX_CORRECTIONS {
                        let error = InvalidResponse::Protocol("it kept refusing a part");
                        return self.fail(ClientError::from(error).into());
                    }
                }
                Ok(Some((part, connection))) => {
                    backoff.reset();
                    (idle, corrections) = (connection, 0);
                    let mut state = lock(&self.state);
                    // Under the lock, because each line begins where the previous one ends.
                    self.journal.iter().for_each(|it| it.add_part(part.number, &part.tag));
                    state.sent.push(part);
                }
                Err(error) => {
                    let is_temporary = error.is_temporary();
                    let wait = is_temporary.then(|| backoff.next(retry_after(&error))).flatten();
                    let has_others = {
                        let mut state = lock(&self.state);
                        state.missing.push_front((number, range));
                        state.workers -= usize::from(wait.is_none());
                        state.workers > 0
                    };
                    let Some(wait) = wait else {
                        if !is_temporary || !has_others {
                            self.fail(error);
                        }
                        return;
                    };
                    self.emit(&UploadEvent::Retrying { error: &error, wait, resumes: true });
                    let flags: Vec<_> =
                        self.client.cancel.into_iter().chain([&self.is_over]).collect();
                    if !sleep(wait, &flags) {
                        return self.fail(ClientError::Cancelled.into());
                    }
                }
            }
        }
    }

    /// Returns the next part. If there is none, this worker no longer counts.
    fn next(&self) -> Option<(usize, Range<u64>)> {
        let mut state = lock(&self.state);
        let next = state.missing.pop_front();
        state.workers -= usize::from(next.is_none());
        next
    }

    fn fail(&self, error: UploadError) {
        lock(&self.state).error.get_or_insert(error);
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Sends one part; returns the store's record of it, and the connection if it can be reused.
    /// `None` if the store has refused it and named a correction.
    fn send_part(
        &self,
        number: usize,
        range: &Range<u64>,
        idle: Option<Connection<'a>>,
        count: usize,
    ) -> Result<Option<(StoredPart, Option<Connection<'a>>)>, UploadError> {
        let (client, options) = (self.client, self.upload.options);
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("partNumber", &number.to_string());
        let rate = options.rate.map(|rate| (rate / count as u64).max(1));
        let mut connection = connect(client, idle, &url, rate)?;
        let len = range.end - range.start;
        let source = self.upload.source;
        let source = source.clone().at(source.offset().unwrap_or(0) + range.start).len(len);
        let length = len.to_string();
        let checksum = self.checksum(&source, len)?;
        let mut fields = vec![("Content-Length", length.as_str())];
        fields.extend(checksum.as_deref().map(|value| (CHECKSUM, value)));
        let request = Request { method: "PUT", fields: &fields };
        let head = connection.head(client, &request, &url, true)?;
        let mut counted = 0;
        let mut on_event = |event: &UploadEvent<'_>| {
            if let UploadEvent::Progress(progress) = event {
                let more = progress.bytes.saturating_sub(counted);
                counted += more;
                let bytes = self.moved.fetch_add(more, Ordering::Relaxed) + more;
                let expected = Some(self.len);
                self.emit(&UploadEvent::Progress(Progress { bytes, expected, ..*progress }));
            }
        };
        let mut exchange = UploadExchange {
            client,
            connection: &mut connection,
            method: "PUT",
            send_options: options,
            body: UploadBody { source: &source, skip: 0 },
            expects: None,
            needs_104: false,
            interim: &mut |_| {},
            on_event: &mut on_event,
            stall: self.upload.options.stall_detector(self.client),
            report: Report::default(),
            heard: None,
            is_begun: false,
        };
        let outcome = exchange.run(head);
        let report = std::mem::take(&mut exchange.report);
        {
            let mut state = lock(&self.state);
            state.report.add(&report);
            state.tls = connection.tls().cloned();
        }
        let (mut response, _) = outcome?;
        if response.is_success() {
            let tag = response.fields.text("etag").map(str::to_owned);
            let what =
                || ClientError::from(InvalidResponse::Protocol("a part without an entity tag"));
            let part = StoredPart { number, len, tag: tag.ok_or_else(what)?, checksum };
            return Ok(Some((part, connection.finish(&response))));
        }
        if connection.learn(client, &mut response) {
            Ok(None)
        } else {
            Err(connection.refusal(&response).into())
        }
    }

    /// Computes the digest of a part, if the store should verify it.
    fn checksum(&self, source: &Source<&File>, len: u64) -> Result<Option<String>, UploadError> {
        if !self.upload.fields.iter().any(|(name, _)| *name == CHECKSUM) {
            return Ok(None);
        }
        let at = source.offset().unwrap_or(0);
        let go_on = |_| !self.client.is_cancelled();
        match compute(source.fd(), at..at + len, &[Algorithm::Sha256], go_on) {
            Ok(computed) => {
                lock(&self.state).digest_bytes += computed.read_bytes;
                let mut values = computed.digests.iter().map(|it| STANDARD.encode(it.value()));
                Ok(values.next())
            }
            Err(ComputeError::Cancelled) => Err(ClientError::Cancelled.into()),
            Err(ComputeError::Io(source)) => {
                let report = Box::new(Report::default());
                let error = Error::Io { mechanism: None, source, report };
                Err(UploadError::Source(Box::new(error)))
            }
        }
    }

    fn emit(&self, event: &UploadEvent<'_>) {
        let mut on_event = lock(&self.on_event);
        on_event(event);
    }
}

fn retry_after(error: &UploadError) -> Option<std::time::Duration> {
    if let UploadError::Client(error) = error { error.retry_after() } else { None }
}

/// Returns the value of [`CHECKSUM`] for these digests; empty if none of them is of SHA-256.
#[must_use]
pub fn checksum(digests: &[digest::Digest]) -> String {
    let found = digests.iter().find(|digest| digest.algorithm() == Algorithm::Sha256);
    found.map(|digest| STANDARD.encode(digest.value())).unwrap_or_default()
}

/// The field with the digest of a body that the store verifies. If given, each part gets its own.
pub const CHECKSUM: &str = "x-amz-checksum-sha256";

/// The minimum size of a part in bytes, and of a file that is sent in parts: the maximum loss if a
/// connection breaks, and more than the 5 MiB that stores require.
const MIN_PART: u64 = 16 << 20;

/// The maximum number of parts of an upload.
const MAX_PARTS: u64 = 10_000;

/// The maximum number of consecutive times that a part is sent again with a correction.
const MAX_CORRECTIONS: u32 = 3;

/// The maximum number of connections of an upload.
const MAX_CONNECTIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_one_size_and_not_too_many() {
        const MIB: u64 = 1 << 20;
        assert_eq!(split(MIN_PART).len(), 1);
        assert_eq!(split(MIN_PART + 1), [0..MIN_PART, MIN_PART..MIN_PART + 1]);
        for len in [160_000 * MIB, 160_001 * MIB, 5_000_000 * MIB, u64::from(u32::MAX) << 20] {
            let parts = split(len);
            assert!(parts.len() <= 10_000);
            assert_eq!(parts.last().map(|part| part.end), Some(len));
            assert!(parts.windows(2).all(|two| two[0].end == two[1].start));
        }
    }

    #[test]
    fn only_parts_of_the_expected_number_and_size_count() {
        let body = b"<ListPartsResult><NextPartNumberMarker>3</NextPartNumberMarker>\
            <IsTruncated>true</IsTruncated>\
            <Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag><Size>16777216</Size></Part>\
            <Part><PartNumber>2</PartNumber><ETag>&quot;b&quot;</ETag><Size>7</Size></Part>\
            <Part><PartNumber>3</PartNumber><ETag>&quot;c&quot;</ETag><Size>1</Size></Part>\
            <Part><PartNumber>9</PartNumber><ETag>&quot;d&quot;</ETag><Size>1</Size></Part></ListPartsResult>";
        let (found, next) = parts_of(body, &split(2 * MIN_PART + 1));
        assert_eq!(found.iter().map(|part| part.number).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(found[0].tag, "\"a\"");
        assert_eq!(next, Some(3));
    }
}
