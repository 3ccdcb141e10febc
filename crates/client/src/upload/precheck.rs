//! Uploads that depend on the file at the target: `If-None-Match: *` and `If-Match` (RFC 9110
//! 13.1).
//!
//! Many servers ignore both for PUT, such as nginx's WebDAV module and rclone. A HEAD request for
//! the target is therefore sent first. The field is sent as well, because only the server can rule
//! out that the target changes between the two requests.

use url::Url;

use super::error::{ConditionError, Result, UnconfirmedUpload, UploadError};
use super::exchange::{is_html, is_page};
use super::options::Condition;
use super::uploader::{AttemptEnd, Uploader};
use crate::http::{Request, Response, without_credentials};

impl Uploader<'_, '_, '_> {
    /// Checks whether the target meets the condition; `Some` if the upload ends here.
    pub(super) fn check_condition(&mut self) -> Result<Option<AttemptEnd>> {
        let condition = self.upload.condition;
        if condition == Condition::None || self.target.is_current {
            return Ok(None);
        }
        let request = Request { method: "HEAD", fields: &[] };
        let answer = self.execute(&request, &self.url.clone())?;
        self.mark_answered();
        self.target.is_as_required = false;
        let response = answer.response;
        let is_there = match response.status {
            // A later request, or one with another password, may tell whether it exists. A redirect
            // without a target does not.
            300..=399 | 401 | 407 | 408 | 425 | 429 | 500 | 502..=504 => {
                return Err(answer.connection.refusal(&response).into());
            }
            _ if !is_of_target(&answer.url, &self.url, &response) => {
                return Err(UnconfirmedUpload::Page { url: without_secrets(&answer.url) }.into());
            }
            200..=299 => Some(true),
            404 | 410 => Some(false),
            // Such as 403 and 405: a client with write access may lack read access.
            _ => None,
        };
        self.target.is_current = true;
        self.idle = answer.connection.finish(&response);
        match (condition, is_there) {
            (Condition::Absent, Some(true)) => {
                return self.exists(response.status, self.target.has_sent).map(Some);
            }
            (Condition::Version(_), Some(false)) => {
                return Err(ConditionError::Precondition { found: None }.into());
            }
            (Condition::Version(wanted), Some(true)) => {
                if let Err(error) = check_version(wanted, &response) {
                    return self.superseded(self.target.has_sent, error).map(Some);
                }
                self.target.is_as_required = true;
            }
            (_, None) | (Condition::Absent, Some(false)) | (Condition::None, _) => {}
        }
        Ok(None)
    }

    /// Handles a target that exists although it must not. If it may be from an earlier attempt of
    /// this upload, that is a success only if it is known to be complete.
    fn exists(&mut self, status: u16, may_be_ours: bool) -> Result<AttemptEnd> {
        if !may_be_ours {
            self.cancel();
            return Ok(AttemptEnd::AlreadyThere(status));
        }
        match self.is_there()? {
            Some(status) => self.end_as_stored(status),
            None => Err(ConditionError::PartlyThere.into()),
        }
    }

    /// Handles a target of another version than required: an earlier attempt of this upload may
    /// have replaced that version.
    fn superseded(&mut self, may_be_ours: bool, error: UploadError) -> Result<AttemptEnd> {
        if may_be_ours && let Some(status) = self.is_there()? {
            return self.end_as_stored(status);
        }
        Err(error)
    }

    /// Interprets a refusal because of the condition.
    pub(super) fn interpret_refusal(&mut self, outcome: Result<AttemptEnd>) -> Result<AttemptEnd> {
        match outcome {
            Err(error) if error.status() == Some(412) => match self.upload.condition {
                // The refused request has changed nothing, so only earlier ones count.
                Condition::Absent => self.exists(412, self.target.had_sent),
                _ => self.superseded(self.target.had_sent, error),
            },
            outcome => outcome,
        }
    }

    /// Returns whether a response with this status contradicts the condition: 201 means that the
    /// target was created, 200 and 204 that it was replaced (RFC 9110 9.3.4). Some servers use one
    /// of them for both, so this is no proof.
    pub(super) fn may_have_replaced(&self, status: u16) -> bool {
        match self.upload.condition {
            Condition::None => false,
            Condition::Absent => matches!(status, 200 | 204),
            // golang's WebDAV answers 201 to every PUT.
            Condition::Version(_) => status == 201 && !self.target.is_as_required,
        }
    }
}

/// Checks that a target is the version to be replaced.
pub(crate) fn check_version(wanted: &str, target: &Response) -> Result<()> {
    match target.fields.text("etag") {
        _ if wanted == "*" => Ok(()),
        Some(tag) if tag == wanted => Ok(()),
        Some(tag) => Err(ConditionError::Precondition { found: Some(tag.to_owned()) }.into()),
        // Many servers ignore If-Match, and would replace any version.
        None => Err(ConditionError::NoTag.into()),
    }
}

/// Returns whether a response is about the target. After a redirect to another name, only a file
/// is: a refusal or a page, such as a login page, is about itself. A server may show such a page
/// under every name.
pub(crate) fn is_of_target(answered: &Url, target: &Url, response: &Response) -> bool {
    let name = |url: &Url| url.path().rsplit('/').next().map(str::to_owned);
    let media_type = response.fields.text("content-type");
    let is_file = response.is_success() && media_type.is_some() && !is_html(media_type);
    is_file || name(answered) == name(target) && !is_page(response, target)
}

/// Returns a URL without credentials and without its query, which may name a page to return to.
fn without_secrets(url: &Url) -> String {
    let mut url = without_credentials(url);
    url.set_query(None);
    url.to_string()
}
