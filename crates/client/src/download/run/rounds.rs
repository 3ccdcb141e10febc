//! The rounds of a download: each requests and fetches the missing bytes.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use underpass_engine::wait::unpoison;
use underpass_engine::{Progress, Report};
use underpass_transport::incoming::ReceiveOptions;

use super::first::FirstAnswer;
use super::mirrors::Sources;
use super::state::{Download, MIN_KEPT, RequestMode};
use crate::backoff::Backoff;
use crate::download::error::{DownloadError, DownloadFailed, DownloadOutcome, Missing, Result};
use crate::download::options::{DownloadEvent, Target};
use crate::download::partial_file::{PartialFile, require_digest};
use crate::download::scheduler::SegmentScheduler;
use crate::download::workers::{OpenSegment, Totals, Workers};
use crate::error::ClientError;
use crate::http::OpenResponse;
use crate::journal::OpenPiece;

impl<'a> Download<'_, 'a> {
    /// Runs the download to its end.
    pub(in super::super) fn run(mut self) -> Result<DownloadOutcome, DownloadFailed> {
        match self.all() {
            Ok(was_here) => Ok(DownloadOutcome {
                size: self.total.unwrap_or_else(|| self.report.bytes()),
                report: self.report,
                resumed_at: self.resumed_at,
                connections: self.connections,
                was_here,
                version: self.version,
                modified: self.modified,
                facts: self.facts,
                tls: self.tls,
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Runs all rounds; returns `true` if the existing file is the server's version.
    fn all(&mut self) -> Result<bool> {
        if self.is_here()? {
            self.forget_superseded();
            return Ok(true);
        }
        self.find_earlier()?;
        let mut backoff = Backoff::new(self.options.retries);
        let mut changes = 0;
        let was_here = loop {
            let before = self.here();
            let error = match self.round() {
                Ok(was_here) => break was_here,
                Err(error) => error,
            };
            if matches!(error, DownloadError::Changed | DownloadError::Missing(Missing::Ranges)) {
                changes += 1;
                if !self.start_over()? || changes > MAX_CHANGES {
                    return Err(error);
                }
                (self.on_event)(&DownloadEvent::StartingOver { error: &error });
                // Servers of one name may have different versions: one response has only one.
                if changes > 1 || matches!(error, DownloadError::Missing(Missing::Ranges)) {
                    self.request_mode = RequestMode::Whole;
                }
                continue;
            }
            if matches!(error, DownloadError::Digest(_)) {
                // The digest of a part was wrong: nothing can be resumed.
                self.start_over()?;
                return Err(error);
            }
            if self.is_given_up {
                return Err(error);
            }
            backoff.progressed(self.here().saturating_sub(before));
            if !self.is_resumable() && !self.start_over()? {
                return Err(error);
            }
            self.wait(&mut backoff, error)?;
        };
        self.finish()?;
        self.forget_superseded();
        Ok(was_here)
    }

    /// Requests and fetches the missing bytes, until something fails; returns `true` if the
    /// existing file is the server's version.
    fn round(&mut self) -> Result<bool> {
        match self.open()? {
            FirstAnswer::Body { answer, range: Some(range) } if self.total.is_some() => {
                self.fetch(answer, range)?;
            }
            FirstAnswer::Body { answer, .. } => self.fetch_unmeasured(answer)?,
            FirstAnswer::Complete => {}
            FirstAnswer::Unmodified => return Ok(true),
        }
        Ok(false)
    }

    /// Fetches the missing bytes over as many connections as are useful.
    fn fetch(&mut self, answer: OpenResponse<'a>, range: Range<u64>) -> Result<()> {
        let missing = self.missing();
        let Some(total) = self.total.filter(|_| !missing.is_empty()) else { return Ok(()) };
        let connections = self.connections(&missing, answer.connection.is_local());
        let cuts: Vec<_> = (0..connections).map(|_| AtomicBool::new(false)).collect();
        let Some(partial) = &self.partial else { return Ok(()) };
        let options = self.options;
        let is_checked = !options.expected.is_empty();
        if is_checked && !self.mirrors.is_empty() {
            require_digest(partial.journal())?;
        }
        let workers = Workers {
            client: self.client.clone(),
            scheduler: SegmentScheduler::new(missing.clone(), connections),
            cuts: &cuts,
            cancel: self.client.cancel,
            receive_options: self.receive_options(),
            rate_limit: self.rate_limit,
            retries: options.retries,
            file: partial.file(),
            base: partial.base(),
            journal: partial.journal(),
            url: self.url,
            sources: Sources::new(self.mirrors, is_checked),
            answered_url: answer.url.clone(),
            is_trusted: answer.is_trusted,
            version: self.version.clone().filter(|_| self.has_ranges),
            total,
            gauge: self.gauge,
            on_event: self.on_event,
            moved: AtomicU64::new(0),
            outcome: Mutex::default(),
        };
        let first = range.start..missing[0].end.min(range.end);
        workers.scheduler.assign(0, &first);
        if let Some(bytes) = self.rate_limit.window() {
            answer.connection.set_window(bytes);
        }
        workers.run(OpenSegment { answer, range }, first);
        let is_done = workers.scheduler.is_done();
        let moved = workers.moved.load(Ordering::Relaxed);
        let totals = unpoison(workers.outcome.into_inner());
        let Totals { report, error, is_given_up, connections } = totals;
        self.is_given_up = is_given_up;
        self.moved(&report, moved, connections);
        match error {
            Some(error) => Err(error),
            None if is_done => Ok(()),
            None => Err(ClientError::Cancelled.into()),
        }
    }

    /// Fetches a body of unknown length.
    fn fetch_unmeasured(&mut self, mut answer: OpenResponse<'a>) -> Result<()> {
        let Some(partial) = &self.partial else { return Ok(()) };
        let mut piece = OpenPiece::at(0);
        let cancel: Vec<_> = self.client.cancel.into_iter().collect();
        let mut moved = 0;
        let mut note = |bytes: u64| {
            if let Some(journal) = partial.journal() {
                journal.record_progress(&mut piece, bytes);
            }
            self.gauge.done.store(bytes, Ordering::Relaxed);
            self.rate_limit.spend(bytes - moved, &cancel);
            moved = bytes;
        };
        if let Some(bytes) = self.rate_limit.window() {
            answer.connection.set_window(bytes);
        }
        self.gauge.connections.store(1, Ordering::Relaxed);
        let framing = answer.response.framing;
        let receive_options = ReceiveOptions { reserve: false, ..self.receive_options() };
        let mut on_progress = |progress: &Progress| note(progress.bytes);
        let incoming = answer.connection.incoming();
        let received = incoming.body(
            framing,
            partial.file(),
            partial.base(),
            &receive_options,
            &mut on_progress,
        );
        note(received.report.bytes());
        self.gauge.connections.store(0, Ordering::Relaxed);
        let bytes = received.report.bytes();
        self.moved(&received.report, bytes, 1);
        received
            .outcome
            .map_err(|error| DownloadError::body(answer.connection.address(), error))?;
        self.total = Some(bytes);
        Ok(())
    }

    /// Adds what one round has moved.
    fn moved(&mut self, report: &Report, bytes: u64, connections: u32) {
        self.report.add(report);
        self.connections = self.connections.max(connections);
        if let Some(PartialFile::Stream { done, .. }) = &mut self.partial {
            *done += bytes;
        }
    }

    /// Returns how bodies are received: each step ends before the journal lags by more than
    /// [`MIN_KEPT`].
    fn receive_options(&self) -> ReceiveOptions<'_> {
        let options = self.options;
        let max = MIN_KEPT - REPORT_EVERY;
        let burst = self.rate_limit.burst().unwrap_or(max);
        let step = usize::try_from(max.min(burst)).unwrap_or(usize::MAX);
        ReceiveOptions {
            policy: options.policy,
            step: Some(options.step.unwrap_or(step).min(step)),
            pipes: Some(self.pipes),
            progress_every: Some(REPORT_EVERY.min(burst)),
            limit: None,
            reserve: !matches!(self.partial, Some(PartialFile::Stream { .. })),
        }
    }

    /// Returns how many connections the missing bytes are worth.
    fn connections(&self, missing: &[Range<u64>], is_local: bool) -> usize {
        let left: u64 = missing.iter().map(|range| range.end - range.start).sum();
        let is_stream = matches!(self.target, Target::Stream { .. });
        if self.version.is_none() || !self.has_ranges || is_stream {
            return 1;
        }
        let max = match self.options.connections {
            Some(max) => u64::from(max).min(left / MIN_KEPT),
            // On one machine the kernel copies no faster from several sockets.
            None if is_local && self.mirrors.is_empty() => 1,
            None => {
                // Each server gets a connection.
                let sources = 1 + self.mirrors.len() as u64;
                let worth = (left / BYTES_PER_CONNECTION).min(MAX_DEFAULT_CONNECTIONS);
                worth.max(sources).min(left / MIN_KEPT)
            }
        };
        usize::try_from(max.max(1)).unwrap_or(1)
    }
}

/// The maximum lag of the journal in bytes.
const REPORT_EVERY: u64 = 128 << 10;

/// The number of bytes that justify another connection.
const BYTES_PER_CONNECTION: u64 = 16 << 20;

/// The maximum number of connections by default.
const MAX_DEFAULT_CONNECTIONS: u64 = 4;

/// The number of times the file may change on the server during a download.
const MAX_CHANGES: u32 = 4;
