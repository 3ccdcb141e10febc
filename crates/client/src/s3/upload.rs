//! Uploads to a store: by one request, or in parts to which a later process can add.

use std::time::SystemTime;

use underpass_engine::{Error, Integrity, Report};
use underpass_protocol::response::validator::parse_date;
use underpass_transport::tls::SessionFacts;
use url::Url;

use super::multipart::{
    CHECKSUM, StoredPart, StoredParts, is_in_parts, parts_of, split, whole_tag,
};
use super::signing::is_about_signature;
use crate::backoff::Backoff;
use crate::error::{ClientError, InvalidResponse};
use crate::http::{Connection, HttpClient, Request, Response, xml};
use crate::upload::{
    self, Condition, ConditionError, OnEvent, ResumeState, Upload, UploadError, UploadEvent,
    UploadFailed, UploadOutcome, version,
};

/// Uploads to the URL of an object. Files from 16 MiB on are sent in parts over up to `connections`
/// connections; `idle` is a connection that may be used.
///
/// # Errors
///
/// [`UploadFailed`], which says whether a later call can resume it.
pub fn upload<'a>(
    client: &HttpClient<'a>,
    upload: &Upload<'_>,
    url: &Url,
    connections: u32,
    idle: Option<Connection<'a>>,
    on_event: &mut OnEvent<'_>,
) -> Result<(UploadOutcome, Option<Connection<'a>>), UploadFailed> {
    let Some(len) = upload.source.promised() else {
        return Err(UploadFailed::before_sending(UploadError::NoLength));
    };
    if !is_in_parts(len) {
        // An object appears completely or not at all, so there is nothing to resume.
        let upload = Upload { journal: None, ..*upload };
        return upload::upload(client, &upload, url, idle, on_event);
    }
    let kept = ResumeState::new(upload, url);
    let upload = PartwiseUpload {
        client,
        upload,
        on_event,
        url,
        connections,
        idle,
        kept,
        len,
        report: Report::default(),
        digest_bytes: 0,
        acknowledged: Vec::new(),
        resumed_at: 0,
        has_answered: false,
        is_in_doubt: false,
        since: None,
        tls: None,
    };
    upload.run()
}

/// The number of connections by default.
pub const CONNECTIONS: u32 = 4;

/// A multipart upload.
struct PartwiseUpload<'u, 'a, 't> {
    client: &'u HttpClient<'a>,
    upload: &'u Upload<'u>,
    on_event: &'u mut OnEvent<'t>,
    url: &'u Url,
    connections: u32,
    idle: Option<Connection<'a>>,
    /// The URL of the upload, whose query has the upload ID, and the journal.
    kept: ResumeState,
    len: u64,
    report: Report,
    /// Bytes that were read for the digests of parts.
    digest_bytes: u64,
    /// The numbers and tags of the parts that the store acknowledged to an earlier process.
    acknowledged: Vec<(usize, String)>,
    resumed_at: u64,
    has_answered: bool,
    /// Whether an earlier attempt of the last request may have succeeded.
    is_in_doubt: bool,
    /// The store's time when this run began.
    since: Option<SystemTime>,
    tls: Option<SessionFacts>,
}

/// The end of an upload that has not failed.
#[derive(PartialEq)]
enum Ended {
    /// The store has combined the parts.
    Stored,
    /// The target existed, and is left alone.
    WasThere,
}

/// The state of the target.
enum S3Target {
    Absent,
    Found(Response),
}

impl<'a> PartwiseUpload<'_, 'a, '_> {
    fn run(mut self) -> Result<(UploadOutcome, Option<Connection<'a>>), UploadFailed> {
        match self.steps() {
            Ok(ended) => {
                self.kept.forget();
                let uploaded = UploadOutcome {
                    status: 200,
                    was_there: ended == Ended::WasThere,
                    may_have_replaced: false,
                    url: self.url.clone(),
                    report: self.report,
                    digest_bytes: self.digest_bytes,
                    resumed_at: self.resumed_at,
                    is_resumable: true,
                    tls: self.tls,
                };
                Ok((uploaded, self.idle))
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Performs the whole upload.
    fn steps(&mut self) -> Result<Ended, UploadError> {
        let is_resumed = self.find_earlier()?;
        if self.is_left_alone()? {
            self.abort();
            return Ok(Ended::WasThere);
        }
        let mut sent = None;
        if is_resumed {
            sent = self.list_parts()?;
            if sent.is_none() {
                let reason = "the store no longer knows the upload";
                (self.on_event)(&UploadEvent::StartedOver { reason });
                self.kept.forget();
            }
        }
        let sent = match sent {
            Some(sent) => sent,
            None => {
                self.begin()?;
                Vec::new()
            }
        };
        let sent = self.send(sent)?;
        let level = self.upload.options.integrity;
        let is_checked = level != Integrity::Fast;
        if is_checked && version(self.upload.source.fd()).ok() != self.kept.version {
            let report = Box::new(Report::default());
            return Err(UploadError::Source(Box::new(Error::SourceChanged { level, report })));
        }
        self.complete(&sent)
    }

    /// Looks for the journal of an earlier process; parts of another version are discarded. Returns
    /// whether there is an upload to resume.
    fn find_earlier(&mut self) -> Result<bool, UploadError> {
        let Some(earlier) = self.kept.find_earlier(self.url)? else { return Ok(false) };
        if !earlier.is_same {
            (self.on_event)(&UploadEvent::StartedOver { reason: "the file has changed since" });
            self.abort();
            return Ok(false);
        }
        self.acknowledged = earlier.parts;
        Ok(true)
    }

    /// Fails if the target is not the required version; returns whether it exists and must not be
    /// replaced.
    fn is_left_alone(&mut self) -> Result<bool, UploadError> {
        match self.upload.condition {
            Condition::None => Ok(false),
            Condition::Absent => Ok(matches!(self.request_head()?, S3Target::Found(_))),
            Condition::Version(wanted) => {
                let S3Target::Found(response) = self.request_head()? else {
                    return Err(ConditionError::Precondition { found: None }.into());
                };
                upload::check_version(wanted, &response).map(|()| false)
            }
        }
    }

    /// Requests the head of the target.
    fn request_head(&mut self) -> Result<S3Target, UploadError> {
        match self.send_retried("HEAD", &self.url.clone(), &[], &[]) {
            Ok((response, _)) => Ok(S3Target::Found(response)),
            Err(error) if error.status() == Some(404) => Ok(S3Target::Absent),
            Err(error) => Err(error),
        }
    }

    /// Returns the parts that the store has and had acknowledged; `None` if it no longer knows the
    /// upload. Other parts were being sent when a process was killed: some stores keep them
    /// truncated, but report the full length.
    fn list_parts(&mut self) -> Result<Option<Vec<StoredPart>>, UploadError> {
        let Some(resource) = self.kept.resource.clone() else { return Ok(None) };
        let (mut sent, mut marker) = (Vec::new(), 0);
        let all = split(self.len);
        for _ in 0..=all.len() {
            let mut url = resource.clone();
            if marker > 0 {
                url.query_pairs_mut().append_pair("part-number-marker", &marker.to_string());
            }
            let body = match self.send_retried("GET", &url, &[], &[]) {
                Ok((_, body)) => body,
                Err(error) if error.status() == Some(404) => return Ok(None),
                Err(error) => return Err(error),
            };
            let (found, next) = parts_of(&body, &all);
            let bare = |tag: &str| tag.trim_matches('"').to_owned();
            sent.extend(found.into_iter().filter(|part| {
                let mut known = self.acknowledged.iter();
                known.any(|(number, tag)| *number == part.number && bare(tag) == bare(&part.tag))
            }));
            match next.filter(|next| *next > marker) {
                Some(next) => marker = next,
                None => break,
            }
        }
        self.resumed_at = sent.iter().map(|part| part.len).sum();
        (self.on_event)(&UploadEvent::Resumed { at: self.resumed_at });
        Ok(Some(sent))
    }

    /// Creates an upload, and writes the journal.
    fn begin(&mut self) -> Result<(), UploadError> {
        let mut url = self.url.clone();
        url.set_query(Some("uploads"));
        let is_checked = self.upload.fields.iter().any(|(name, _)| *name == CHECKSUM);
        let of_whole = self.upload.fields.iter().filter(|(name, _)| *name != CHECKSUM);
        let of_parts = is_checked.then_some(("x-amz-checksum-algorithm", "SHA256"));
        let fields: Vec<_> = of_whole.copied().chain(of_parts).collect();
        let (_, body) = self.send_retried("POST", &url, &fields, &[])?;
        let mut id = String::new();
        xml::read(&body, |name, text| {
            if name == b"uploadid" {
                text.clone_into(&mut id);
            }
        });
        if id.is_empty() {
            let error = InvalidResponse::Protocol("it names no upload ID");
            return Err(ClientError::from(error).into());
        }
        url.set_query(None);
        url.query_pairs_mut().append_pair("uploadId", &id);
        self.kept.write(&url);
        self.kept.resource = Some(url);
        Ok(())
    }

    /// Sends the missing parts; returns all parts.
    fn send(&mut self, sent: Vec<StoredPart>) -> Result<Vec<StoredPart>, UploadError> {
        let Some(resource) = self.kept.resource.clone() else { return Ok(sent) };
        let upload = self.upload;
        let journal = self.kept.journal.as_ref();
        let mut parts = StoredParts::new(
            self.client,
            journal,
            upload,
            &resource,
            sent,
            self.len,
            self.on_event,
        );
        let outcome = parts.send(self.connections, self.idle.take());
        let state = parts.finish();
        self.report.add(&state.report);
        self.digest_bytes += state.digest_bytes;
        self.tls = state.tls.or(self.tls.take());
        outcome.map(|()| state.sent)
    }

    /// Makes the store combine the parts, unless a target has appeared that must be left alone.
    fn complete(&mut self, sent: &[StoredPart]) -> Result<Ended, UploadError> {
        let Some(resource) = self.kept.resource.clone() else { return Ok(Ended::Stored) };
        let mut body = "<CompleteMultipartUpload>".to_owned();
        for part in sent {
            let tag = part.tag.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let number = part.number;
            body += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>");
            if let Some(checksum) = &part.checksum {
                body += &format!("<ChecksumSHA256>{checksum}</ChecksumSHA256>");
            }
            body += "</Part>";
        }
        body += "</CompleteMultipartUpload>";
        let mut fields = vec![("Content-Type", "application/xml")];
        fields.extend(self.upload.condition.field());
        let error = match self.send_retried("POST", &resource, &fields, body.as_bytes()) {
            Ok((_, body)) if is_completed(&body) || self.is_there(sent)? => {
                return Ok(Ended::Stored);
            }
            // A success without a result, such as from a proxy, or a truncated response.
            Ok(_) => {
                let problem = "it does not say that it has put the parts together";
                return Err(ClientError::from(InvalidResponse::Protocol(problem)).into());
            }
            Err(error) => error,
        };
        match (error.status(), self.upload.condition) {
            // If the response of a successful attempt was lost, it is our own object that fails the
            // condition.
            (Some(404 | 412), _) if self.is_in_doubt && self.is_there(sent)? => Ok(Ended::Stored),
            (Some(412), Condition::Absent) => {
                self.abort();
                Ok(Ended::WasThere)
            }
            _ => Err(error),
        }
    }

    /// Returns whether the target is the object that these parts become.
    fn is_there(&mut self, parts: &[StoredPart]) -> Result<bool, UploadError> {
        let S3Target::Found(response) = self.request_head()? else { return Ok(false) };
        let fields = &response.fields;
        let tag = fields.text("etag").unwrap_or_default().trim_matches('"');
        let is_same = whole_tag(parts).map_or_else(
            || {
                // Such a tag has only the number of parts. Some stores date the object by the
                // beginning of the upload, so that of an earlier run is not recognized.
                let changed = fields.get("last-modified").and_then(parse_date);
                tag.ends_with(&format!("-{}", parts.len()))
                    && self.since.zip(changed).is_some_and(|(since, changed)| changed >= since)
            },
            |own| own == tag,
        );
        Ok(is_same && fields.number("content-length") == Some(self.len))
    }

    /// Sends a request until it succeeds, as often as is allowed.
    fn send_retried(
        &mut self,
        method: &str,
        url: &Url,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(Response, Vec<u8>), UploadError> {
        let mut backoff = Backoff::new(self.upload.retries);
        self.is_in_doubt = false;
        loop {
            let error = match self.execute_once(method, url, fields, body) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            self.has_answered |= matches!(error, ClientError::Status { .. });
            let is_uncertain = match error {
                // It was refused, and not carried out.
                ClientError::Status { status, .. } => status >= 500 && status != 503,
                _ => true,
            };
            let cancel = self.client.cancel.as_slice();
            backoff.wait(UploadError::from(error), self.has_answered, cancel, |error, wait| {
                (self.on_event)(&UploadEvent::Retrying { error, wait, resumes: true });
            })?;
            self.is_in_doubt |= is_uncertain;
        }
    }

    fn execute_once(
        &mut self,
        method: &str,
        url: &Url,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(Response, Vec<u8>), ClientError> {
        let request = Request { method, fields };
        let (mut connection, response) = self.client.send(self.idle.take(), &request, url, body)?;
        self.has_answered = true;
        self.tls = connection.tls().cloned();
        if self.since.is_none() {
            self.since = response.fields.get("date").and_then(parse_date);
        }
        if !response.is_success() {
            return Err(connection.refusal(&response));
        }
        let body = connection.read_body(&response, MAX_BODY)?;
        self.idle = response.keeps_alive.then_some(connection);
        // A long response begins before its outcome is known.
        match refusal_in(&body) {
            Some(error) => Err(error),
            None => Ok((response, body)),
        }
    }

    /// Removes the upload from the store, and the journal. If the store fails, that is reported.
    fn abort(&mut self) {
        if let Some(resource) = self.kept.resource.take() {
            // Even after a cancellation. A redirect could lead to the deletion of anything.
            let client = HttpClient { cancel: None, timeout: ABORT_TIMEOUT, ..self.client.clone() };
            let request = Request { method: "DELETE", fields: &[] };
            let removed = client.execute_without_redirects(None, &request, &resource);
            let removed = removed.and_then(|answer| {
                let (connection, response) = (answer.connection, answer.response);
                // Another command may have removed or completed it.
                let is_gone = response.is_success() || response.status == 404;
                if is_gone { Ok(()) } else { Err(connection.refusal(&response)) }
            });
            if let Err(error) = removed {
                let named = resource.query_pairs().find(|(name, _)| name == "uploadId");
                let upload = named.map(|(_, id)| id).unwrap_or_default();
                (self.on_event)(&UploadEvent::PartsLeft { upload: &upload, error: &error });
            }
        }
        self.kept.forget();
    }

    fn fail(mut self, error: UploadError) -> UploadFailed {
        let is_useless = match &error {
            UploadError::Source(error) => {
                matches!(**error, Error::SourceChanged { .. } | Error::SourceEnded { .. })
            }
            UploadError::Condition(ConditionError::Precondition { .. })
            | UploadError::Condition(ConditionError::NoTag) => true,
            // With other keys, or later, it may be resumed.
            UploadError::Client(ClientError::Status { code, .. }) if is_about_signature(code) => {
                false
            }
            error if error.is_temporary() => false,
            error => error.status().is_some_and(|status| matches!(status, 400 | 404 | 412)),
        };
        // No later run could resume the upload, so its parts must not stay in the store.
        if is_useless || !self.kept.is_written() {
            self.abort();
        }
        let is_kept = self.kept.is_written();
        UploadFailed::new(error, self.report, self.resumed_at, is_kept, self.tls)
    }
}

/// Returns the refusal in the body of a response with a success status.
fn refusal_in(body: &[u8]) -> Option<ClientError> {
    let (mut code, mut detail, mut is_error) = (String::new(), String::new(), false);
    xml::read(body, |name, text| match name {
        b"code" => {
            text.clone_into(&mut code);
            is_error = true;
        }
        b"message" => text.clone_into(&mut detail),
        b"error" => is_error = true,
        _ => {}
    });
    let status = match code.as_str() {
        "InternalError" => 500,
        "SlowDown" | "ServiceUnavailable" => 503,
        "NoSuchUpload" => 404,
        "PreconditionFailed" => 412,
        _ => 400,
    };
    is_error.then_some(ClientError::Status {
        status,
        code,
        detail,
        has_identified: true,
        needs_other_scheme: false,
        retry_after: None,
    })
}

/// Returns whether the body says that the store has combined the parts.
fn is_completed(body: &[u8]) -> bool {
    let mut is_completed = false;
    xml::read(body, |name, _| is_completed |= name == b"completemultipartuploadresult");
    is_completed
}

/// The maximum size of a response in bytes: a thousand parts.
const MAX_BODY: usize = 4 << 20;

/// The time limit for the removal of an upload.
const ABORT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);
