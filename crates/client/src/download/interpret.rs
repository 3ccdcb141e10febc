//! Interprets the responses to a download's requests. Pure, so that a table can test every case.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use underpass_protocol::response::validator::{is_strong, parse_date};
use underpass_transport::incoming::BodyFraming;
use url::Url;

use crate::error::{ClientError, InvalidResponse};
use crate::http::{Response, without_credentials};

/// A validator that is strong enough to combine parts of a file (RFC 9110 13.1.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StrongValidator {
    /// A strong entity tag.
    Tag(String),
    /// A modification date that a second change cannot share.
    Date(String),
    /// Such a date, and the entity tag that came with it, which is weak or not written as RFC 9110
    /// 8.8.3 defines, such as one without quotes. Equal tags of this kind prove nothing, but a
    /// different one is that of another version, which may have kept the date.
    DateAndTag(String, String),
}

impl StrongValidator {
    /// Returns the validator of a response; `None` if it has no strong one.
    #[must_use]
    pub fn of(response: &Response) -> Option<Self> {
        let fields = &response.fields;
        // A tag may have bytes above 127 (RFC 9110 8.8.3). If it is not UTF-8, the version counts as
        // unknown.
        let tag = fields.get("etag").map(str::from_utf8).transpose().ok()?;
        if let Some(tag) = tag.filter(|tag| is_strong(tag.as_bytes())) {
            return Some(Self::Tag(tag.to_owned()));
        }
        let text = fields.text("last-modified")?;
        let modified = parse_date(text.as_bytes())?;
        // RFC 9110 8.8.2.2: the file could change again within the same second.
        let date = parse_date(fields.get("date")?)?;
        let date = (modified + Duration::from_secs(1) <= date).then(|| text.to_owned())?;
        Some(match tag.filter(|tag| !tag.is_empty()) {
            Some(tag) => Self::DateAndTag(date, tag.to_owned()),
            None => Self::Date(date),
        })
    }

    /// Returns the name of the field that requests this version: with `If-Match`, stores send no
    /// other version instead, and they may not support `If-Range`.
    #[must_use]
    pub fn condition(&self, is_store: bool) -> &'static str {
        if is_store && matches!(self, Self::Tag(_)) { "If-Match" } else { "If-Range" }
    }

    /// Returns the value of that field.
    #[must_use]
    pub fn field(&self) -> &str {
        match self {
            Self::Tag(text) | Self::Date(text) | Self::DateAndTag(text, _) => text,
        }
    }

    /// Returns whether parts of this version from two URLs belong together.
    ///
    /// Equal tags and dates of two resources say nothing about their bytes (RFC 9110 8.8.3), and
    /// most servers derive a tag from time and size: only a tag that can be a digest is trusted.
    pub(super) fn joins(&self, one: &Url, other: &Url) -> bool {
        self.may_be_digest() || resource(one) == resource(other)
    }

    /// Returns whether it is a tag that can be a digest of the contents.
    pub(super) fn may_be_digest(&self) -> bool {
        matches!(self, Self::Tag(tag) if tag.len() >= MIN_DIGEST_TAG)
    }

    /// Returns whether a response may be of another version.
    ///
    /// A 206 has the entity tag that a 200 would have, but may leave out `Last-Modified` (RFC 9110
    /// 15.3.7): an origin that honoured `If-Range` need not repeat the date.
    pub(super) fn is_denied_by(&self, response: &Response) -> bool {
        let fields = &response.fields;
        if response.status == 304 {
            // The request had the tag, and the response should repeat it (RFC 9110 15.4.5).
            let is_other = |found| opaque(found) != opaque(self.field().as_bytes());
            return fields.get("etag").is_some_and(is_other);
        }
        let has_other_date = |date: &str| match fields.get("last-modified") {
            Some(found) => found != date.as_bytes(),
            None => response.status != 206,
        };
        match self {
            Self::Tag(tag) => fields.get("etag") != Some(tag.as_bytes()),
            Self::Date(date) => has_other_date(date),
            Self::DateAndTag(date, tag) => {
                let is_other = |found| opaque(found) != opaque(tag.as_bytes());
                has_other_date(date) || fields.get("etag").is_some_and(is_other)
            }
        }
    }
}

/// Returns the URL of a resource without credentials, fragment and query: the query may contain a
/// signature, which changes with each redirect.
pub(super) fn resource(url: &Url) -> Url {
    let mut url = without_credentials(url);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The minimum length of a tag that can be a digest: 32 digits of MD5 between quotes.
const MIN_DIGEST_TAG: usize = 34;

/// Returns an entity tag without the prefix of weak ones (RFC 9110 8.8.3.2).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// A request for a file or a part of it.
#[derive(Clone, Debug, Default)]
pub struct FileRequest {
    /// The requested bytes, if not all; without an end, those up to the end of the file.
    pub range: Option<(u64, Option<u64>)>,
    /// The version that the bytes must belong to, and its length if known.
    pub version: Option<(StrongValidator, Option<u64>)>,
    /// The value of `Want-Repr-Digest`.
    pub wants_digest: Option<String>,
    /// The value of `If-None-Match`: the entity tag of the local version.
    pub unless: Option<String>,
}

impl FileRequest {
    /// Returns the value of `Range` (RFC 9110 14.2).
    #[must_use]
    pub fn range_field(&self) -> Option<String> {
        self.range.map(|(from, end)| match end {
            Some(end) => format!("bytes={from}-{}", end.saturating_sub(1)),
            None => format!("bytes={from}-"),
        })
    }
}

/// What a response means for the download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interpretation {
    /// The file has changed, or the server no longer supports ranges.
    Changed,
    /// A range of the file follows.
    Part {
        /// The range.
        range: Range<u64>,
        /// The length of the file.
        total: u64,
    },
    /// The response is a failure or unusable.
    Refused,
    /// The local version is that of the server.
    Unmodified,
    /// The file is empty or shorter than the range.
    Unsatisfiable,
    /// The whole file follows.
    Whole {
        /// Its length, if known.
        total: Option<u64>,
    },
}

/// Interprets the response to a request.
///
/// # Errors
///
/// [`ClientError::InvalidResponse`] if it contradicts the request or itself.
pub fn interpret_response(
    request: &FileRequest,
    response: &Response,
) -> Result<Interpretation, ClientError> {
    let is_resumed = request.version.is_some();
    match response.status {
        206 => part(request, response),
        200 => whole(request, response),
        304 if request.unless.is_some() => Ok(Interpretation::Unmodified),
        // Our own server answers 409 for a part of a file that was replaced.
        409 | 412 | 416 if is_resumed => Ok(Interpretation::Changed),
        416 if request.range.is_some() => Ok(Interpretation::Unsatisfiable),
        _ => Ok(Interpretation::Refused),
    }
}

/// Interprets a 200: the whole file, which also replaces a part of a version that has changed (RFC
/// 9110 13.1.5).
fn whole(request: &FileRequest, response: &Response) -> Result<Interpretation, ClientError> {
    let total = length(response);
    if is_disguised_part(response) {
        let problem = "a part instead of the whole: Content-Range";
        let value = response.fields.text("content-range").unwrap_or_default().to_owned();
        return Err(InvalidResponse::ContentRange { problem, value }.into());
    }
    let is_changed = request.version.as_ref().is_some_and(|(version, known)| {
        request.range.is_some_and(|(from, _)| from > 0)
            || (known.is_some() && *known != total)
            || version.is_denied_by(response)
    });
    Ok(if is_changed { Interpretation::Changed } else { Interpretation::Whole { total } })
}

/// Interprets a 206 (RFC 9110 15.3.7): it may be shorter than requested, but must begin at the
/// requested byte and have the same version.
fn part(request: &FileRequest, response: &Response) -> Result<Interpretation, ClientError> {
    let Some((from, end)) = request.range else {
        return Err(InvalidResponse::Protocol("a part, although the whole was requested").into());
    };
    let text = response.fields.text("content-range").unwrap_or_default();
    let bad = |problem| {
        let value = text.to_owned();
        Err(InvalidResponse::ContentRange { problem, value }.into())
    };
    let Some((range, total)) = content_range(text) else {
        return bad("a part without a valid Content-Range");
    };
    if range.start != from || end.is_some_and(|end| range.end > end) {
        return bad("other bytes than requested: Content-Range");
    }
    if length(response).is_some_and(|len| len != range.end - range.start) {
        return bad("its Content-Length contradicts its Content-Range");
    }
    let Some(total) = total.or(request.version.as_ref().and_then(|(_, known)| *known)) else {
        let problem = "a part without the length of the whole";
        return Err(InvalidResponse::Protocol(problem).into());
    };
    if range.end > total {
        return bad("bytes after the end: Content-Range");
    }
    let is_changed = request.version.as_ref().is_some_and(|(version, known)| {
        known.is_some_and(|known| known != total) || version.is_denied_by(response)
    });
    Ok(if is_changed { Interpretation::Changed } else { Interpretation::Part { range, total } })
}

/// Returns the length of the body, if the head states it.
fn length(response: &Response) -> Option<u64> {
    match response.framing {
        BodyFraming::Length(len) => Some(len),
        BodyFraming::Chunked | BodyFraming::UntilEnd => None,
    }
}

/// Parses `bytes 0-99/1234`; the total is `None` for `*` (RFC 9110 14.4).
fn content_range(text: &str) -> Option<(Range<u64>, Option<u64>)> {
    let (unit, rest) = text.trim().split_once(' ')?;
    let (range, total) = rest.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let number = |text: &str| -> Option<u64> {
        text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
    };
    let (first, last) = (number(first)?, number(last)?);
    let total = if total == "*" { None } else { Some(number(total)?) };
    let is_sound = unit.eq_ignore_ascii_case("bytes")
        && first <= last
        && last < u64::MAX
        && total.is_none_or(|total| last < total);
    is_sound.then(|| (first..last + 1, total))
}

/// Returns whether the server supports ranges.
#[must_use]
pub fn has_ranges(response: &Response) -> bool {
    let accept_ranges = response.fields.text("accept-ranges").unwrap_or_default();
    response.status == 206
        || accept_ranges.split(',').any(|it| it.trim().eq_ignore_ascii_case("bytes"))
}

/// Returns whether a response is a part that does not tell the length of the file, or that does not
/// admit to being a part.
pub(super) fn lacks_total(response: &Response) -> bool {
    let range = response.fields.text("content-range").and_then(content_range);
    response.status == 206 && range.is_some_and(|(_, total)| total.is_none())
        || is_disguised_part(response)
}

/// Returns whether a 200 has a `Content-Range` of anything but the whole. The field has no meaning
/// there (RFC 9110 14.4), but some gateways send parts in this way, not all of them well-formed.
fn is_disguised_part(response: &Response) -> bool {
    let is_whole = |text| {
        content_range(text).is_some_and(|(range, total)| {
            range.start == 0
                && total == Some(range.end)
                && length(response).is_none_or(|len| len == range.end)
        })
    };
    response.status == 200
        && response.fields.get("content-range").is_some()
        && !response.fields.text("content-range").is_some_and(is_whole)
}

/// Returns whether a refusal may only concern the range of a request.
#[must_use]
pub fn may_be_about_range(status: u16) -> bool {
    matches!(status, 400 | 403 | 405 | 416 | 501)
}

/// Returns whether a server sends the whole version although a part of it was requested: it does
/// not support ranges, or not always.
pub(super) fn ignores_range(request: &FileRequest, response: &Response) -> bool {
    let is_version = |(version, known): &(StrongValidator, Option<u64>)| {
        known.is_none_or(|known| length(response) == Some(known)) && !version.is_denied_by(response)
    };
    response.status == 200
        && request.range.is_some()
        && request.version.as_ref().is_none_or(is_version)
}

/// Returns whether a 200 has no validator, as an error page that a proxy sends as a success. It does
/// not prove that the file has changed.
#[must_use]
pub fn lacks_validator(response: &Response) -> bool {
    let fields = &response.fields;
    response.status == 200 && fields.get("etag").is_none() && fields.get("last-modified").is_none()
}

/// Returns the file's modification time, if the response states it.
#[must_use]
pub fn modified(response: &Response) -> Option<SystemTime> {
    parse_date(response.fields.get("last-modified")?)
}
