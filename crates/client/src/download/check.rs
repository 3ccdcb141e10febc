//! Compares the digests of a file with the expected ones, before it gets its name.

use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use underpass_engine::hint::Action;
use underpass_protocol::digest::{Algorithm, Digest, parse_digests, write_wanted};
use underpass_transport::digest::{ComputeError, DigestCheck, compute, verify};

use super::error::{DownloadError, Result};
use super::options::DownloadOptions;
use crate::error::ClientError;
use crate::http::Response;

/// Returns the digests of the whole file in a response (RFC 9530). A field that cannot be parsed is
/// ignored (RFC 9651 4.2).
pub(crate) fn offered(response: &Response) -> Vec<Digest> {
    let fields = &response.fields;
    let mut offered = parse_digests(fields.all("repr-digest")).unwrap_or_default();
    if response.status == 200 {
        // The body is the whole file.
        offered.extend(of_content(response));
    }
    offered
}

/// Returns the digests of the body of a response.
pub(super) fn of_content(response: &Response) -> Vec<Digest> {
    parse_digests(response.fields.all("content-digest")).unwrap_or_default()
}

/// Compares a range of the file with the digests of the response that contained it.
///
/// # Errors
///
/// [`DownloadError::Digest`] if a digest differs.
pub(crate) fn check_range(
    file: &File,
    range: Range<u64>,
    expected: &[Digest],
    go_on: impl Fn() -> bool,
) -> Result<(), DownloadError> {
    let algorithms: Vec<_> = expected.iter().map(Digest::algorithm).collect();
    let computed = compute(file, range, &algorithms, |_| go_on()).map_err(not_computed)?;
    let wrong =
        computed.digests.into_iter().zip(expected).find(|(found, expected)| found != *expected);
    match wrong {
        Some((found, expected)) => {
            let (expected, read_bytes) = (Some(expected.clone()), computed.read_bytes);
            Err(DownloadError::Digest(Box::new(DigestCheck { found, expected, read_bytes })))
        }
        None => Ok(()),
    }
}

fn not_computed(stopped: ComputeError) -> DownloadError {
    match stopped {
        ComputeError::Cancelled => ClientError::Cancelled.into(),
        ComputeError::Io(source) => DownloadError::Local { action: Action::Reading, source },
    }
}

/// Returns the digest of a whole object that a store has checked; `None` if it was computed from
/// those of the parts.
pub(super) fn stored(response: &Response) -> Option<Digest> {
    let is_composite = response.fields.get("x-amz-checksum-type") == Some(b"COMPOSITE");
    let value = response.fields.text("x-amz-checksum-sha256").filter(|_| !is_composite)?;
    Digest::new(Algorithm::Sha256, STANDARD.decode(value).ok()?)
}

/// Returns the value of `Want-Repr-Digest`, if a digest is required.
pub(super) fn wanted(options: &DownloadOptions) -> Option<String> {
    options.verify.then(|| write_wanted(&Algorithm::ALL))
}

/// Computes the digests of the file that are expected or to be shown, and compares the former.
///
/// # Errors
///
/// [`DownloadError::Digest`] if a digest differs.
pub(super) fn check(
    file: &File,
    len: u64,
    options: &DownloadOptions,
    offered: &[Digest],
    cancel: Option<&AtomicBool>,
) -> Result<Vec<DigestCheck>> {
    let expected: Vec<_> = options.expected.iter().chain(offered).cloned().collect();
    let go_on = |_| !cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
    let facts = verify(file, len, &expected, &options.shown, go_on).map_err(not_computed)?;
    match facts.iter().find(|fact| fact.matches() == Some(false)) {
        Some(wrong) => Err(DownloadError::Digest(Box::new(wrong.clone()))),
        None => Ok(facts),
    }
}
