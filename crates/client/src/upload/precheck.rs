//! Uploads that depend on the file at the target: `If-None-Match: *` and `If-Match` (RFC 9110
//! 13.1).
//!
//! Many servers ignore both for PUT, such as nginx's WebDAV module and rclone. The target is
//! therefore asked for by HEAD before anything is sent. The field is sent as well, because only the
//! server can rule out that the target changes between the two requests.

use url::Url;

use super::error::{Result, UploadError};
use super::options::Condition;
use super::uploader::{AttemptEnd, Uploader, is_html, is_page};
use crate::http::{Request, Response, without_credentials};

impl Uploader<'_, '_, '_> {
    /// Asks the server whether the target is as required; `Some` if the upload ends here.
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
            // Whether it is there can be asked again later, or with another password. A redirect
            // that leads nowhere does not tell.
            300..=399 | 401 | 407 | 408 | 425 | 429 | 500 | 502..=504 => {
                return Err(answer.connection.refusal(&response).into());
            }
            _ if !is_of_target(&answer.url, &self.url, &response) => {
                return Err(UploadError::Page { url: without_secrets(&answer.url) });
            }
            200..=299 => Some(true),
            404 | 410 => Some(false),
            // Such as 403 and 405: who may write need not be allowed to read.
            _ => None,
        };
        self.target.is_current = true;
        self.idle = answer.connection.finish(&response);
        match (condition, is_there) {
            (Condition::Absent, Some(true)) => {
                return self.exists(response.status, self.target.has_sent).map(Some);
            }
            (Condition::Version(_), Some(false)) => {
                return Err(UploadError::Precondition { found: None });
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

    /// Handles a target that exists although nothing may. A file that an earlier attempt of this
    /// upload has left counts only if it is known to be whole.
    fn exists(&mut self, status: u16, may_be_ours: bool) -> Result<AttemptEnd> {
        if !may_be_ours {
            self.cancel();
            return Ok(AttemptEnd::AlreadyThere(status));
        }
        match self.is_there()? {
            Some(status) => self.end_as_stored(status),
            None => Err(UploadError::PartlyThere),
        }
    }

    /// Handles a target of another version than is required: an earlier attempt of this upload may
    /// have replaced the one that was.
    fn superseded(&mut self, may_be_ours: bool, error: UploadError) -> Result<AttemptEnd> {
        if may_be_ours && let Some(status) = self.is_there()? {
            return self.end_as_stored(status);
        }
        Err(error)
    }

    /// Turns a refusal because of the condition into its meaning.
    pub(super) fn interpret_refusal(&mut self, outcome: Result<AttemptEnd>) -> Result<AttemptEnd> {
        match outcome {
            Err(error) if error.status() == Some(412) => match self.upload.condition {
                // The request that was refused has changed nothing.
                Condition::Absent => self.exists(412, self.target.had_sent),
                _ => self.superseded(self.target.had_sent, error),
            },
            outcome => outcome,
        }
    }

    /// Returns whether an answer with this status contradicts the condition: 201 says that
    /// something was created, 200 and 204 that something was replaced (RFC 9110 9.3.4). Some
    /// servers use one of them for both, so this is no proof.
    pub(super) fn may_have_replaced(&self, status: u16) -> bool {
        match self.upload.condition {
            Condition::None => false,
            Condition::Absent => matches!(status, 200 | 204),
            // golang's WebDAV says 201 for everything.
            Condition::Version(_) => status == 201 && !self.target.is_as_required,
        }
    }
}

/// Checks that a target is the version to be replaced.
pub(crate) fn check_version(wanted: &str, target: &Response) -> Result<()> {
    match target.fields.text("etag") {
        _ if wanted == "*" => Ok(()),
        Some(tag) if tag == wanted => Ok(()),
        Some(tag) => Err(UploadError::Precondition { found: Some(tag.to_owned()) }),
        // Many servers ignore If-Match, and this one would replace any version.
        None => Err(UploadError::NoTag),
    }
}

/// Returns whether an answer tells of the target. One of another name, to which a redirect has led,
/// does so only if it is a file: a page, such as one to log in, or a refusal is its own. A server
/// may have such a page under every name.
pub(crate) fn is_of_target(answered: &Url, target: &Url, response: &Response) -> bool {
    let name = |url: &Url| url.path().rsplit('/').next().map(str::to_owned);
    let media_type = response.fields.text("content-type");
    let is_file = response.is_success() && media_type.is_some() && !is_html(media_type);
    is_file || name(answered) == name(target) && !is_page(response, target)
}

/// Returns a URL without credentials, and without its query, which may say where to go back to.
fn without_secrets(url: &Url) -> String {
    let mut url = without_credentials(url);
    url.set_query(None);
    url.to_string()
}
