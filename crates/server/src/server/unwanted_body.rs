//! The body of a request without a use: passed over, so that the next request can be read.

use crate::chunked::Chunked;

/// What is left of a request's body.
pub(super) enum UnwantedBody {
    Bytes(u64),
    /// Chunks, and how many bytes they may have.
    Chunks(Chunked, u64),
}

impl UnwantedBody {
    /// Passes over what is there: how much of it, and whether that was all; `None` if it is no
    /// body, or has no end.
    pub(super) fn skip(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        match self {
            Self::Bytes(left) => {
                let consumed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= consumed as u64;
                Some((consumed, *left == 0))
            }
            Self::Chunks(chunks, allowance) => {
                let step = chunks.skip(bytes).ok()?;
                *allowance = allowance.checked_sub(step.consumed as u64)?;
                Some((step.consumed, step.is_done))
            }
        }
    }
}
