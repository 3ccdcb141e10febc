//! `X-Update-Range`, by which clients of dufs and SabreDAV write into the middle of a file.

use super::content_range::decimal;

/// The place in a file where the body of a PATCH belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateRange {
    /// At the end of the file.
    Append,
    /// From this byte on; bytes after the body stay.
    From(u64),
    /// Between these bytes, the second included: the body has exactly that length.
    Between(u64, u64),
    /// In place of this number of bytes at the end of the file.
    Last(u64),
}

impl UpdateRange {
    /// Reads `append`, `bytes=5-`, `bytes=5-9` or `bytes=-5`.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let value = str::from_utf8(value).ok()?.trim();
        if value.eq_ignore_ascii_case("append") {
            return Some(Self::Append);
        }
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        match (first, last) {
            ("", last) => decimal(last).filter(|_| !last.is_empty()).map(Self::Last),
            (first, "") => decimal(first).map(Self::From),
            (first, last) => {
                let (first, last) = (decimal(first)?, decimal(last)?);
                (first <= last).then_some(Self::Between(first, last))
            }
        }
    }

    /// Returns the first byte that is written, of a file of `len` bytes; `None` if that is beyond
    /// its end, where a hole would be left before it.
    #[must_use]
    pub fn start(self, len: u64) -> Option<u64> {
        match self {
            Self::Append => Some(len),
            Self::From(first) | Self::Between(first, _) => (first <= len).then_some(first),
            Self::Last(count) => len.checked_sub(count),
        }
    }

    /// Returns whether a body of this length is what the range says.
    #[must_use]
    pub fn fits(self, body: u64) -> bool {
        match self {
            Self::Between(first, last) => (last - first).checked_add(1) == Some(body),
            _ => true,
        }
    }
}
