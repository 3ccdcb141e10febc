//! One upload, with as many requests as it takes.

use std::time::Duration;

use underpass_engine::{Error, Report};
use underpass_protocol::upload::INTEROP_VERSION;
use underpass_transport::tls::SessionFacts;
use url::Url;

use super::error::{Result, UnconfirmedUpload, UploadError, UploadFailed, UploadOutcome};
use super::exchange::{UploadBody, UploadExchange, connect, is_html, is_page};
use super::options::{OnEvent, Upload, UploadEvent};
use super::resume::state::ResumeState;
use crate::backoff::{Backoff, MIN_PROGRESS};
use crate::error::{ClientError, InvalidResponse, UnusableUrl};
use crate::http::{Connection, HttpClient, OpenResponse, Request, Response};

/// One upload.
pub(super) struct Uploader<'u, 'a, 't> {
    pub(super) client: &'u HttpClient<'a>,
    pub(super) upload: &'u Upload<'u>,
    pub(super) on_event: &'u mut OnEvent<'t>,
    /// The given URL, where each attempt begins. Only its server receives credentials.
    pub(super) given: &'u Url,
    /// The target, after redirects.
    pub(super) url: Url,
    /// Whether a redirect has led to another origin. No URL after that receives credentials, even
    /// if it leads back to the given server.
    has_left_origin: bool,
    pub(super) idle: Option<Connection<'a>>,
    /// The facts that are needed to resume the upload.
    pub(super) kept: ResumeState,
    report: Report,
    tls: Option<SessionFacts>,
    resumed_at: u64,
    redirects: u32,
    /// The highest number of bytes that the server has had so far.
    furthest: u64,
    /// Whether that number grew in the last attempt.
    has_progressed: bool,
    /// The number of bytes that were handed over to the kernel for the server; `None` if an earlier
    /// process started the upload.
    pub(super) handed_over: Option<u64>,
    /// Whether the server has ever answered.
    has_answered: bool,
    /// Whether the server refuses `Expect`.
    refuses_expect: bool,
    /// Whether bytes were read from a source that can be read only once.
    is_spent: bool,
    pub(super) target: TargetCheck,
    /// Why the server failed after the last request with a body, if it gave a reason.
    server_failure: Option<String>,
}

/// The known state of the target, and of the bytes that this upload may have left there.
#[derive(Default)]
pub(super) struct TargetCheck {
    /// Whether it was checked since it may last have changed.
    pub(super) is_current: bool,
    /// Whether it met the condition.
    pub(super) is_as_required: bool,
    /// Whether bytes of a body were sent to the target itself.
    pub(super) has_sent: bool,
    /// The value of `has_sent` before the last request.
    pub(super) had_sent: bool,
    /// The value of `has_sent` when the last attempt failed at the end of a redirect.
    has_sent_elsewhere: bool,
}

impl TargetCheck {
    /// Records that a redirect has led to another target.
    pub(super) fn moved(&mut self) {
        (self.has_sent, self.is_current) = (self.has_sent_elsewhere, false);
    }

    /// Records that the next attempt begins at the given URL, and may be redirected to the same
    /// target again.
    fn went_back(&mut self) {
        self.has_sent_elsewhere |= self.has_sent;
        self.is_current = false;
    }

    /// Records that the body of a request is being sent.
    pub(super) fn body_begun(&mut self, method: &str, is_resumable: bool) {
        // Whatever the result, the target may have changed now.
        self.is_current = false;
        if method == "PUT" {
            // A server that does not set incomplete uploads aside may keep a part of the file.
            self.had_sent = self.has_sent;
            self.has_sent |= !is_resumable;
        }
    }
}

/// The end of an attempt.
pub(super) enum AttemptEnd {
    /// The server has the file.
    Stored(u16),
    /// Another attempt follows immediately, using what this one has learned.
    Again,
    /// Another attempt follows at another URL.
    Redirected,
    /// Nothing was sent, because the target exists.
    AlreadyThere(u16),
}

impl<'u, 'a, 't> Uploader<'u, 'a, 't> {
    pub(super) fn new(
        client: &'u HttpClient<'a>,
        upload: &'u Upload<'u>,
        url: &'u Url,
        idle: Option<Connection<'a>>,
        on_event: &'u mut OnEvent<'t>,
    ) -> Self {
        let kept = ResumeState::new(upload, url);
        // The idle connection proves that the server has answered, even if it is closed now.
        let has_answered = idle.as_ref().is_some_and(|idle| idle.can_reuse_for(client, url));
        Self {
            client,
            upload,
            on_event,
            given: url,
            url: url.clone(),
            has_left_origin: false,
            idle,
            kept,
            report: Report::default(),
            tls: None,
            resumed_at: 0,
            redirects: 0,
            furthest: 0,
            has_progressed: false,
            handed_over: None,
            has_answered,
            refuses_expect: false,
            is_spent: false,
            target: TargetCheck::default(),
            server_failure: None,
        }
    }

    /// Uploads the file, with as many attempts as are allowed.
    pub(super) fn run(mut self) -> Result<(UploadOutcome, Option<Connection<'a>>), UploadFailed> {
        let (mut backoff, mut repeats) = (Backoff::new(self.upload.retries), 0);
        loop {
            let outcome = self.attempt();
            let outcome = self.interpret_refusal(outcome);
            // Only bytes that the server keeps are progress; starting over repeatedly is not.
            if std::mem::take(&mut self.has_progressed) {
                backoff.reset();
                repeats = 0;
            }
            let error = match outcome {
                Ok(AttemptEnd::Stored(status)) => return Ok(self.finish(status, false)),
                Ok(AttemptEnd::AlreadyThere(status)) => return Ok(self.finish(status, true)),
                Ok(AttemptEnd::Redirected) => {
                    self.target.moved();
                    continue;
                }
                Ok(AttemptEnd::Again) if repeats < MAX_REPEATS => {
                    repeats += 1;
                    continue;
                }
                Ok(AttemptEnd::Again) => ClientError::from(InvalidResponse::Protocol(
                    "its answers contradict each other",
                ))
                .into(),
                Err(error) => error,
            };
            if let Err(error) = self.prepare_again(error, &mut backoff) {
                return Err(self.fail(error));
            }
        }
    }

    /// Makes one attempt: resumes an earlier upload, or starts over.
    fn attempt(&mut self) -> Result<AttemptEnd> {
        self.find_earlier()?;
        if self.kept.resource.is_some() {
            return self.send_rest();
        }
        if let Some(came) = self.check_condition()? {
            return Ok(came);
        }
        self.check_resumable()?;
        self.begin()
    }

    /// Sends the whole file by PUT.
    fn begin(&mut self) -> Result<AttemptEnd> {
        // Bytes that the server had before are not used.
        self.resumed_at = 0;
        let total = self.upload.source.promised();
        let length = total.map(|len| len.to_string()).unwrap_or_default();
        let mut fields = self.upload.fields.to_vec();
        fields.extend(self.upload.condition.field());
        if self.is_resumable() {
            fields.extend([("Upload-Complete", "?1"), ("Upload-Length", &length)]);
            // The draft requires it for a 104 (Draft Version Identification).
            fields.push(("Upload-Draft-Interop-Version", INTEROP_VERSION));
        }
        let url = self.url.clone();
        self.handed_over = None;
        let delivered = self.deliver("PUT", &url, &fields, 0);
        if delivered.is_err() {
            self.kept.record_failure(self.handed_over);
        }
        let (mut response, mut connection) = delivered?;
        if self.trusts(&url) && connection.learn(self.client, &mut response) {
            self.idle = connection.finish(&response);
            return Ok(AttemptEnd::Again);
        }
        // The target of a 303 only describes the result (RFC 9110 15.4).
        if response.status != 303
            && let Some(next) = response.redirect(&url)?
        {
            UnusableUrl::check_redirect(&url, &next).map_err(ClientError::from)?;
            let max = self.client.max_redirects;
            self.redirects += 1;
            if self.redirects > max {
                return Err(ClientError::from(UnusableUrl::TooManyRedirects { max }).into());
            }
            (self.on_event)(&UploadEvent::Redirected { to: &next });
            self.idle = connection.finish(&response);
            if next.origin() != self.given.origin() {
                // The first server will not receive the rest of the upload.
                self.cancel();
                self.has_left_origin = true;
            }
            self.url = next;
            return Ok(AttemptEnd::Redirected);
        }
        match response.status {
            // RFC 9110 10.1.1: the request may succeed without the expectation.
            417 if !self.refuses_expect => {
                self.refuses_expect = true;
                Ok(AttemptEnd::Again)
            }
            // A proxy invites the body and does not pass on 104. nginx even takes it for the
            // response, and the upload would never end.
            100 => {
                self.kept.supports_resumption = Some(false);
                Ok(AttemptEnd::Again)
            }
            _ if response.is_success() => self.accept(&response, connection),
            status => {
                if status >= 500 {
                    self.kept.record_failure(self.handed_over);
                }
                Err(connection.refusal(&response).into())
            }
        }
    }

    /// Ends an attempt after a success, unless the response is only a page.
    pub(super) fn accept(
        &mut self,
        response: &Response,
        connection: Connection<'a>,
    ) -> Result<AttemptEnd> {
        let has_page = response.status == 200 && is_html(response.fields.text("content-type"));
        self.idle = connection.finish(response);
        if has_page && !self.is_stored() {
            return Err(UnconfirmedUpload::NotStored.into());
        }
        Ok(AttemptEnd::Stored(response.status))
    }

    /// Requests the target after a response that is a page: one that a server shows for every
    /// request, such as a login page, also has status 200. Returns `false` if the target is
    /// missing, has another length, or is such a page itself.
    fn is_stored(&mut self) -> bool {
        let request = Request { method: "HEAD", fields: &[] };
        // A client with write access may lack read access.
        let Ok(answer) = self.execute(&request, &self.url.clone()) else {
            return true;
        };
        let response = answer.response;
        self.idle = answer.connection.finish(&response);
        let lens = (response.fields.number("content-length"), self.upload.source.promised());
        match (response.status, lens) {
            (404 | 410, _) => false,
            (200, (Some(len), Some(sent))) => len == sent,
            _ => !is_page(&response, &self.url),
        }
    }

    /// Returns whether a URL receives credentials: it belongs to the given server, and no redirect
    /// has left that server.
    pub(super) fn trusts(&self, url: &Url) -> bool {
        !self.has_left_origin && url.origin() == self.given.origin()
    }

    /// Returns whether the server keeps incomplete uploads. One of another origin was not asked.
    fn is_resumable(&self) -> bool {
        !self.has_left_origin && self.kept.is_resumable()
    }

    /// Sends a request without a body.
    pub(super) fn execute(
        &mut self,
        request: &Request<'_>,
        url: &Url,
    ) -> Result<OpenResponse<'a>, ClientError> {
        self.client.execute_with_trust(self.idle.take(), request, url, self.trusts(url))
    }

    /// Sends a request with the bytes of the source after the first `skip`.
    pub(super) fn deliver(
        &mut self,
        method: &str,
        url: &Url,
        fields: &[(&str, &str)],
        skip: u64,
    ) -> Result<(Response, Connection<'a>)> {
        if self.is_spent {
            return Err(UploadError::Spent);
        }
        self.server_failure = None;
        let body = UploadBody { source: self.upload.source, skip };
        let expects = self.expect_timeout(body.len());
        let length = body.len().map(|len| len.to_string());
        let mut fields = fields.to_vec();
        fields.push(match &length {
            Some(length) => ("Content-Length", length),
            None => ("Transfer-Encoding", "chunked"),
        });
        if expects.is_some() {
            fields.push(("Expect", "100-continue"));
        }
        let mut connection = self.connect(url)?;
        self.tls = connection.tls().cloned();
        let request = Request { method, fields: &fields };
        let head = connection.head(self.client, &request, url, self.trusts(url))?;
        let is_resumable = self.is_resumable();
        let needs_104 = is_resumable && method == "PUT" && !self.kept.is_104_known;
        let kept = &mut self.kept;
        let mut exchange = UploadExchange {
            client: self.client,
            connection: &mut connection,
            method,
            send_options: self.upload.options,
            body,
            expects,
            needs_104,
            interim: &mut |response| {
                if is_resumable {
                    kept.receive_interim(response, url);
                }
            },
            on_event: &mut *self.on_event,
            stall: self.upload.options.stall_detector(self.client),
            report: Report::default(),
            heard: None,
            is_begun: false,
        };
        let outcome = exchange.run(head);
        let (report, is_begun) = (exchange.report, exchange.is_begun);
        let end = skip + report.bytes();
        self.handed_over = match method {
            "PUT" => Some(end),
            _ => self.handed_over.map(|before| before.max(end)),
        };
        self.report.add(&report);
        self.is_spent |= is_begun && body.len().is_none();
        if is_begun {
            self.target.body_begun(method, is_resumable);
        }
        let (response, is_whole) = outcome?;
        self.has_answered = true;
        // 207 has its statuses in the body (RFC 4918 13), and 206 can only be a response to GET.
        if matches!(response.status, 206 | 207) {
            return Err(connection.refusal(&response).into());
        }
        // After half a body, the server would not read the next bytes as a request.
        let keeps_alive = response.keeps_alive && is_whole;
        Ok((Response { keeps_alive, ..response }, connection))
    }

    /// Returns how long to wait for `100 Continue`; `None` if the body is sent immediately.
    fn expect_timeout(&self, len: Option<u64>) -> Option<Duration> {
        let is_long = len.is_none_or(|len| len >= MIN_EXPECTED);
        // A server that knows the draft knows this, too; it may have a lot of space to reserve.
        let timeout = if self.is_resumable() { RESERVE_TIMEOUT } else { EXPECT_TIMEOUT };
        (is_long && !self.refuses_expect).then_some(timeout)
    }

    /// Returns a connection to the server of a URL, ready for a body.
    fn connect(&mut self, url: &Url) -> Result<Connection<'a>> {
        Ok(connect(self.client, self.idle.take(), url, self.upload.options.rate)?)
    }

    /// Waits before the next attempt, or returns the error if no retry is left.
    fn prepare_again(&mut self, error: UploadError, backoff: &mut Backoff) -> Result<()> {
        self.has_answered |= error.status().is_some();
        if error.status() == Some(500) {
            self.server_failure.get_or_insert_with(|| error.to_string());
        }
        if !self.has_answered || self.is_spent {
            return Err(error);
        }
        let resumes = self.kept.resource.is_some();
        backoff.wait(error, true, self.client.cancel.as_slice(), |error, wait| {
            (self.on_event)(&UploadEvent::Retrying { error, wait, resumes });
            self.idle = None;
        })?;
        if !resumes && self.url != *self.given {
            // The server may redirect to another target now.
            (self.url, self.has_left_origin, self.redirects) = (self.given.clone(), false, 0);
            self.target.went_back();
        }
        Ok(())
    }

    /// Ends an upload whose target is this file already, unless the server has reported a failure:
    /// the file may not survive a power cut.
    pub(super) fn end_as_stored(&mut self, status: u16) -> Result<AttemptEnd> {
        let Some(failure) = self.server_failure.take() else {
            return Ok(AttemptEnd::Stored(status));
        };
        self.kept.forget();
        Err(UnconfirmedUpload::Failure { failure }.into())
    }

    /// Records the number of bytes that the server has already.
    pub(super) fn record_resumed(&mut self, at: u64) {
        if self.report.bytes() == 0 {
            self.resumed_at = at;
        }
        self.has_progressed |= at >= self.furthest.saturating_add(MIN_PROGRESS);
        self.furthest = self.furthest.max(at);
        (self.on_event)(&UploadEvent::Resumed { at });
    }

    /// Records that the server has answered.
    pub(super) fn mark_answered(&mut self) {
        self.has_answered = true;
    }

    fn finish(mut self, status: u16, was_there: bool) -> (UploadOutcome, Option<Connection<'a>>) {
        let is_resumable = self.is_resumable();
        self.kept.forget();
        let is_store = self.client.credentials.store().is_some();
        let may_have_replaced = !was_there && !is_store && self.may_have_replaced(status);
        let Self { url, report, resumed_at, tls, idle, .. } = self;
        let uploaded = UploadOutcome {
            status,
            was_there,
            may_have_replaced,
            url,
            report,
            digest_bytes: 0,
            resumed_at,
            is_resumable,
            tls,
        };
        (uploaded, idle)
    }

    fn fail(mut self, error: UploadError) -> UploadFailed {
        let is_useless = match &error {
            // The server may have a mixture of two versions.
            UploadError::Source(error) => {
                matches!(**error, Error::SourceChanged { .. } | Error::SourceEnded { .. })
            }
            UploadError::Unconfirmed(UnconfirmedUpload::Early { .. }) => true,
            error => error.status().is_some_and(|status| FINAL.contains(&status)),
        };
        if is_useless {
            self.cancel();
        }
        let is_kept = self.kept.is_written();
        UploadFailed::new(error, self.report, self.resumed_at, is_kept, self.tls)
    }
}

/// The minimum size of a body in bytes that is announced by `Expect: 100-continue`: smaller ones
/// fit into the socket's buffer.
const MIN_EXPECTED: u64 = 64 << 10;

/// The time to wait for `100 Continue` from a server that may not know it.
const EXPECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time to wait for `100 Continue` from a server that knows it, unless a proxy swallows it.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of immediate repeats, after failed expectations and lost uploads.
const MAX_REPEATS: u32 = 10;

/// Statuses after which the bytes that the server has are useless: RFC 9110 15.5.1, 15.5.13,
/// 15.5.14 and 15.5.16.
const FINAL: [u16; 4] = [400, 412, 413, 415];
