//! Ranges of bytes in the form that people type, with the meaning they have in curl and HTTP.

use std::str::FromStr;

use underpass_engine::Size;

/// Bytes of a file, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteRange {
    /// `FROM-TO`, or `FROM-` up to the end.
    From(u64, Option<u64>),
    /// `-COUNT`: this number of bytes at the end.
    Last(u64),
}

impl ByteRange {
    /// Returns offset and length in a file of `size` bytes; `None` if it has none of these bytes.
    pub(crate) fn within(self, size: u64) -> Option<(u64, u64)> {
        let (from, end) = match self {
            Self::From(from, to) => (from, to.map_or(size, |to| size.min(to.saturating_add(1)))),
            Self::Last(count) => (size.saturating_sub(count), size),
        };
        (from < end).then(|| (from, end - from))
    }
}

/// The text is not a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ranges are FROM-TO (first and last byte, both included), FROM- (to the end) \
         or -COUNT (the last bytes), such as 0-1023, 1M- or -4K"
)]
pub(crate) struct NotARange;

impl FromStr for ByteRange {
    type Err = NotARange;

    fn from_str(text: &str) -> Result<Self, NotARange> {
        let number = |text: &str| text.parse().map(|Size(bytes)| bytes).map_err(|_| NotARange);
        let range = match text.split_once('-').ok_or(NotARange)? {
            ("", count) => Self::Last(number(count)?),
            (from, "") => Self::From(number(from)?, None),
            (from, to) => Self::From(number(from)?, Some(number(to)?)),
        };
        match range {
            Self::From(from, Some(to)) if to < from => Err(NotARange),
            Self::Last(0) => Err(NotARange),
            range => Ok(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_both_ends_and_stop_at_the_end_of_the_file() {
        for (text, size, expected) in [
            ("0-0", 10, Some((0, 1))),
            ("2-4", 10, Some((2, 3))),
            ("2-", 10, Some((2, 8))),
            ("-3", 10, Some((7, 3))),
            ("-30", 10, Some((0, 10))),
            ("5-99", 10, Some((5, 5))),
            ("10-", 10, None),
            ("0-", 0, None),
            ("1K-2K", 4096, Some((1024, 1025))),
        ] {
            assert_eq!(text.parse::<ByteRange>().map(|r| r.within(size)), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_byte_ranges_are_refused() {
        for text in ["", "-", "5", "5-3", "a-b", "-0", "1-2-3", "--1"] {
            assert_eq!(text.parse::<ByteRange>(), Err(NotARange), "{text}");
        }
    }
}
