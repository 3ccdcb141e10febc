//! Resumes uploads according to the IETF draft "Resumable Uploads for HTTP"
//! (draft-ietf-httpbis-resumable-upload): the server names a URL for the upload in an interim
//! response, reports by HEAD how much it has, and receives the rest by PATCH.

pub(super) mod state;

use std::ops::Range;
use std::os::fd::AsFd;

use md5::{Digest, Md5};
use rustix::io::{Errno, pread};
use underpass_protocol::digest::{Algorithm, hex, parse_digests, write_wanted};
use underpass_transport::digest::compute;
use underpass_transport::incoming::BodyFraming;
use url::Url;

use super::error::Result;
use super::journal::version;
use super::options::{Condition, MODIFIED, UploadEvent, is_long};
use super::uploader::{AttemptEnd, Uploader};
use crate::error::ClientError;
use crate::http::Request;

impl<'a> Uploader<'_, 'a, '_> {
    /// Looks for the journal of an earlier process; an upload of another version is discarded.
    pub(super) fn find_earlier(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.kept.has_searched_journal, true) {
            return Ok(());
        }
        let Some(earlier) = self.kept.find_earlier(self.given)? else { return Ok(()) };
        self.kept.supports_resumption = Some(true);
        if !earlier.is_same {
            (self.on_event)(&UploadEvent::StartedOver { reason: "the file has changed since" });
            self.cancel();
        }
        Ok(())
    }

    /// Checks whether the server can resume uploads, if the file is large enough.
    pub(super) fn check_resumable(&mut self) -> Result<()> {
        let is_short = !is_long(self.upload.source);
        if self.kept.supports_resumption.is_some() || self.upload.journal.is_none() || is_short {
            return Ok(());
        }
        let request = Request { method: "OPTIONS", fields: &[] };
        let url = self.url.clone();
        let answer = match self.execute(&request, &url) {
            // Without an answer, a large upload would have to start over after each failure.
            Err(error) if error.is_broken_off() && !matches!(error, ClientError::TimedOut(_)) => {
                self.execute(&request, &url)
            }
            answer => answer,
        };
        let answer = match answer {
            // A proxy may reject this method: the upload itself shows whether the server can be
            // reached.
            Err(error) if error.is_broken_off() => return Ok(()),
            answer => answer?,
        };
        self.mark_answered();
        let says =
            answer.response.is_success() && answer.response.fields.get("upload-limit").is_some();
        self.kept.supports_resumption = Some(says);
        // The head is enough. lighttpd never sends the chunks that it announces.
        if answer.response.framing != BodyFraming::Chunked {
            self.idle = answer.connection.finish(&answer.response);
        }
        Ok(())
    }

    /// Sends the bytes that the server is missing.
    pub(super) fn send_rest(&mut self) -> Result<AttemptEnd> {
        let Some(resource) = self.kept.resource.clone() else { return Ok(AttemptEnd::Again) };
        let total = self.upload.source.promised().unwrap_or(0);
        let Some(at) = self.offset(&resource)?.filter(|at| *at <= total) else {
            // A completed upload no longer exists, either.
            if let Some(status) = self.is_there()? {
                return self.end_as_stored(status);
            }
            (self.on_event)(&UploadEvent::StartedOver {
                reason: "the server no longer knows the upload",
            });
            self.kept.forget();
            return Ok(AttemptEnd::Again);
        };
        if self.handed_over.is_some_and(|end| at > end + MAX_UNCOUNTED) {
            (self.on_event)(&UploadEvent::StartedOver {
                reason: "the server claims to have more than was sent",
            });
            self.cancel();
            return Ok(AttemptEnd::Again);
        }
        if let Some(end) = self.check_condition_again(at == total)? {
            return Ok(end);
        }
        self.record_resumed(at);
        let offset = at.to_string();
        let mut fields = vec![
            ("Content-Type", "application/partial-upload"),
            ("Upload-Offset", offset.as_str()),
            ("Upload-Complete", "?1"),
        ];
        // Fields about the whole file, which this request completes; the server has not kept those
        // of earlier requests.
        let is_of_whole = |(name, _): &&(&str, &str)| ["Repr-Digest", MODIFIED].contains(name);
        fields.extend(self.upload.fields.iter().filter(is_of_whole));
        let (response, connection) = self.deliver("PATCH", &resource, &fields, at)?;
        let is_part = response.fields.text("upload-complete").map(str::trim) == Some("?0");
        match response.status {
            // The server has more or less than it said, or is not done: it will report its offset.
            409 => Ok(AttemptEnd::Again),
            _ if response.is_success() && is_part => Ok(AttemptEnd::Again),
            404 | 410 => {
                (self.on_event)(&UploadEvent::StartedOver {
                    reason: "the server no longer knows the upload",
                });
                self.kept.forget();
                Ok(AttemptEnd::Again)
            }
            _ if response.is_success() => self.accept(&response, connection),
            _ => Err(connection.refusal(&response).into()),
        }
    }

    /// Checks whether the target still meets the condition, which the server has not kept from an
    /// earlier request. If the server has everything, the target may be this file already.
    fn check_condition_again(&mut self, has_all: bool) -> Result<Option<AttemptEnd>> {
        if has_all
            && self.upload.condition != Condition::None
            && let Some(status) = self.is_there()?
        {
            return Ok(Some(AttemptEnd::Stored(status)));
        }
        self.check_condition()
    }

    /// Returns how many bytes the server has; `None` if it no longer knows the upload.
    fn offset(&mut self, resource: &Url) -> Result<Option<u64>> {
        let request = Request { method: "HEAD", fields: &[] };
        let answer = self.execute(&request, resource)?;
        self.mark_answered();
        let response = answer.response;
        match response.status {
            404 | 410 => {
                self.idle = answer.connection.finish(&response);
                Ok(None)
            }
            _ if response.is_success() => {
                self.idle = answer.connection.finish(&response);
                Ok(response.fields.number("upload-offset"))
            }
            _ => Err(answer.connection.refusal(&response).into()),
        }
    }

    /// Checks whether the target is this file already: the server may have received all of it,
    /// while the response was lost. Only its digest proves that; in most stores the tag of an
    /// object is its MD5 digest.
    pub(super) fn is_there(&mut self) -> Result<Option<u16>> {
        let wanted = write_wanted(&[Algorithm::Sha256]);
        let request = Request { method: "HEAD", fields: &[("Want-Repr-Digest", &wanted)] };
        let answer = self.execute(&request, &self.url.clone())?;
        let response = answer.response;
        self.idle = answer.connection.finish(&response);
        let source = self.upload.source;
        let len = source.promised();
        let theirs = parse_digests(response.fields.all("repr-digest"));
        let mut theirs = theirs.into_iter().flatten();
        let theirs = theirs.find(|digest| digest.algorithm() == Algorithm::Sha256);
        let is_alike = response.status == 200 && response.fields.number("content-length") == len;
        let is_store = self.client.credentials.store().is_some();
        let tag =
            response.fields.text("etag").filter(|_| is_store).map(|tag| tag.trim_matches('"'));
        let (Some(len), true) = (len, is_alike) else { return Ok(None) };
        let at = source.offset().unwrap_or(0);
        let range = at..at + len;
        let wanted = || !self.client.is_cancelled();
        let is_same = match (theirs, tag) {
            (Some(theirs), _) => {
                let ours = compute(source.fd(), range, &[Algorithm::Sha256], |_| wanted());
                ours.is_ok_and(|ours| ours.digests == [theirs])
            }
            (None, Some(tag)) if is_md5(tag) => md5_of(source.fd(), range, wanted)
                .is_some_and(|ours| ours.eq_ignore_ascii_case(tag)),
            _ => return Ok(None),
        };
        let is_unchanged = version(source.fd()).ok() == self.kept.version;
        Ok((is_same && is_unchanged).then_some(response.status))
    }

    /// Cancels the upload on the server, and removes the journal. A redirect is not followed: it
    /// could lead to the deletion of anything.
    pub(super) fn cancel(&mut self) {
        if let Some(resource) = self.kept.resource.take() {
            let request = Request { method: "DELETE", fields: &[] };
            // Without a response, or after a redirect, the server discards it when it expires.
            self.idle = None;
            let is_trusted = self.trusts(&resource);
            let answer = self.client.execute_at(None, &request, &resource, is_trusted);
            self.idle = answer.ok().and_then(|it| it.connection.finish(&it.response));
        }
        self.kept.forget();
    }
}

/// Returns whether an entity tag, without quotes, can be an MD5 digest.
fn is_md5(tag: &str) -> bool {
    tag.len() == 32 && tag.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the MD5 digest of a part of a file in hexadecimal; `None` if it cannot be read, or once
/// `go_on` returns `false`.
fn md5_of(file: impl AsFd, range: Range<u64>, go_on: impl Fn() -> bool) -> Option<String> {
    let (mut digest, mut at, mut buffer) = (Md5::new(), range.start, vec![0; 64 << 10]);
    while at < range.end {
        let len = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        match pread(&file, &mut buffer[..len], at) {
            Ok(read) if read > 0 && go_on() => {
                digest.update(&buffer[..read]);
                at += read as u64;
            }
            Err(Errno::INTR) => {}
            _ => return None,
        }
    }
    Some(hex(&digest.finalize()))
}

/// The maximum number of bytes that a failed call may have sent without counting them.
const MAX_UNCOUNTED: u64 = 1 << 20;
