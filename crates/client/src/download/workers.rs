//! The workers of a download, each with its own connection.

use std::fs::File;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use underpass_engine::hint::Action;
use underpass_engine::wait::lock;
use underpass_engine::{Progress, Report};
use underpass_protocol::digest::Digest;
use underpass_transport::incoming::{BodyFraming, ReceiveOptions};
use url::Url;

use super::check::{check_range, of_content};
use super::error::{DownloadError, Missing, Result};
use super::interpret::{
    FileRequest, Interpretation, StrongValidator, ignores_range, interpret_response,
    lacks_validator,
};
use super::options::{DownloadEvent, Gauge};
use super::partial_file::{Journal, require_digest};
use super::rate_limit::RateLimit;
use super::run::mirrors::{Mirror, Sources};
use super::scheduler::{SegmentScheduler, SegmentTask};
use crate::backoff::{Backoff, sleep};
use crate::error::{ClientError, InvalidResponse};
use crate::http::{Connection, HttpClient, OpenResponse, Request, Response};
use crate::journal::OpenPiece;

/// The state that the workers of one download share.
pub(super) struct Workers<'c> {
    pub(super) client: HttpClient<'c>,
    pub(super) scheduler: SegmentScheduler,
    /// A flag for each worker that makes it stop.
    pub(super) cuts: &'c [AtomicBool],
    /// The flag that cancels the download.
    pub(super) cancel: Option<&'c AtomicBool>,
    pub(super) receive_options: ReceiveOptions<'c>,
    pub(super) rate_limit: &'c RateLimit,
    pub(super) retries: u32,
    pub(super) file: &'c File,
    /// The offset of the download's first byte in the file.
    pub(super) base: u64,
    pub(super) journal: Option<&'c Journal>,
    /// The given URL.
    pub(super) url: &'c Url,
    /// Other servers that have the file.
    pub(super) sources: Sources<'c>,
    /// The URL that answered.
    pub(super) answered_url: Url,
    /// Whether that URL may receive credentials.
    pub(super) is_trusted: bool,
    pub(super) version: Option<StrongValidator>,
    pub(super) total: u64,
    pub(super) gauge: &'c Gauge,
    pub(super) on_event: &'c (dyn Fn(&DownloadEvent<'_>) + Sync),
    pub(super) moved: AtomicU64,
    pub(super) outcome: Mutex<Totals>,
}

/// The result of the workers.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// The bytes moved, and how.
    pub(super) report: Report,
    /// The error that ended the download.
    pub(super) error: Option<DownloadError>,
    /// Whether that was the last of as many consecutive failures as are allowed.
    pub(super) is_given_up: bool,
    /// The highest number of simultaneous connections.
    pub(super) connections: u32,
}

/// A worker. It leaves when this is dropped, even when its thread panics: the other workers do its
/// work, and none waits for it.
struct WorkerGuard<'s> {
    scheduler: &'s SegmentScheduler,
    me: usize,
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.scheduler.leave(self.me);
    }
}

/// A response whose body is still to be read, and its range.
pub(super) struct OpenSegment<'c> {
    pub(super) answer: OpenResponse<'c>,
    pub(super) range: Range<u64>,
}

impl<'c> Workers<'c> {
    /// Fetches everything with one worker for each flag. The first has a response already, for a
    /// piece that is assigned to it. If not all threads can be started, there are fewer workers.
    pub(super) fn run(&self, first: OpenSegment<'c>, piece: Range<u64>) {
        let first = (first, piece);
        std::thread::scope(|scope| {
            let (stop, stopped) = channel();
            if let Some(journal) = self.journal {
                // Without this thread, a later process can rely on less of the data.
                let _ = Builder::new()
                    .spawn_scoped(scope, move || self.save_at_times(journal, &stopped));
            }
            // Handed over once the thread runs: if it cannot be started, the response stays here.
            let (hand_over, handed) = channel();
            let work = move || self.work(0, handed.recv().ok(), true);
            let is_watched =
                self.cuts.len() > 1 && Builder::new().spawn_scoped(scope, work).is_ok();
            for me in 1..self.cuts.len() {
                let work = move || self.work(me, None, true);
                if !is_watched || Builder::new().spawn_scoped(scope, work).is_err() {
                    self.scheduler.leave(me);
                }
            }
            if is_watched {
                // The worker is waiting for it.
                let _ = hand_over.send(first);
            } else {
                self.work(0, Some(first), false);
            }
            while !self.scheduler.wait_until_empty(POLL_INTERVAL) {
                if self.is_cancelled() {
                    self.end();
                }
            }
            drop(stop);
        });
    }

    /// Runs one worker, segment after segment. If it is watched, its flag stops it.
    fn work(&self, me: usize, mut first: Option<(OpenSegment<'c>, Range<u64>)>, is_watched: bool) {
        let _leaving = WorkerGuard { scheduler: &self.scheduler, me };
        let mut client = self.client.clone();
        if is_watched {
            client.cancel = Some(&self.cuts[me]);
            if let Some((first, _)) = &mut first {
                first.answer.connection.incoming().set_cancel(client.cancel);
            }
        }
        let mut backoff = Backoff::new(self.retries);
        let mut idle = None;
        let mut has_failed = false;
        loop {
            let piece = match &first {
                Some((_, piece)) => piece.clone(),
                None => match self.scheduler.next_segment(me, self.cuts) {
                    SegmentTask::Fetch(piece) => piece,
                    SegmentTask::Leave => break,
                },
            };
            self.count_arrival();
            let before = self.moved.load(Ordering::Relaxed);
            let mirror = self.sources.of(me).filter(|_| first.is_none());
            let opened = match (first.take(), mirror) {
                (Some((opened, _)), _) => Ok(opened),
                (None, Some(mirror)) => self.open_mirror(&client, mirror, idle.take(), &piece),
                (None, None) => self.open(&client, idle.take(), &piece, has_failed),
            };
            let outcome = opened.and_then(|opened| self.fetch(me, mirror, opened, &piece));
            self.gauge.connections.fetch_sub(1, Ordering::Relaxed);
            match outcome {
                Ok(connection) => {
                    backoff.reset();
                    (idle, has_failed) = (connection, false);
                }
                Err(error) => {
                    self.scheduler.give_back(me);
                    backoff.progressed(self.moved.load(Ordering::Relaxed) - before);
                    let had_failed = std::mem::replace(&mut has_failed, true);
                    // The given URL may redirect to another one now.
                    let is_outdated = !had_failed && self.answered_url != *self.url;
                    if self.drops(mirror, &error) || is_outdated && error.is_refusal() {
                        continue;
                    }
                    if !self.wait_to_retry(me, error, &mut backoff) {
                        break;
                    }
                }
            }
        }
    }

    /// Requests a segment.
    fn open<'w>(
        &self,
        client: &HttpClient<'w>,
        idle: Option<Connection<'w>>,
        piece: &Range<u64>,
        has_failed: bool,
    ) -> Result<OpenSegment<'w>> {
        let version = self.version.clone().map(|version| (version, Some(self.total)));
        let request = FileRequest {
            range: Some((piece.start, Some(piece.end))),
            version,
            ..FileRequest::default()
        };
        // The target of a redirect may have been temporary.
        let (url, is_trusted) =
            if has_failed { (self.url, true) } else { (&self.answered_url, self.is_trusted) };
        let mut answer = execute(client, idle, &request, url, is_trusted)?;
        if answer.response.is_success() && !self.joins(&answer) {
            if self.sources.is_checked {
                require_digest(self.journal)?;
            } else {
                // The server that sent the other parts may have recovered.
                let (url, is_trusted) = (&self.answered_url, self.is_trusted);
                let first = execute(client, None, &request, url, is_trusted).ok();
                let first = first.filter(|it| it.response.is_success() && self.joins(it));
                answer = first.ok_or(DownloadError::Changed)?;
            }
        }
        match interpret_response(&request, &answer.response)? {
            Interpretation::Part { range, total } if total == self.total => {
                Ok(OpenSegment { answer, range })
            }
            Interpretation::Whole { total: Some(total) }
                if total == self.total && piece.start == 0 =>
            {
                Ok(OpenSegment { answer, range: 0..total })
            }
            Interpretation::Refused => Err(answer.connection.refusal(&answer.response).into()),
            Interpretation::Changed if lacks_validator(&answer.response) => {
                Err(Missing::Validator.into())
            }
            Interpretation::Changed if ignores_range(&request, &answer.response) => {
                Err(Missing::Ranges.into())
            }
            Interpretation::Changed
            | Interpretation::Unmodified
            | Interpretation::Unsatisfiable
            | Interpretation::Part { .. }
            | Interpretation::Whole { .. } => Err(DownloadError::Changed),
        }
    }

    /// Returns whether a response fits the other parts.
    fn joins(&self, answer: &OpenResponse<'_>) -> bool {
        let version = self.version.as_ref();
        version.is_none_or(|version| version.joins(&self.answered_url, &answer.url))
    }

    /// Requests a segment from another server.
    fn open_mirror<'w>(
        &self,
        client: &HttpClient<'w>,
        mirror: &Mirror<'c>,
        idle: Option<Connection<'w>>,
        piece: &Range<u64>,
    ) -> Result<OpenSegment<'w>>
    where
        'c: 'w,
    {
        let version = self.sources.wanted(mirror, self.version.as_ref())?;
        let request = FileRequest {
            range: Some((piece.start, Some(piece.end))),
            version: version.map(|version| (version, Some(self.total))),
            ..FileRequest::default()
        };
        let mut asking: HttpClient<'w> = mirror.server.client.clone();
        asking.cancel = client.cancel;
        let answer = execute(&asking, idle, &request, &mirror.server.url, true)?;
        match interpret_response(&request, &answer.response)? {
            Interpretation::Part { range, total } if total == self.total => {
                mirror.record_version(&answer.response);
                Ok(OpenSegment { answer, range })
            }
            Interpretation::Refused => Err(answer.connection.refusal(&answer.response).into()),
            _ if ignores_range(&request, &answer.response) => Err(Missing::Ranges.into()),
            _ => Err(DownloadError::Changed),
        }
    }

    /// Drops the server from which a segment was requested, if there is another one; returns
    /// whether the worker continues.
    fn drops(&self, mirror: Option<&Mirror<'c>>, error: &DownloadError) -> bool {
        if self.scheduler.is_over() || self.is_cancelled() || !error.is_of_source() {
            return false;
        }
        let has_other = self.sources.drop(mirror);
        if has_other {
            let url = mirror.map_or(self.url, |mirror| &mirror.server.url);
            (self.on_event)(&DownloadEvent::SourceDropped { url, error });
        }
        has_other
    }

    /// Moves a segment to its place; returns the connection if it can be reused.
    fn fetch<'w>(
        &self,
        me: usize,
        mirror: Option<&Mirror<'c>>,
        opened: OpenSegment<'w>,
        piece: &Range<u64>,
    ) -> Result<Option<Connection<'w>>> {
        let OpenSegment { answer, range } = opened;
        let (mut connection, response) = (answer.connection, answer.response);
        self.scheduler.limit(me, range.end);
        let mut noted = OpenPiece::at(piece.start);
        let is_chunked = response.framing == BodyFraming::Chunked;
        let digests = self.digests_of(&response);
        let mut at = piece.start;
        loop {
            // A chunked body is read to its end, wherever that is, and a digest covers the whole
            // response.
            let is_all = is_chunked || !digests.is_empty();
            let chunk = if is_all && at == piece.start {
                self.scheduler.claim_all(me)
            } else {
                self.scheduler.claim(me)
            };
            let Some(chunk) = chunk else { break };
            let mut moved = 0;
            let mut note = |bytes: u64| {
                self.record_progress(me, &mut noted, at + bytes, bytes - moved);
                moved = bytes;
            };
            let framing = if is_chunked {
                BodyFraming::Chunked
            } else {
                BodyFraming::Length(chunk.end - chunk.start)
            };
            let receive_options =
                ReceiveOptions { limit: Some(chunk.end - chunk.start), ..self.receive_options };
            let mut on_progress = |progress: &Progress| note(progress.bytes);
            let place = self.base + chunk.start;
            let received = connection.incoming().body(
                framing,
                self.file,
                place,
                &receive_options,
                &mut on_progress,
            );
            let bytes = received.report.bytes();
            note(bytes);
            mirror.inspect(|it| it.server.record_sent(chunk.start..chunk.start + bytes));
            lock(&self.outcome).report.add(&received.report);
            received.outcome.map_err(|error| DownloadError::body(connection.address(), error))?;
            at = chunk.start + bytes;
            if at != chunk.end {
                let expected = chunk.end - chunk.start;
                let error = InvalidResponse::BodyLength { bytes, expected, path: None };
                return Err(ClientError::from(error).into());
            }
        }
        if at == range.end && range.start == piece.start && !digests.is_empty() {
            let place = self.base + range.start..self.base + range.end;
            check_range(self.file, place, &digests, || !self.is_cancelled())?;
        }
        Ok((at == range.end && response.keeps_alive).then_some(connection))
    }

    /// Returns the digests with which a part is compared; none if the target cannot be read again.
    fn digests_of(&self, response: &Response) -> Vec<Digest> {
        let is_file = self.receive_options.reserve;
        if is_file && response.status == 206 { of_content(response) } else { Vec::new() }
    }

    /// Records that more bytes of a segment have been written.
    fn record_progress(&self, me: usize, piece: &mut OpenPiece, end: u64, more: u64) {
        if more == 0 {
            return;
        }
        self.scheduler.moved(me, more);
        if let Some(journal) = self.journal {
            journal.record_progress(piece, end);
        }
        self.moved.fetch_add(more, Ordering::Relaxed);
        self.gauge.done.fetch_add(more, Ordering::Relaxed);
        self.rate_limit.spend(more, &self.flags(me));
    }

    /// Waits after a failure; returns whether the worker continues.
    fn wait_to_retry(&self, me: usize, error: DownloadError, backoff: &mut Backoff) -> bool {
        if self.scheduler.is_over() && !self.is_cancelled() {
            return false;
        }
        if matches!(error, DownloadError::Client(ClientError::Cancelled)) && !self.is_cancelled() {
            // It was cut off as too slow, and another one does its work.
            self.cuts[me].store(false, Ordering::Relaxed);
            return true;
        }
        let is_temporary = error.is_temporary();
        if self.version.is_none() || !is_temporary && !error.is_refusal() {
            self.fail(error);
            return false;
        }
        let wait = is_temporary.then(|| backoff.next(error.retry_after())).flatten();
        let Some(wait) = wait else {
            // The other workers may succeed.
            if self.scheduler.leave(me) {
                lock(&self.outcome).is_given_up = true;
                self.fail(error);
            }
            return false;
        };
        if self.scheduler.busy() == 0 {
            (self.on_event)(&DownloadEvent::Retrying { error: &error, after: wait });
        }
        if sleep(wait, &self.flags(me)) {
            return true;
        }
        if self.is_cancelled() {
            self.fail(ClientError::Cancelled.into());
        }
        false
    }

    /// Syncs the file every few seconds and records that, until the sender of the channel is
    /// dropped.
    fn save_at_times(&self, journal: &Journal, stopped: &Receiver<()>) {
        while stopped.recv_timeout(SYNC_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if let Err(error) = journal.save(self.file) {
                // Replaces any other error, to prevent a retry: no later sync would fail.
                lock(&self.outcome).error = Some(DownloadError::local(Action::Writing)(error));
                return self.end();
            }
        }
    }

    /// Ends the download with this error.
    fn fail(&self, error: DownloadError) {
        lock(&self.outcome).error.get_or_insert(error);
        self.end();
    }

    /// Ends the download.
    fn end(&self) {
        self.scheduler.end();
        if self.cuts.len() > 1 {
            self.cuts.iter().for_each(|cut| cut.store(true, Ordering::Relaxed));
        }
    }

    fn count_arrival(&self) {
        let now = self.gauge.connections.fetch_add(1, Ordering::Relaxed) + 1;
        let mut outcome = lock(&self.outcome);
        outcome.connections = outcome.connections.max(now);
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }

    /// Returns the flags that interrupt a worker's wait.
    fn flags(&self, me: usize) -> Vec<&AtomicBool> {
        self.cancel.into_iter().chain([&self.cuts[me]]).collect()
    }
}

/// Requests a file or a part of it.
pub(super) fn execute<'w>(
    client: &HttpClient<'w>,
    idle: Option<Connection<'w>>,
    request: &FileRequest,
    url: &Url,
    is_trusted: bool,
) -> Result<OpenResponse<'w>, ClientError> {
    let range = request.range_field();
    let mut fields = Vec::new();
    if let Some(wanted) = &request.wants_digest {
        fields.push(("Want-Repr-Digest", wanted.as_str()));
    }
    if let Some(tag) = &request.unless {
        fields.push(("If-None-Match", tag.as_str()));
    }
    if let Some(range) = &range {
        fields.push(("Range", range.as_str()));
        if let Some((version, _)) = &request.version {
            fields.push((version.condition(client.credentials.store().is_some()), version.field()));
        }
    }
    let request = Request { method: "GET", fields: &fields };
    client.execute_with_trust(idle, &request, url, is_trusted)
}

/// The interval at which the file is synced: a power cut loses little more than this.
const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// The interval at which a wait checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
