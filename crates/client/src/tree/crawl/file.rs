//! Fetches one file of a listing, unless it exists already.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

use percent_encoding::percent_decode_str;
use rustix::fs::{OFlags, Timespec};
use rustix::io::Errno;
use underpass_engine::hint::Action;
use underpass_transport::incoming::{BodyFraming, ReceiveOptions};
use url::Url;

use super::queue::CrawlTask;
use super::worker::CrawlWorker;
use crate::download::interpret::{StrongValidator, modified};
use crate::download::version_attr;
use crate::download::{self, DownloadOptions, Downloader, Gauge, Target};
use crate::error::{ClientError, InvalidResponse};
use crate::http::{OpenResponse, Response};
use crate::s3::tag_fingerprint;
use crate::tree::dest::ExistingEntry;
use crate::tree::error::{Result, TreeError, local};
use crate::tree::listing::{EntryFacts, completed, was_just_changed};
use crate::tree::paths::as_path;
use crate::tree::task::TreeFetch;
use crate::upload::{is_html, is_page_name};

impl<'a> CrawlWorker<'_, '_, '_, 'a> {
    /// Fetches a file, unless it exists already.
    pub(super) fn file(&mut self, task: &CrawlTask) -> Result<()> {
        let (path, dest) = (&task.entry.path, &self.crawl.dest);
        let failed = |action| {
            let path = as_path(path);
            move |errno: Errno| TreeError::io(action, path, errno)
        };
        // If a file is in the place of its parent folder, creating it fails later.
        let mut asks = dest.stat(path).is_ok_and(|found| found.is_some());
        if asks {
            let facts = match task.entry.facts {
                facts @ EntryFacts { size: Some(_), modified: Some(_), .. } => facts,
                facts => match self.head(task)? {
                    Some(answer) if is_folder_of(&answer.url, &task.entry.url) => {
                        return self.queue_folder(task, answer);
                    }
                    Some(OpenResponse { connection, response, .. }) => {
                        self.keep(connection, &response);
                        completed(&response, facts)
                    }
                    None => EntryFacts { size: None, ..facts },
                },
            };
            // Apache sends the length of an empty file only in response to `GET`.
            if facts.size.is_some() {
                if self.is_here(task, facts).map_err(failed(Action::Writing))? {
                    return Ok(());
                }
                asks = false;
            }
        }
        let answer = self.request("GET", &[], &task.entry.url, task.is_trusted)?;
        if is_folder_of(&answer.url, &task.entry.url) {
            return self.queue_folder(task, answer);
        }
        let facts = completed(&answer.response, task.entry.facts);
        let reason = match answer.response.framing {
            BodyFraming::Length(sent) if task.entry.facts.size.is_some() => {
                other_size(task, &answer, sent)
            }
            _ => other_page(task, &answer),
        };
        if let Some(reason) = reason {
            self.leave_out(path, &reason);
            return Ok(());
        }
        if asks && self.is_here(task, facts).map_err(failed(Action::Writing))? {
            self.idle = answer.connection.finish(&answer.response);
            return Ok(());
        }
        let is_long =
            matches!(answer.response.framing, BodyFraming::Length(len) if len >= MIN_JOURNALED);
        if is_long && !task.has_rival {
            return self.download(task, facts, answer);
        }
        self.receive(task, facts, answer)
    }

    /// Fetches a large file so that it can be resumed. `facts` are those of the response.
    fn download(
        &mut self,
        task: &CrawlTask,
        facts: EntryFacts,
        answer: OpenResponse<'a>,
    ) -> Result<()> {
        let answered = modified(&answer.response);
        let (path, dest, tree) = (&task.entry.path, &self.crawl.dest, self.crawl.tree);
        let failed = |errno: Errno| TreeError::io(Action::Writing, as_path(path), errno);
        let (folder, name) = dest.parted(path).map_err(failed)?;
        let if_exists = match dest.if_exists {
            ExistingEntry::Stays => download::IfExists::Refuse,
            ExistingEntry::Ours | ExistingEntry::Replaced => download::IfExists::Replace,
        };
        let target = Target::Named { folder: &folder, name: OsStr::from_bytes(name), if_exists };
        let mode = if dest.replaces(path).map_err(failed)? {
            None
        } else {
            facts.mode.map(|mode| dest.permissions(mode))
        };
        let options = DownloadOptions {
            // The other connections fetch other files.
            connections: Some(1),
            retries: tree.options.retries,
            policy: tree.options.policy,
            step: tree.options.step,
            ..DownloadOptions::default()
        };
        let client =
            if task.is_trusted { tree.client.clone() } else { tree.client.without_credentials() };
        let downloader =
            Downloader::new(client, options).with_rate_limit(Arc::clone(&tree.rate_limit));
        let fetched = dest.name(path, || {
            let (url, gauge) = (&task.entry.url, Gauge::default());
            Ok::<_, Errno>(downloader.fetch_answered(url, answer, &target, &gauge, &|_| {}))
        });
        let done = match fetched.map_err(failed)? {
            Ok(done) => done,
            Err(failed) => {
                self.done.report.add(&failed.report);
                let (path, source) = (as_path(path).to_owned(), Box::new(failed.error));
                return Err(TreeError::Download { path, source });
            }
        };
        self.done.report.add(&done.report);
        self.done.resumed_at += done.resumed_at;
        self.done.files += 1;
        tree.gauge.files.fetch_add(1, Ordering::Relaxed);
        tree.gauge.before.fetch_add(done.resumed_at, Ordering::Relaxed);
        tree.gauge.done.fetch_add(done.size, Ordering::Relaxed);
        let other = done.modified.filter(|_| done.modified != answered);
        let other = other.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let facts = facts.of_version(other.and_then(|since| Timespec::try_from(since).ok()));
        dest.set_opened_attributes(path, OFlags::NONBLOCK, mode, facts.modified).map_err(failed)?;
        if let Ok(file) = dest.open_file(path) {
            record_version(task, &file, done.version.as_ref());
        }
        Ok(())
    }

    /// Returns whether a file exists already; a different one is an error if it is to be kept.
    fn is_here(&mut self, task: &CrawlTask, facts: EntryFacts) -> Result<bool, Errno> {
        let (path, dest) = (&task.entry.path, &self.crawl.dest);
        let is_here = match (facts.size, facts.modified) {
            (Some(size), Some(modified)) => {
                let has = dest.has(path, size, modified)?;
                let is_other = has && is_other_version(task, || dest.open_file(path));
                if is_other && dest.if_exists == ExistingEntry::Stays {
                    return Err(Errno::EXIST);
                }
                has && !is_other
            }
            _ if dest.if_exists == ExistingEntry::Stays => return Err(Errno::EXIST),
            _ => match dest.stat(path)? {
                Some(stat) => dest.refuse_to_replace(path, &stat).map(|()| false)?,
                None => false,
            },
        };
        if is_here {
            self.done.here += 1;
            self.crawl.tree.gauge.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_here)
    }

    /// Sends a `HEAD` request; `None` if the server refuses it, as it may still serve the file.
    fn head(&mut self, task: &CrawlTask) -> Result<Option<OpenResponse<'a>>> {
        match self.request("HEAD", &[], &task.entry.url, task.is_trusted) {
            Err(TreeError::Client(error @ ClientError::Status { .. })) if !error.is_temporary() => {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Queues a name without a slash as a folder after it redirected to one with a slash.
    fn queue_folder(&mut self, task: &CrawlTask, answer: OpenResponse<'a>) -> Result<()> {
        // The target of a redirect can be much longer than the listed URL.
        self.count_bytes(answer.url.as_str().len() as u64)?;
        let mut entry = task.entry.clone();
        entry.url = answer.url.clone();
        entry.is_folder = true;
        let is_trusted = answer.is_trusted;
        self.idle = answer.connection.finish(&answer.response);
        let task = CrawlTask { entry, is_trusted, around: task.around.clone(), ..*task };
        self.crawl.queue.add(Vec::new(), vec![task]);
        Ok(())
    }

    /// Compares the received file with the digests that the server sent.
    fn check_digests(
        &self,
        path: &[u8],
        file: &File,
        response: &Response,
        bytes: u64,
    ) -> Result<()> {
        let digests = download::offered(response);
        if digests.is_empty() {
            return Ok(());
        }
        let go_on = || !self.crawl.tree.client.is_cancelled();
        let checked = download::check_range(file, 0..bytes, &digests, go_on);
        checked.map_err(|error| {
            let (path, source) = (as_path(path).to_owned(), Box::new(error));
            TreeError::Download { path, source }
        })
    }

    /// Checks the received bytes of a file; returns the reason if they are not the listed file.
    fn check_received(
        &self,
        task: &CrawlTask,
        facts: EntryFacts,
        answer: &OpenResponse<'_>,
        file: &File,
        bytes: u64,
    ) -> Result<Option<String>> {
        let (path, framing) = (&task.entry.path, answer.response.framing);
        // A body that ends with the connection may be incomplete.
        if let (BodyFraming::UntilEnd, Some(expected)) = (framing, facts.size)
            && bytes != expected
        {
            let path = Some(as_path(path).to_owned());
            let error = InvalidResponse::BodyLength { bytes, expected, path };
            return Err(ClientError::from(error).into());
        }
        self.check_digests(path, file, &answer.response, bytes)?;
        let is_chunked = framing == BodyFraming::Chunked;
        Ok(is_chunked.then(|| other_size(task, answer, bytes)).flatten())
    }

    /// Writes the body of a response to its file.
    fn receive(
        &mut self,
        task: &CrawlTask,
        facts: EntryFacts,
        mut answer: OpenResponse<'a>,
    ) -> Result<()> {
        let (path, dest, tree) = (&task.entry.path, &self.crawl.dest, self.crawl.tree);
        let failed = |action| {
            let path = as_path(path);
            move |errno: Errno| TreeError::io(action, path, errno)
        };
        let atomic = dest.create_temporary(path, 0o666).map_err(failed(Action::Creating))?;
        let receive_options = ReceiveOptions {
            policy: tree.options.policy,
            step: tree.rate_limit.step(tree.options.step),
            progress_every: tree.rate_limit.burst(),
            pipes: Some(&self.crawl.pipes),
            reserve: true,
            ..ReceiveOptions::default()
        };
        let mut reported = 0;
        let mut on_progress = |progress: &underpass_engine::Progress| {
            tree.gauge.done.fetch_add(progress.bytes - reported, Ordering::Relaxed);
            tree.spend(progress.bytes - reported);
            reported = progress.bytes;
        };
        if let Some(bytes) = tree.rate_limit.window() {
            answer.connection.set_window(bytes);
        }
        let framing = answer.response.framing;
        let incoming = answer.connection.incoming();
        let received = incoming.body(framing, atomic.file(), 0, &receive_options, &mut on_progress);
        self.done.report.add(&received.report);
        if let Err(error) = received.outcome {
            // The received bytes are discarded.
            tree.gauge.done.fetch_sub(reported, Ordering::Relaxed);
            return Err(match local(&error) {
                Some(errno) => failed(Action::Writing)(errno),
                None => ClientError::receiving(answer.connection.address(), error).into(),
            });
        }
        let bytes = received.report.bytes();
        let checked = self.check_received(task, facts, &answer, atomic.file(), bytes);
        if !matches!(checked, Ok(None)) {
            tree.gauge.done.fetch_sub(reported, Ordering::Relaxed);
        }
        if let Some(reason) = checked? {
            self.leave_out(path, &reason);
            self.keep(answer.connection, &answer.response);
            return Ok(());
        }
        tree.gauge.done.fetch_add(bytes - reported, Ordering::Relaxed);
        tree.spend(bytes - reported);
        dest.set_file_attributes(path, atomic.file(), facts.mode, facts.modified)
            .map_err(failed("finishing".into()))?;
        record_version(task, atomic.file(), StrongValidator::of(&answer.response).as_ref());
        dest.commit(path, atomic).map_err(failed("naming".into()))?;
        self.done.files += 1;
        tree.gauge.files.fetch_add(1, Ordering::Relaxed);
        // A body without a length ended with the connection.
        if framing != BodyFraming::UntilEnd {
            self.keep(answer.connection, &answer.response);
        }
        Ok(())
    }
}

/// Returns whether a local file is known to be another version than the listed one: two versions
/// can have the same size and time, because stores list times to the second.
fn is_other_version(task: &CrawlTask, open: impl FnOnce() -> Result<File, Errno>) -> bool {
    let Some(listed) = task.entry.facts.tag else { return false };
    let recorded = open().ok().and_then(|file| version_attr::load(&file, &task.entry.url));
    let recorded = recorded.map(|recorded| recorded.version);
    matches!(recorded, Some(StrongValidator::Tag(tag)) if tag_fingerprint(&tag) != listed)
}

/// Records the version of a file that has its size and time, if the listing has versions.
fn record_version(task: &CrawlTask, file: &File, version: Option<&StrongValidator>) {
    if let (Some(_), Some(version)) = (task.entry.facts.tag, version) {
        version_attr::store(file, &task.entry.url, &task.entry.url, version);
    }
}

/// Returns why a response whose size differs from the listed one is not the file, such as a login
/// page; `None` if it may be another version.
fn other_size(task: &CrawlTask, answer: &OpenResponse<'_>, sent: u64) -> Option<String> {
    let facts = task.entry.facts;
    let listed = facts.size.filter(|listed| *listed != sent)?;
    let who = if is_elsewhere(&answer.url, &task.entry.url) {
        "a redirect leads to"
    } else {
        let is_same = completed(&answer.response, facts).modified == facts.modified;
        if !is_same || was_just_changed(&answer.response) {
            return None;
        }
        "the server sends"
    };
    Some(format!("{who} {sent} bytes, but the listing says {listed}"))
}

/// Returns why a page with another name, to which a redirect led, is not the file: it may be a
/// login page or an error page.
fn other_page(task: &CrawlTask, answer: &OpenResponse<'_>) -> Option<String> {
    let requested = &task.entry.url;
    let is_other = is_elsewhere(&answer.url, requested)
        && !is_same_path(last_name(&answer.url), last_name(requested));
    let is_page = is_html(answer.response.fields.text("content-type")) && !is_page_name(requested);
    (is_other && is_page).then(|| {
        let url = TreeFetch::redacted(&answer.url);
        format!("a redirect leads to the page {url}")
    })
}

fn last_name(url: &Url) -> &str {
    url.path().rsplit('/').next().unwrap_or_default()
}

/// Returns whether a redirect has led elsewhere, and not only from HTTP to HTTPS.
pub(super) fn is_elsewhere(answered: &Url, requested: &Url) -> bool {
    let ports = [requested, answered].map(Url::port_or_known_default);
    let is_same_server = answered.host() == requested.host()
        && (ports[0] == ports[1] || ports == [Some(80), Some(443)]);
    !is_same_server || !is_same_path(answered.path(), requested.path())
}

/// Returns whether two paths have the same names: servers encode more or fewer characters in
/// redirects than in listings.
fn is_same_path(one: &str, other: &str) -> bool {
    let bytes = |name| percent_decode_str(name).collect::<Vec<u8>>();
    one.split('/').map(bytes).eq(other.split('/').map(bytes))
}

/// Returns whether the URL of the response is that of a folder of the same name.
fn is_folder_of(answered: &Url, requested: &Url) -> bool {
    answered.origin() == requested.origin()
        && answered
            .path()
            .strip_suffix('/')
            .is_some_and(|path| is_same_path(path, requested.path()))
}

/// The minimum size of a file that gets a journal, in bytes.
const MIN_JOURNALED: u64 = 16 << 20;
