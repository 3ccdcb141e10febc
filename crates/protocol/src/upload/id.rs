//! The address of an upload, which contains its whole state: after a restart the server knows as
//! much as the one that gave the address.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};

use super::content_range::decimal;
use super::partial::Token;
use crate::digest::Digest;

/// The part of an upload's address after `?upload=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadId {
    /// The token of the upload.
    pub token: Token,
    /// The length of the complete upload in bytes, if the client has announced it.
    pub length: Option<u64>,
    /// Whether no file of this name may exist on completion (`If-None-Match: *`).
    pub keeps: bool,
    /// The [hash](version_hash) of the entity tag of the only version that may be replaced on
    /// completion (`If-Match` and `If-Unmodified-Since`), if the upload began with one.
    pub replaces: Option<u64>,
    /// The digest of the complete upload (`Repr-Digest`), if it began with one.
    pub digest: Option<Digest>,
}

impl UploadId {
    /// Reads what [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = str::from_utf8(text).ok()?.split('-');
        let token = Token::parse(parts.next()?.as_bytes())?;
        let length = match parts.next()? {
            "x" => None,
            "" => return None,
            digits => Some(decimal(digits)?),
        };
        let mut next = parts.next();
        let keeps = next == Some("k");
        if keeps {
            next = parts.next();
        }
        let mut replaces = None;
        if let Some(digits) = next.and_then(|part| part.strip_prefix('m')) {
            replaces = u64::from_str_radix(digits, 16).ok();
            // Only in the form in which it is written.
            replaces.filter(|hash| format!("{hash:016x}") == digits)?;
            next = parts.next();
        }
        let mut digest = None;
        if let Some(digits) = next.and_then(|part| part.strip_prefix('d')) {
            digest = digits.parse().ok().filter(|digest: &Digest| digest.hex() == digits);
            digest.as_ref()?;
            next = parts.next();
        }
        next.is_none().then_some(Self { token, length, keeps, replaces, digest })
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.token)?;
        match self.length {
            Some(length) => write!(f, "{length}")?,
            None => f.write_str("x")?,
        }
        f.write_str(if self.keeps { "-k" } else { "" })?;
        self.replaces.iter().try_for_each(|hash| write!(f, "-m{hash:016x}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "-d{}", digest.hex()))
    }
}

/// Returns the hash of an entity tag for [`UploadId::replaces`].
#[must_use]
pub fn version_hash(etag: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&Sha256::digest(etag)[..8]);
    u64::from_be_bytes(bytes)
}

/// Returns a target, or the line that contains it, without the tokens, which only the client of
/// an upload may know: with one from the log, any client could continue the upload.
#[must_use]
pub fn without_tokens(line: &[u8]) -> Cow<'_, [u8]> {
    let is_key =
        |at: usize| line[at..].starts_with(KEY) && at > 0 && matches!(line[at - 1], b'?' | b'&');
    let Some(mut at) = (0..line.len()).find(|at| is_key(*at)) else { return Cow::Borrowed(line) };
    let mut shown = line[..at].to_vec();
    while at < line.len() {
        if is_key(at) {
            shown.extend_from_slice(KEY);
            shown.push(b'*');
            at += KEY.len();
            let is_end = |byte: &u8| matches!(byte, b'&' | b'#' | b' ');
            at += line[at..].iter().position(is_end).unwrap_or(line.len() - at);
        } else {
            shown.push(line[at]);
            at += 1;
        }
    }
    Cow::Owned(shown)
}

/// The key of the token in a query.
const KEY: &[u8] = b"upload=";
