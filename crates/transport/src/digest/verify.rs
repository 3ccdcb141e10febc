//! Compares a received file with its expected digests.

use std::os::fd::AsFd;

use underpass_protocol::digest::{Algorithm, Digest};

use super::compute::{ComputeError, compute};

/// The result for one digest of a file, for a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DigestCheck {
    /// The computed digest.
    pub found: Digest,
    /// The expected digest, if there is one.
    pub expected: Option<Digest>,
    /// Bytes that were read for all digests together.
    pub read_bytes: u64,
}

impl DigestCheck {
    /// Returns whether the digest is the expected one; `None` if none is expected.
    #[must_use]
    pub fn matches(&self) -> Option<bool> {
        self.expected.as_ref().map(|expected| *expected == self.found)
    }
}

/// Computes the expected digests of a file of `len` bytes, and those that are only shown, reading
/// it once. Nothing is read if there are none.
///
/// The result has one entry for each expected digest, in their order (the user's own first, so that
/// it is the first in the receipt), then one for each that is only shown. Two expected digests of
/// the same algorithm are two entries: if they differ, one of them does not match.
///
/// `go_on` is as with [`compute()`]. Right after a download the file is in the page cache, so the
/// disk is not read.
///
/// # Errors
///
/// [`ComputeError`], as [`compute()`].
pub fn verify(
    file: impl AsFd,
    len: u64,
    expected: &[Digest],
    shown: &[Algorithm],
    go_on: impl FnMut(u64) -> bool,
) -> Result<Vec<DigestCheck>, ComputeError> {
    let mut algorithms: Vec<_> = expected.iter().map(Digest::algorithm).collect();
    algorithms.extend(shown);
    algorithms.sort();
    algorithms.dedup();
    if algorithms.is_empty() {
        return Ok(Vec::new());
    }
    let computed = compute(file, 0..len, &algorithms, go_on)?;
    let fact = |algorithm: Algorithm, expected: Option<Digest>| {
        let found = computed.digests.iter().find(|found| found.algorithm() == algorithm)?.clone();
        Some(DigestCheck { found, expected, read_bytes: computed.read_bytes })
    };
    let is_expected = |algorithm| expected.iter().any(|digest| digest.algorithm() == algorithm);
    let facts = expected.iter().map(|digest| (digest.algorithm(), Some(digest.clone())));
    let only_shown =
        shown.iter().filter(|algorithm| !is_expected(**algorithm)).map(|one| (*one, None));
    Ok(facts
        .chain(only_shown)
        .filter_map(|(algorithm, expected)| fact(algorithm, expected))
        .collect())
}
