//! Digests in the forms that people type and copy.

use std::str::FromStr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::value::{Algorithm, Digest};

impl FromStr for Digest {
    type Err = UnknownDigest;

    /// Reads `sha-256:HEX`, `sha-256:BASE64` or `HEX`, whose length then determines the
    /// algorithm.
    fn from_str(text: &str) -> Result<Self, UnknownDigest> {
        let text = text.trim();
        let Some((name, value)) = text.split_once([':', '=']) else { return bare(text) };
        let algorithm: Algorithm = name.parse().map_err(|_| UnknownDigest)?;
        // The two cannot be mistaken for each other: in hexadecimal a digest is longer.
        let is_hex = value.len() == 2 * algorithm.len();
        let bytes = if is_hex { from_hex(value) } else { from_base64(value) };
        bytes.and_then(|bytes| Digest::new(algorithm, bytes)).ok_or(UnknownDigest)
    }
}

/// Reads what `sha256sum` prints.
fn bare(text: &str) -> Result<Digest, UnknownDigest> {
    let is_as_long = |algorithm: &Algorithm| text.len() == 2 * algorithm.len();
    let algorithm = Algorithm::ALL.into_iter().find(is_as_long).ok_or(UnknownDigest)?;
    from_hex(text).and_then(|bytes| Digest::new(algorithm, bytes)).ok_or(UnknownDigest)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    // In a structured field it stands between colons (RFC 9651 3.3.5).
    let text = text.strip_prefix(':').and_then(|text| text.strip_suffix(':')).unwrap_or(text);
    BASE64_STANDARD.decode(text).ok()
}

/// The text is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is written sha-256:HEX or sha-512:HEX, or with Base64 after the colon")]
pub struct UnknownDigest;
