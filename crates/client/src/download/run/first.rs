//! The first requests: they find out whether the file exists already, what an earlier process left,
//! and which version the server has.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::fstatvfs;
use underpass_protocol::digest::{Digest, parse_digests};
use url::Url;

use super::state::{Download, MIN_KEPT, RequestMode};
use crate::backoff::Backoff;
use crate::download::check::{check, offered, stored, wanted};
use crate::download::error::{DownloadError, Missing, Result, TargetError};
use crate::download::interpret::{
    FileRequest, Interpretation, StrongValidator, has_ranges, ignores_range, interpret_response,
    lacks_total, lacks_validator, may_be_about_range, modified, resource,
};
use crate::download::options::{DownloadEvent, IfExists, Target};
use crate::download::partial_file::{JournalSubject, PartialFile, require_digest};
use crate::download::version_attr::{self, RecordedVersion};
use crate::download::workers::execute;
use crate::http::{Connection, HttpClient, OpenResponse, Request, Response};
use crate::journal::FileId;

/// The result of the first requests of a round.
#[allow(clippy::large_enum_variant)] // the large one is taken apart at once
pub(super) enum FirstAnswer<'a> {
    /// A response with a body.
    Body {
        answer: OpenResponse<'a>,
        /// The range that follows; `None` if the length is unknown.
        range: Option<Range<u64>>,
    },
    /// Nothing is missing of the server's version.
    Complete,
    /// The file that has the final name is the server's version.
    Unmodified,
}

impl<'j, 'a> Download<'j, 'a> {
    /// Returns whether the file exists already.
    pub(super) fn is_here(&mut self) -> Result<bool> {
        let Target::Named { if_exists, .. } = *self.target else { return Ok(false) };
        let Some(name) = self.name() else { return Ok(false) };
        let Some(here) = name.existing()? else { return Ok(false) };
        let size = u64::try_from(here.st_size).unwrap_or_default();
        let finished = name.finished(self.noted_url().as_str(), size);
        match (if_exists, &finished, name.is_of_stranger(&here)) {
            (IfExists::Refuse, None, _) => return Err(TargetError::Exists.into()),
            (IfExists::Refuse | IfExists::SameIsFine, _, true) => {
                return Err(TargetError::Exists.into());
            }
            (IfExists::Replace, None, _) | (_, _, true) => return Ok(false),
            _ => {}
        }
        let mut recorded = None;
        if if_exists == IfExists::Update && finished.is_none() {
            let file = name.open()?;
            match self.check_here(&file, size, &[]) {
                Err(DownloadError::Digest(_)) => return Ok(false),
                checked => checked?,
            }
            recorded = version_attr::load(&file, self.url);
            // A 304 would bring no digest.
            if let Some(RecordedVersion { version: StrongValidator::Tag(_), .. }) = recorded
                && !self.options.verify
            {
                self.unless = recorded.map(|recorded| (recorded, size));
                return Ok(false);
            }
        }
        let answer = self.request_head()?;
        if !answer.response.is_success() {
            return match if_exists {
                // The request for the file will fail in the same way.
                IfExists::Replace | IfExists::Update => Ok(false),
                _ => Err(answer.connection.refusal(&answer.response).into()),
            };
        }
        let known = finished.as_ref().or(recorded.as_ref().map(|recorded| &recorded.version));
        let is_same = match known {
            _ if answer.response.status != 200 => Some(false),
            Some(version) => Some(
                StrongValidator::of(&answer.response).as_ref() == Some(version)
                    && recorded.as_ref().is_none_or(|recorded| recorded.is_of(&answer.url)),
            ),
            None => is_alike(&answer.response, size, |time| name.has_time(&here, time)),
        };
        if is_same == Some(true) {
            finished.inspect(|_| self.report_left(name.forget(false)));
            (self.total, self.resumed_at) = (Some(size), size);
            return self.keep_here(&name.open()?, size, &answer, if_exists);
        }
        match if_exists {
            IfExists::Replace | IfExists::Update => {
                // These are the digests of the existing file, not of the new one.
                self.facts.clear();
                Ok(false)
            }
            _ if is_same.is_none() => Err(TargetError::Incomparable.into()),
            _ => Err(TargetError::Exists.into()),
        }
    }

    /// Checks the existing file that is of the server's version, and records the version; returns
    /// whether the file stays. With --update, one with a wrong digest is fetched again.
    fn keep_here(
        &mut self,
        file: &File,
        size: u64,
        answer: &OpenResponse<'_>,
        if_exists: IfExists,
    ) -> Result<bool> {
        let is_update = if_exists == IfExists::Update;
        match self.check_same(file, size, &answer.response) {
            // The response with the file may have the digest that this one lacks.
            Err(DownloadError::Digest(_) | DownloadError::Missing(Missing::Digest))
                if is_update =>
            {
                self.facts.clear();
                (self.total, self.resumed_at) = (None, 0);
                return Ok(false);
            }
            checked => checked?,
        }
        if is_update && let Some(version) = StrongValidator::of(&answer.response) {
            version_attr::store(file, self.url, &answer.url, &version);
        }
        Ok(true)
    }

    /// Computes the digests of this file, unless that was done before, and with --verify compares
    /// it with those that the server has sent.
    fn check_same(&mut self, file: &File, size: u64, head: &Response) -> Result<()> {
        if !self.facts.is_empty() && !self.options.verify {
            return Ok(());
        }
        let offered = self.offered_by_head(head)?;
        self.check_here(file, size, &offered)
    }

    /// Returns the digests of the whole file in a response to HEAD, if one is required.
    fn offered_by_head(&self, response: &Response) -> Result<Vec<Digest>> {
        if !self.options.verify {
            return Ok(Vec::new());
        }
        // RFC 9530 B.2: Content-Digest is that of no content here.
        let mut offered = parse_digests(response.fields.all("repr-digest")).unwrap_or_default();
        if self.client.credentials.store().is_some() {
            offered.extend(self.request_store_digest(response)?);
        }
        if offered.is_empty() { Err(Missing::Digest.into()) } else { Ok(offered) }
    }

    /// Computes the digests of the existing file, if any are expected, offered by the server, or to
    /// be shown.
    fn check_here(&mut self, file: &File, size: u64, offered: &[Digest]) -> Result<()> {
        let options = self.options;
        if !options.expected.is_empty() || !offered.is_empty() || !options.shown.is_empty() {
            self.facts = check(file, size, options, offered, self.client.cancel)?;
        }
        Ok(())
    }

    /// Requests the head of the file, with a digest if one is required.
    fn request_head(&mut self) -> Result<OpenResponse<'a>> {
        let wanted = wanted(self.options);
        let fields: Vec<_> =
            wanted.iter().map(|wanted| ("Want-Repr-Digest", wanted.as_str())).collect();
        let retries = self.options.retries;
        let answer = request_head(self.client, self.url, &fields, retries, self.on_event)?;
        self.has_answered = true;
        self.tls = answer.connection.tls().cloned();
        Ok(answer)
    }

    /// Opens the partial file of an earlier process, if there is one.
    pub(super) fn find_earlier(&mut self) -> Result<()> {
        let Some(name) = self.name() else { return Ok(()) };
        self.partial =
            name.earlier(self.noted_url().as_str(), !self.options.expected.is_empty())?;
        let Some(journal) = self.partial.as_ref().and_then(PartialFile::journal) else {
            return Ok(());
        };
        self.is_on_disk = true;
        let subject = journal.subject();
        (self.version, self.total) = (Some(subject.version), subject.size);
        self.offered = subject.offered.iter().filter_map(|text| text.parse().ok()).collect();
        self.answered_url = subject.answered.and_then(|url| Url::parse(&url).ok());
        let modified = subject.modified.map(Duration::from_secs);
        self.modified = modified.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        // Without ranges there would be no journal.
        self.has_ranges = true;
        self.resumed_at = self.here();
        self.gauge.set(self.resumed_at, self.total);
        if self.resumed_at > 0 {
            (self.on_event)(&DownloadEvent::Resuming { have: self.resumed_at, total: self.total });
        }
        Ok(())
    }

    /// Requests the first missing range, or the whole file, and creates the file for it.
    pub(super) fn open(&mut self) -> Result<FirstAnswer<'a>> {
        loop {
            let client = self.client;
            let opened = self.opened.take();
            let connection = opened.is_none().then(|| client.connect(self.url)).transpose()?;
            let is_single = connection.as_ref().is_none_or(Connection::is_local);
            let Some(mut request) = self.next_request(is_single) else {
                return Ok(FirstAnswer::Complete);
            };
            request.wants_digest = wanted(self.options);
            // Not if a part of another version is resumed.
            let unless = self.unless.as_ref().filter(|_| request.version.is_none());
            request.unless = unless.map(|(recorded, _)| recorded.version.field().to_owned());
            let answer = match opened.filter(|_| request.range.is_none()) {
                Some(answer) => answer,
                None => execute(client, connection, &request, self.url, true)?,
            };
            self.has_answered = true;
            self.tls = answer.connection.tls().cloned();
            if self.goes_as_whole(&request, &answer.response)? {
                self.request_mode = RequestMode::Whole;
                continue;
            }
            let found = interpret_response(&request, &answer.response)?;
            if matches!(found, Interpretation::Part { .. } | Interpretation::Whole { .. }) {
                self.check_joins(&answer.url)?;
            }
            match found {
                Interpretation::Changed => return Err(self.changed(&request, &answer.response)),
                Interpretation::Refused if is_range_refused(&request, &answer.response) => {
                    self.request_mode = RequestMode::Whole;
                }
                Interpretation::Refused => {
                    return Err(answer.connection.refusal(&answer.response).into());
                }
                // A redirect may lead to another resource with the same tag now, and a broken cache
                // may answer 304 for another version.
                Interpretation::Unmodified
                    if self.unless.as_ref().is_some_and(|(recorded, _)| {
                        !recorded.is_of(&answer.url)
                            || recorded.version.is_denied_by(&answer.response)
                    }) =>
                {
                    self.unless = None;
                }
                Interpretation::Unmodified => {
                    let size = self.unless.as_ref().map(|(_, size)| *size);
                    (self.total, self.resumed_at) = (size, size.unwrap_or_default());
                    return Ok(FirstAnswer::Unmodified);
                }
                Interpretation::Unsatisfiable => self.request_mode = RequestMode::Whole, // it is empty
                Interpretation::Whole { total } => {
                    self.adopt(&answer, total)?;
                    return Ok(FirstAnswer::Body { answer, range: total.map(|total| 0..total) });
                }
                // Without a validator, other parts may be of another version.
                Interpretation::Part { range, total }
                    if range.end < total
                        && request.version.is_none()
                        && StrongValidator::of(&answer.response).is_none() =>
                {
                    self.request_mode = RequestMode::Whole;
                }
                Interpretation::Part { range, total } => {
                    self.adopt(&answer, Some(total))?;
                    return Ok(FirstAnswer::Body { answer, range: Some(range) });
                }
            }
        }
    }

    /// Returns the error for a response of another version than the existing part.
    fn changed(&self, request: &FileRequest, response: &Response) -> DownloadError {
        if self.here() > 0 && lacks_validator(response) {
            DownloadError::Missing(Missing::Validator)
        } else if ignores_range(request, response) {
            DownloadError::Missing(Missing::Ranges)
        } else {
            DownloadError::Changed
        }
    }

    /// Checks that the response of this URL fits the parts that have arrived.
    fn check_joins(&self, answered: &Url) -> Result<()> {
        let Some(version) = &self.version else { return Ok(()) };
        if version.joins(self.answered_url.as_ref().unwrap_or(self.url), answered) {
            return Ok(());
        }
        if self.options.expected.is_empty() {
            return Err(DownloadError::Changed);
        }
        require_digest(self.partial.as_ref().and_then(PartialFile::journal))
    }

    /// Returns the next request; `None` if nothing is missing of the server's version.
    pub(super) fn next_request(&self, is_local: bool) -> Option<FileRequest> {
        let is_single = match self.options.connections {
            Some(connections) => connections == 1,
            None => is_local && self.mirrors.is_empty(),
        } || matches!(self.target, Target::Stream { .. });
        let bounded = |range: &Range<u64>| {
            if is_single {
                range.end
            } else {
                range.end.min(range.start.saturating_add(FIRST_PIECE))
            }
        };
        match (&self.partial, &self.version) {
            (Some(partial), Some(version)) if self.here() > 0 || self.total.is_some() => {
                let missing = self.missing();
                // An earlier process received everything: the last byte tells whether the server
                // still has that version.
                let end = self.total.filter(|total| *total > 0 && !self.is_adopted);
                let last = end.map(|end| end - 1..end);
                let first = missing.first().or(last.as_ref())?;
                let end = self.total.map(|_| bounded(first));
                let from = match partial.present().first() {
                    Some(present) if self.total.is_none() && present.start == 0 => present.end,
                    _ => first.start,
                };
                let version = Some((version.clone(), self.total));
                Some(FileRequest { range: Some((from, end)), version, ..FileRequest::default() })
            }
            _ => {
                let is_whole = is_single || self.request_mode == RequestMode::Whole;
                let range = if is_whole { None } else { Some((0, Some(FIRST_PIECE))) };
                // An empty partial file was still created for this version.
                let version = self.version.clone().map(|version| (version, self.total));
                Some(FileRequest { range, version, ..FileRequest::default() })
            }
        }
    }

    /// Returns whether the file must be requested as a whole, because parts do not tell its length.
    /// Received bytes of unknown length are discarded.
    fn goes_as_whole(&mut self, request: &FileRequest, response: &Response) -> Result<bool> {
        let version = request.version.as_ref();
        match request.range.is_some() && lacks_total(response) {
            true if version.is_none() => Ok(true),
            // It could never be known when the received bytes are complete.
            true if version.is_some_and(|(_, known)| known.is_none()) => self.start_over(),
            _ => Ok(false),
        }
    }

    /// Adopts the file's properties from a response, and creates the file if there is none.
    pub(super) fn adopt(&mut self, answer: &OpenResponse<'_>, total: Option<u64>) -> Result<()> {
        let response = &answer.response;
        self.modified = modified(response).or(self.modified);
        self.is_adopted = true;
        self.answered_url = Some(answer.url.clone());
        self.total = total;
        let mut offered = offered(response);
        if self.options.verify && self.client.credentials.store().is_some() {
            offered.extend(self.request_store_digest(response)?);
        }
        // A part need not repeat the digests of the whole.
        if self.partial.is_none() || !offered.is_empty() {
            self.offered = offered;
        }
        if self.options.verify && self.offered.is_empty() {
            return Err(Missing::Digest.into());
        }
        if self.partial.is_none() {
            self.version = StrongValidator::of(response);
            self.has_ranges = has_ranges(response) && self.request_mode == RequestMode::Ranges;
            self.partial = Some(self.place(total)?);
            self.is_on_disk |= matches!(self.partial, Some(PartialFile::Resumable(_)));
            // Servers redirect the name of a folder to one with a slash, and send its page.
            let is_page =
                response.fields.text("content-type").is_some_and(|it| it.starts_with("text/"));
            if is_page && answer.url.path().strip_suffix('/') == Some(self.url.path()) {
                (self.on_event)(&DownloadEvent::Folder);
            }
        }
        self.gauge.set(self.here(), total);
        self.check_room()
    }

    /// Requests the digest of the responding version from a store, which sends none with parts.
    fn request_store_digest(&self, answered: &Response) -> Result<Option<Digest>> {
        let fields = [("x-amz-checksum-mode", "ENABLED")];
        let request = Request { method: "HEAD", fields: &fields };
        let head = self.client.execute(None, &request, self.url)?.response;
        let is_same =
            head.is_success() && StrongValidator::of(&head) == StrongValidator::of(answered);
        Ok(stored(&head).filter(|_| is_same))
    }

    /// Creates the file for the bytes.
    pub(super) fn place(&self, total: Option<u64>) -> Result<PartialFile<'j>> {
        match (self.target, self.name(), &self.version) {
            (Target::Stream { file, at }, ..) => Ok(PartialFile::Stream { file, at: *at, done: 0 }),
            (_, Some(name), Some(version))
                if self.has_ranges
                    && total.is_none_or(|total| total > MIN_KEPT)
                    && !name.only_adds() =>
            {
                let modified = self.modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
                name.partial(JournalSubject {
                    url: self.noted_url().to_string(),
                    answered: self.answered_url.as_ref().map(|url| resource(url).to_string()),
                    version: version.clone(),
                    size: total,
                    modified: modified.map(|since| since.as_secs()),
                    part: FileId::default(),
                    left: None,
                    offered: self.offered.iter().map(Digest::to_string).collect(),
                    needs_digest: false,
                })
            }
            (_, Some(name), _) => name.unnamed(),
            (Target::Named { .. }, None, _) => Err(TargetError::Exists.into()),
        }
    }

    /// Checks that there is enough space before the first byte is received.
    pub(super) fn check_room(&self) -> Result<()> {
        let (Some(total), Some(partial)) = (self.total, &self.partial) else { return Ok(()) };
        if matches!(partial, PartialFile::Stream { .. }) {
            return Ok(());
        }
        let Ok(room) = fstatvfs(partial.file()) else { return Ok(()) };
        // An earlier process may have reserved more space than it has filled.
        let reserved = partial.file().metadata().map_or(0, |found| found.blocks() * 512);
        let needed = total.saturating_sub(self.here().max(reserved));
        let free = room.f_bavail.saturating_mul(room.f_frsize);
        // Some file systems do not report their size.
        let is_full = room.f_blocks > 0 && needed > free;
        if is_full { Err(DownloadError::NoRoom { needed, free }) } else { Ok(()) }
    }
}

/// Requests the head of a file: by GET if the server refuses HEAD, without reading the body.
/// Temporary failures are retried.
pub(in crate::download) fn request_head<'a>(
    client: &HttpClient<'a>,
    url: &Url,
    fields: &[(&str, &str)],
    retries: u32,
    on_event: &(dyn Fn(&DownloadEvent<'_>) + Sync),
) -> Result<OpenResponse<'a>> {
    let (mut backoff, mut method, mut has_answered) = (Backoff::new(retries), "HEAD", false);
    loop {
        let request = Request { method, fields };
        let error = match client.execute(None, &request, url) {
            Ok(answer) => {
                has_answered = true;
                match answer.response.status {
                    403 | 405 | 501 if method == "HEAD" => {
                        method = "GET";
                        continue;
                    }
                    408 | 425 | 429 | 500 | 502..=504 => {
                        answer.connection.refusal(&answer.response)
                    }
                    _ => return Ok(answer),
                }
            }
            Err(error) => error,
        };
        let cancel = client.cancel.as_slice();
        backoff.wait(DownloadError::from(error), has_answered, cancel, |error, after| {
            on_event(&DownloadEvent::Retrying { error, after });
        })?;
    }
}

/// Returns whether a head is that of a file of this size, and of a time that passes `has_time`;
/// `None` if it does not tell.
fn is_alike(head: &Response, size: u64, has_time: impl Fn(SystemTime) -> bool) -> Option<bool> {
    match (head.fields.number("content-length").map(|len| len == size), modified(head)) {
        (Some(false), _) => Some(false),
        (_, Some(time)) if !has_time(time) => Some(false),
        (has_size, Some(_)) => has_size,
        (_, None) => None,
    }
}

/// The length of the first request in bytes, if more connections may follow.
const FIRST_PIECE: u64 = 16 << 20;

/// Returns whether the server, or a proxy, may have refused the range and not the file.
fn is_range_refused(request: &FileRequest, response: &Response) -> bool {
    let is_fresh = request.range.is_some() && request.version.is_none();
    is_fresh && may_be_about_range(response.status)
}
