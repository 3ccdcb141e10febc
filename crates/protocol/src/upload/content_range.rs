//! `Content-Range` of a request (RFC 9110 14.4 and 14.5): the body is a part of the file.

use crate::request::Request;

/// The bytes of a file that a body has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The offset of the first byte.
    pub first: u64,
    /// The number of bytes, never 0.
    pub len: u64,
    /// The total length of the file in bytes.
    pub total: u64,
}

/// The field has no value that a body could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Content-Range must be one 'bytes FIRST-LAST/TOTAL'")]
pub struct BadContentRange;

impl ContentRange {
    /// Returns the range in a request; `None` if it has none.
    ///
    /// # Errors
    ///
    /// If there are several, or one that is invalid: treating the body as the whole file would
    /// destroy the existing one.
    pub fn of(request: &Request) -> Result<Option<Self>, BadContentRange> {
        if request.field("content-range").is_none() {
            return Ok(None);
        }
        request.single("content-range").and_then(Self::parse).map(Some).ok_or(BadContentRange)
    }

    /// Reads `bytes 5-9/10`. The total must be known, since it tells when the file is complete.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = str::from_utf8(value).ok()?;
        let (unit, rest) = value.split_once(' ')?;
        let (range, total) = rest.trim().split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (first, last, total) = (decimal(first)?, decimal(last)?, decimal(total)?);
        let is_range = unit.eq_ignore_ascii_case("bytes") && first <= last && last < total;
        is_range.then(|| Self { first, len: last - first + 1, total })
    }

    /// Returns whether these bytes complete the file.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.first + self.len == self.total
    }
}

/// Parses a number without sign, white space or overflow.
pub(super) fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}
