//! The fields of resumable uploads (draft-ietf-httpbis-resumable-upload), and the problem reports
//! about them.

use std::fmt;

use sfv::{BareItem, Item, Parser};

use crate::request::Request;

/// The upload fields of a request. A field with an invalid value counts as absent, as the draft
/// requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadFields {
    /// `Upload-Complete`: whether the upload ends with this request's body.
    pub complete: Option<bool>,
    /// `Upload-Offset`: the byte of the upload at which the body begins.
    pub offset: Option<u64>,
    /// `Upload-Length`: how many bytes there are in all.
    pub length: Option<u64>,
}

impl UploadFields {
    /// Reads the upload fields of a request.
    #[must_use]
    pub fn of(request: &Request) -> Self {
        let number = |name| match item(request, name)? {
            BareItem::Integer(number) => u64::try_from(i64::from(number)).ok(),
            _ => None,
        };
        let complete = match item(request, "upload-complete") {
            Some(BareItem::Boolean(complete)) => Some(complete),
            _ => None,
        };
        Self { complete, offset: number("upload-offset"), length: number("upload-length") }
    }
}

/// Returns the value of a field that is one item (RFC 9651 3.3); its parameters mean nothing
/// here.
fn item(request: &Request, name: &str) -> Option<BareItem> {
    let value = request.single(name)?;
    Parser::new(value).parse::<Item>().ok().map(|item| item.bare_item)
}

/// The value of `Upload-Limit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadLimits {
    /// Bytes that an upload may have.
    pub max_size: Option<u64>,
    /// Seconds for which an incomplete upload is kept.
    pub max_age: Option<u64>,
}

impl fmt::Display for UploadLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_size {
            // RFC 9651 3.3.1: the largest integer; what is more is not a limit.
            Some(size) => write!(f, "max-size={}", size.min(999_999_999_999_999))?,
            None => f.write_str("min-size=0")?,
        }
        self.max_age.iter().try_for_each(|age| write!(f, ", max-age={age}"))
    }
}

/// A problem report, as RFC 9457 defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The body does not begin where the upload ends.
    Offset {
        /// The offset of its end.
        expected: u64,
        /// The offset at which the body begins.
        provided: u64,
    },
    /// Two lengths of one upload differ, or more bytes were sent than they allow.
    Length,
}

impl Problem {
    /// The media type of [`Display`](fmt::Display).
    pub const MEDIA_TYPE: &str = "application/problem+json";

    /// Returns the status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Offset { .. } => 409,
            Self::Length => 400,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TYPES: &str = "https://iana.org/assignments/http-problem-types";
        match self {
            Self::Offset { expected, provided } => writeln!(
                f,
                "{{\"type\":\"{TYPES}#mismatching-upload-offset\",\
                 \"title\":\"the upload continues at another offset\",\
                 \"expected-offset\":{expected},\"provided-offset\":{provided}}}"
            ),
            Self::Length => writeln!(
                f,
                "{{\"type\":\"{TYPES}#inconsistent-upload-length\",\
                 \"title\":\"the lengths of this upload differ\"}}"
            ),
        }
    }
}
