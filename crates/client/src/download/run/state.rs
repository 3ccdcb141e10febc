//! The state of one download.

use std::ops::Range;
use std::time::SystemTime;

use underpass_engine::{PipePool, Report};
use underpass_protocol::digest::Digest;
use underpass_transport::digest::DigestCheck;
use underpass_transport::tls::SessionFacts;
use url::Url;

use super::mirrors::MirrorServer;
use crate::backoff::Backoff;
use crate::download::error::{DownloadError, PartialInfo, Result};
use crate::download::interpret::StrongValidator;
use crate::download::options::{DownloadEvent, DownloadOptions, Gauge, Target};
use crate::download::partial_file::{PartialFile, TargetName};
use crate::download::rate_limit::RateLimit;
use crate::download::version_attr::RecordedVersion;
use crate::download::{Downloader, SourceServer};
use crate::http::{HttpClient, OpenResponse, without_credentials};
use crate::journal::without;

/// One download.
pub(in crate::download) struct Download<'j, 'a> {
    pub(super) client: &'j HttpClient<'a>,
    /// Other servers that have the file.
    pub(super) mirrors: &'j [MirrorServer<'a>],
    pub(super) options: &'j DownloadOptions,
    pub(super) pipes: &'j PipePool,
    pub(super) url: &'j Url,
    pub(super) target: &'j Target<'j>,
    pub(super) gauge: &'j Gauge,
    pub(super) on_event: &'j (dyn Fn(&DownloadEvent<'_>) + Sync),
    pub(super) rate_limit: &'j RateLimit,
    /// The response to a request for the whole file that the caller has already sent.
    pub(in crate::download) opened: Option<OpenResponse<'a>>,
    /// The file; `None` before anything is known.
    pub(super) partial: Option<PartialFile<'j>>,
    pub(super) version: Option<StrongValidator>,
    pub(super) total: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    /// Whether the server supports ranges.
    pub(super) has_ranges: bool,
    /// Whether the disk has a partial file or a journal of this download.
    pub(super) is_on_disk: bool,
    /// Whether the server has answered in this run.
    pub(super) has_answered: bool,
    /// Whether a response in this run had the version that is fetched.
    pub(super) is_adopted: bool,
    pub(super) request_mode: RequestMode,
    /// The existing version and its size, if the server should only send a different one.
    pub(super) unless: Option<(RecordedVersion, u64)>,
    /// The URL from which the version came, after redirects.
    pub(super) answered_url: Option<Url>,
    /// The complete file that could not be renamed.
    pub(super) unnamed: Option<PartialInfo>,
    /// Whether the workers have failed as many consecutive times as is allowed.
    pub(super) is_given_up: bool,
    pub(super) report: Report,
    pub(super) connections: u32,
    pub(super) resumed_at: u64,
    /// The digests that the server has sent.
    pub(super) offered: Vec<Digest>,
    pub(super) facts: Vec<DigestCheck>,
    pub(super) tls: Option<SessionFacts>,
}

impl<'j, 'a> Download<'j, 'a> {
    pub(in super::super) fn new(
        downloader: &'j Downloader<'a>,
        SourceServer { client, url }: SourceServer<'j, 'a>,
        mirrors: &'j [MirrorServer<'a>],
        target: &'j Target<'j>,
        gauge: &'j Gauge,
        on_event: &'j (dyn Fn(&DownloadEvent<'_>) + Sync),
    ) -> Self {
        let Downloader { options, pipes, rate_limit, .. } = downloader;
        Self {
            client,
            mirrors,
            options,
            pipes,
            url,
            target,
            gauge,
            on_event,
            rate_limit,
            opened: None,
            partial: None,
            version: None,
            total: None,
            modified: None,
            has_ranges: false,
            is_on_disk: false,
            has_answered: false,
            is_adopted: false,
            request_mode: RequestMode::Ranges,
            unless: None,
            answered_url: None,
            unnamed: None,
            is_given_up: false,
            report: Report::default(),
            connections: 0,
            resumed_at: 0,
            offered: Vec::new(),
            facts: Vec::new(),
            tls: None,
        }
    }

    /// Waits before another attempt, or gives up with this error.
    pub(super) fn wait(&self, backoff: &mut Backoff, error: DownloadError) -> Result<()> {
        let cancel = self.client.cancel.as_slice();
        backoff.wait(error, self.has_answered, cancel, |error, after| {
            (self.on_event)(&DownloadEvent::Retrying { error, after });
        })
    }

    /// Returns whether the download can be resumed from the received bytes.
    pub(super) fn is_resumable(&self) -> bool {
        match &self.partial {
            None | Some(PartialFile::Resumable(_)) => true,
            Some(PartialFile::Unnamed(_)) => false,
            Some(PartialFile::Stream { done, .. }) => {
                *done == 0 || (self.has_ranges && self.version.is_some())
            }
        }
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn here(&self) -> u64 {
        let present = self.partial.as_ref().map(PartialFile::present).unwrap_or_default();
        present.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the missing ranges, in ascending order.
    pub(super) fn missing(&self) -> Vec<Range<u64>> {
        let all = 0..self.total.unwrap_or(u64::MAX);
        let present = self.partial.as_ref().map(PartialFile::present).unwrap_or_default();
        present.iter().fold(vec![all], |missing, range| without(&missing, range))
    }

    /// Returns the URL for journals: without a password, which must not reach the disk.
    pub(super) fn noted_url(&self) -> Url {
        without_credentials(self.url)
    }

    pub(super) fn name(&self) -> Option<TargetName<'j>> {
        match self.target {
            Target::Named { folder, name, .. } => Some(TargetName { folder, name }),
            Target::Stream { .. } => None,
        }
    }
}

/// How to request a file that has not begun.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestMode {
    /// A first range, which others may follow.
    Ranges,
    /// The whole file at once, because ranges failed or have no version.
    Whole,
}

/// The minimum size of a partial file that is kept, and the maximum that a connection receives
/// twice, in bytes.
pub(super) const MIN_KEPT: u64 = 1 << 20;
