//! Downloads files, over several connections and across interruptions.
//!
//! The first response has the length and version of the file and tells whether the server supports
//! ranges. Then as many connections as are useful take segments from a scheduler, and a journal
//! next to the partial file lists what has arrived, so that a later process can resume after a
//! crash. This module neither prints nor reads the environment.

#![allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant

mod check;
mod error;
pub mod interpret;
mod name;
mod options;
mod partial_file;
mod rate_limit;
mod run;
mod scheduler;
pub(crate) mod version_attr;
mod workers;

use std::ffi::OsString;
use std::sync::{Arc, Mutex};

use underpass_engine::{PipePool, Report};
use underpass_protocol::response::disposition::file_name;
use url::Url;

use super::http::{HttpClient, OpenResponse, without_credentials};
use partial_file::TargetName;
use run::{Download, MirrorServer, request_head};

pub(crate) use check::{check_range, offered};
pub use error::{
    DownloadError, DownloadFailed, DownloadOutcome, Missing, PartialInfo, TargetError,
};
pub use name::{NameClash, NameError, TakenNames, name_of, name_or_suggested};
pub use options::{DownloadEvent, DownloadOptions, Gauge, IfExists, Target};
pub(crate) use partial_file::{PARTIAL_ENDS, partial_names};
pub use rate_limit::RateLimit;

/// Fetches files.
///
/// # Examples
///
/// Fetches a file that must have a digest, over four connections, into the current folder. If that
/// is interrupted, the same call resumes it.
///
/// ```no_run
/// use std::fs::File;
/// use underpass_client::download::{DownloadOptions, Downloader, Gauge, IfExists, Target};
/// use underpass_client::{HttpClient, Url};
///
/// let digest = "sha-256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
/// let options = DownloadOptions {
///     connections: Some(4),
///     expected: vec![digest.parse()?],
///     ..DownloadOptions::default()
/// };
/// let downloader = Downloader::new(HttpClient::default(), options);
/// let folder = File::open(".")?.into();
/// let target =
///     Target::Named { folder: &folder, name: "disk.img".as_ref(), if_exists: IfExists::Update };
/// let url = Url::parse("http://192.0.2.1:5000/disk.img")?;
/// let done = downloader.fetch(&url, &target, &Gauge::default(), &|event| eprintln!("{event:?}"))?;
/// println!("{} bytes, {} in user space", done.size, done.report.user_space_bytes());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Downloader<'a> {
    client: HttpClient<'a>,
    options: DownloadOptions,
    pipes: PipePool,
    rate_limit: Arc<RateLimit>,
    mirrors: Vec<MirrorServer<'a>>,
}

impl<'a> Downloader<'a> {
    /// Creates a downloader with these options.
    #[must_use]
    pub fn new(client: HttpClient<'a>, options: DownloadOptions) -> Self {
        let rate_limit = Arc::new(RateLimit::new(options.rate));
        Self { client, options, pipes: PipePool::default(), rate_limit, mirrors: Vec::new() }
    }

    /// Also fetches from these servers, each with its own client. They must have the same strong
    /// entity tag as the first one, unless a digest is expected. One that fails or has another file
    /// is dropped, with an event; if the first one fails at the start, the next one replaces it.
    #[must_use]
    pub fn with_mirrors(self, mirrors: Vec<(HttpClient<'a>, Url)>) -> Self {
        let mirror = |(client, url)| MirrorServer { client, url, sent: Mutex::default() };
        Self { mirrors: mirrors.into_iter().map(mirror).collect(), ..self }
    }

    /// Shares this limit with other downloads, instead of the one in its options.
    #[must_use]
    pub fn with_rate_limit(self, rate_limit: Arc<RateLimit>) -> Self {
        Self { rate_limit, ..self }
    }

    /// Requests a name for the file at `url` by `HEAD`; `None` if the server suggests no usable one.
    /// Temporary failures are retried a few times and reported to `on_event`.
    ///
    /// # Errors
    ///
    /// [`DownloadError::Client`] if the server does not answer, or answers with an error.
    pub fn suggested_name(
        &self,
        url: &Url,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
    ) -> Result<Option<OsString>, DownloadError> {
        let retries = self.options.retries.min(MAX_NAME_RETRIES);
        let answer = request_head(&self.client, url, &[], retries, on_event)?;
        if !answer.response.is_success() {
            return Err(answer.connection.refusal(&answer.response).into());
        }
        let disposition = answer.response.fields.get("content-disposition");
        Ok(disposition.and_then(file_name).and_then(name::usable))
    }

    /// Fetches the file at `url`. `gauge` shows the progress, and `on_event` receives events.
    ///
    /// # Errors
    ///
    /// [`DownloadFailed`], with a report of the bytes moved so far, and whether the download can be
    /// resumed.
    ///
    /// # On failure
    ///
    /// The target is unchanged. [`DownloadFailed::kept`] names the partial file, of one version,
    /// from which the same call resumes; without it nothing is left. A [`Target::Stream`] has the
    /// bytes that the report counts.
    pub fn fetch(
        &self,
        url: &Url,
        target: &Target<'_>,
        gauge: &Gauge,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
    ) -> Result<DownloadOutcome, DownloadFailed> {
        let outcome = self.fetch_from_any(url, target, gauge, on_event);
        if outcome.is_ok() && !self.mirrors.is_empty() {
            self.forget_parts(url, target, on_event);
        }
        outcome
    }

    /// Fetches the file from the first server that has it, with the help of those after it.
    fn fetch_from_any(
        &self,
        url: &Url,
        target: &Target<'_>,
        gauge: &Gauge,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
    ) -> Result<DownloadOutcome, DownloadFailed> {
        let mut moved = Report::default();
        let mut first = SourceServer { client: &self.client, url };
        let mut mirrors = self.mirrors.as_slice();
        loop {
            let download = Download::new(self, first, mirrors, target, gauge, on_event);
            let mut outcome = download.run();
            match (&mut outcome, mirrors.split_first()) {
                (Err(failed), Some((mirror, rest)))
                    if failed.error.is_of_source() && matches!(target, Target::Named { .. }) =>
                {
                    on_event(&DownloadEvent::SourceDropped {
                        url: first.url,
                        error: &failed.error,
                    });
                    moved.add(&failed.report);
                    (first, mirrors) = (mirror.as_server(), rest);
                    continue;
                }
                (Err(failed), Some(_)) if matches!(failed.error, DownloadError::Digest(_)) => {
                    on_event(&DownloadEvent::SourcesDisagree);
                    moved.add(&failed.report);
                    let wrong = &failed.error;
                    return self.fetch_singly(
                        (first, mirrors, wrong),
                        target,
                        gauge,
                        on_event,
                        moved,
                    );
                }
                (Err(failed), _) => failed.report.add(&moved),
                (Ok(done), _) => done.report.add(&moved),
            }
            return outcome;
        }
    }

    /// Removes what an earlier process may have left of the complete file under the URL of any of its
    /// servers.
    fn forget_parts(
        &self,
        url: &Url,
        target: &Target<'_>,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
    ) {
        let Target::Named { folder, name, .. } = *target else { return };
        for url in [url].into_iter().chain(self.mirrors.iter().map(|mirror| &mirror.url)) {
            let left = TargetName { folder, name };
            let removed = left.forget_superseded(without_credentials(url).as_str());
            if let Err((name, error)) = removed {
                on_event(&DownloadEvent::NotRemoved { name: &name, error: &error });
            }
        }
    }

    /// Fetches the file as [`fetch`](Self::fetch) does, from a response to a request for all of it,
    /// unless an earlier process has left a part.
    pub(crate) fn fetch_answered(
        &self,
        url: &Url,
        answer: OpenResponse<'a>,
        target: &Target<'_>,
        gauge: &Gauge,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
    ) -> Result<DownloadOutcome, DownloadFailed> {
        let server = SourceServer { client: &self.client, url };
        let mut download = Download::new(self, server, &[], target, gauge, on_event);
        download.opened = Some(answer);
        download.run()
    }

    /// Fetches the whole file from one server after another until it has the expected digest, which
    /// the combined pieces of several servers did not have.
    fn fetch_singly(
        &self,
        (first, mirrors, wrong): (SourceServer<'_, 'a>, &[MirrorServer<'a>], &DownloadError),
        target: &Target<'_>,
        gauge: &Gauge,
        on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
        mut moved: Report,
    ) -> Result<DownloadOutcome, DownloadFailed> {
        let (mut server, mut rest) = (first, mirrors.iter());
        loop {
            let download = Download::new(self, server, &[], target, gauge, on_event);
            let mut failed = match download.run() {
                Ok(mut done) => {
                    // Servers that were not asked for the whole file.
                    if let Ok(right) = target.open() {
                        for mirror in rest.filter(|mirror| mirror.sent_wrong_bytes(&right)) {
                            on_event(&DownloadEvent::SourceDropped {
                                url: &mirror.url,
                                error: wrong,
                            });
                        }
                    }
                    done.report.add(&moved);
                    return Ok(done);
                }
                Err(failed) => failed,
            };
            let error = &failed.error;
            let is_of_server = error.is_of_source() || matches!(error, DownloadError::Digest(_));
            let Some(next) = rest.next().filter(|_| is_of_server) else {
                failed.report.add(&moved);
                return Err(failed);
            };
            on_event(&DownloadEvent::SourceDropped { url: server.url, error });
            moved.add(&failed.report);
            server = next.as_server();
        }
    }
}

/// A server and the file on it.
#[derive(Clone, Copy)]
struct SourceServer<'s, 'a> {
    client: &'s HttpClient<'a>,
    url: &'s Url,
}

/// How often a request for a name is retried: some servers close the connection after each `HEAD`
/// request.
const MAX_NAME_RETRIES: u32 = 3;
