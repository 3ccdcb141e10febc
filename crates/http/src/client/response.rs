//! Heads of responses.

use std::time::{Duration, SystemTime};

use url::Url;

use super::error::ClientError;
use crate::incoming::Extent;
use crate::validator::parse_date;

/// The fields of a head, in their order.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    /// The value of the first field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// The values of all fields of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let is_meant = move |field: &&(String, Vec<u8>)| field.0.eq_ignore_ascii_case(name);
        self.0.iter().filter(is_meant).map(|(_, value)| value.as_slice())
    }

    /// The same as text, unless it is none.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.get(name)?).ok()
    }

    /// The number that a field says, unless it says none.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status; 1xx is an interim answer, after which another follows.
    pub status: u16,
    /// The fields.
    pub fields: Fields,
    /// The body that follows.
    pub extent: Extent,
    /// Whether the connection can be used again behind the body.
    pub keeps_alive: bool,
}

impl Response {
    /// Reads a head that answers a request of this method.
    pub(super) fn parse(head: &[u8], method: &str) -> Result<Self, ClientError> {
        let mut storage = [httparse::EMPTY_HEADER; MOST_FIELDS];
        let mut parsed = httparse::Response::new(&mut storage);
        let bad = |what: &str| ClientError::BadResponse(what.to_owned());
        parsed.parse(head).map_err(|error| bad(&error.to_string()))?;
        let status = parsed.code.ok_or_else(|| bad("it has no status"))?;
        let is_11 = parsed.version == Some(1);
        let fields: Vec<_> = parsed
            .headers
            .iter()
            .map(|field| (field.name.to_owned(), field.value.to_vec()))
            .collect();
        let fields = Fields(fields);
        let extent = extent(method, status, &fields)?;
        let says = |option: &[u8]| {
            let mut options =
                fields.all("connection").flat_map(|value| value.split(|b| *b == b','));
            options.any(|word| word.trim_ascii().eq_ignore_ascii_case(option))
        };
        let keeps_alive =
            !says(b"close") && (is_11 || says(b"keep-alive")) && extent != Extent::UntilEnd;
        Ok(Self { status, fields, extent, keeps_alive })
    }

    /// Where a redirect leads, if this is one (RFC 9110 15.4).
    pub(super) fn redirect(&self, base: &Url) -> Result<Option<Url>, ClientError> {
        if !matches!(self.status, 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = self.fields.text("location") else { return Ok(None) };
        let bad = |error| ClientError::BadResponse(format!("redirect to '{location}': {error}"));
        base.join(location).map(Some).map_err(bad)
    }

    /// How long the server asks to wait (RFC 9110 10.2.3).
    #[must_use]
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.fields.get("retry-after")?;
        match str::from_utf8(value).ok()?.trim().parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => parse_date(value)?.duration_since(now).ok(),
        }
    }

    /// Whether the status says that what was asked has been done.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What follows the head (RFC 9112 6.3).
fn extent(method: &str, status: u16, fields: &Fields) -> Result<Extent, ClientError> {
    if method == "HEAD" || matches!(status, 100..200 | 204 | 304) {
        return Ok(Extent::Length(0));
    }
    if let Some(coding) = fields.all("transfer-encoding").last() {
        let last = coding.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        return match (last.trim_ascii().eq_ignore_ascii_case(b"chunked"), coding.contains(&b',')) {
            (true, false) => Ok(Extent::Chunked),
            _ => {
                Err(ClientError::BadResponse("a transfer coding that nobody asked for".to_owned()))
            }
        };
    }
    let mut length = None;
    for value in fields.all("content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
        let number = str::from_utf8(value.trim_ascii()).ok().and_then(|text| text.parse().ok());
        match (number, length) {
            (Some(number), None) => length = Some(number),
            (Some(number), Some(length)) if number == length => {}
            _ => {
                return Err(ClientError::BadResponse("its Content-Length is no number".to_owned()));
            }
        }
    }
    Ok(length.map_or(Extent::UntilEnd, Extent::Length))
}

/// Fields of a head at the most.
const MOST_FIELDS: usize = 128;
