//! The digests announced by the sender of a file, checked before the file counts as received.

use std::ops::Range;
use std::os::fd::AsFd;

use underpass_protocol::digest::{BadDigestField, Digest, parse_digests};

use super::compute::{ComputeError, compute};

/// The digests sent with a body, and the part of the file that they cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// Digests of the whole file (`Repr-Digest`).
    whole: Vec<Digest>,
    /// Digests of the body of this request (`Content-Digest`).
    content: Vec<Digest>,
}

/// The result of a successful check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Digests of the whole file, which can be stored with it.
    pub whole: Vec<Digest>,
    /// Bytes that were read for the check.
    pub read_bytes: u64,
}

impl Offer {
    /// Reads the lines of `Repr-Digest` and of `Content-Digest`.
    ///
    /// # Errors
    ///
    /// [`BadDigestField`], for a response with status 400.
    pub fn parse<'a>(
        repr_digest: impl IntoIterator<Item = &'a [u8]>,
        content_digest: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<Self, BadDigestField> {
        Ok(Self { whole: parse_digests(repr_digest)?, content: parse_digests(content_digest)? })
    }

    /// Adds a digest of the whole file that was announced earlier.
    #[must_use]
    pub fn with(mut self, digest: Option<Digest>) -> Self {
        self.whole.extend(digest);
        self
    }

    /// Returns whether no digest was announced.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.content.is_empty()
    }

    /// Compares the digests with a file of `len` bytes, of which this request has sent the range
    /// `content`. The file and the range are each read once, or not at all without a digest.
    ///
    /// `go_on` is as with [`compute()`].
    ///
    /// # Errors
    ///
    /// [`OfferError::Differs`] if a digest does not match, for a response with status 400.
    pub fn check(
        &self,
        file: impl AsFd,
        len: u64,
        content: Range<u64>,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<Checked, OfferError> {
        let file = file.as_fd();
        let mut checked = Checked::default();
        // If the body is the whole file, it is read once for both.
        let (mut whole, mut part) = (self.whole.clone(), self.content.clone());
        if content == (0..len) {
            whole.append(&mut part);
        }
        for (offered, range) in [(part, content), (whole, 0..len)] {
            if offered.is_empty() {
                continue;
            }
            let mut algorithms: Vec<_> = offered.iter().map(Digest::algorithm).collect();
            algorithms.sort();
            algorithms.dedup();
            let is_whole = range == (0..len);
            let found = compute(file, range, &algorithms, &mut go_on)?;
            checked.read_bytes += found.read_bytes;
            for offered in offered {
                let is_of = |found: &&Digest| found.algorithm() == offered.algorithm();
                if let Some(found) = found.digests.iter().find(is_of).filter(|f| **f != offered) {
                    return Err(OfferError::Differs { offered, found: found.clone() });
                }
            }
            if is_whole {
                checked.whole = found.digests;
            }
        }
        Ok(checked)
    }
}

/// The reason why a file does not count as received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OfferError {
    /// A digest does not match.
    #[error("what arrived is {found}, not {}", .offered.hex())]
    Differs {
        /// The announced digest.
        offered: Digest,
        /// The computed digest.
        found: Digest,
    },
    /// The check was not completed.
    #[error(transparent)]
    Compute(#[from] ComputeError),
}
