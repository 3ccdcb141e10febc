//! The servers that a client trusts.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use underpass_engine::Policy;

const PREFIX: &str = "sha256//";

/// Which servers a client trusts.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// A PEM file with CA certificates instead of the system's.
    pub authorities: Option<PathBuf>,
    /// Whether every server is trusted.
    pub insecure: bool,
    /// Public keys, one of which the server must have, in addition to the other conditions.
    pub pins: Vec<Pin>,
    /// Whether the kernel encrypts where it can.
    pub kernel: bool,
}

impl Trust {
    /// Creates the trust that a client's options mean.
    #[must_use]
    pub fn new(
        authorities: Option<PathBuf>,
        insecure: bool,
        pins: Vec<Pin>,
        policy: Policy,
    ) -> Self {
        // The owner of a pinned key is the right server, whatever else its certificate says.
        let is_pin_enough = authorities.is_none() && !pins.is_empty();
        let insecure = insecure || is_pin_enough;
        Self { authorities, insecure, pins, kernel: policy.allows_kernel_tls() }
    }
}

/// The SHA-256 digest of a public key (a SubjectPublicKeyInfo in DER), written as by curl:
/// `sha256//` and base64.
///
/// ```
/// use underpass_transport::tls::Pin;
///
/// let pin: Pin = "sha256//47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=".parse()?;
/// assert_eq!(pin, Pin::of(b""));
/// # Ok::<(), underpass_transport::tls::UnknownPin>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub [u8; 32]);

impl Pin {
    /// Returns the pin of a public key in DER.
    #[must_use]
    pub fn of(public_key: &[u8]) -> Self {
        Self(Sha256::digest(public_key).into())
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", STANDARD.encode(self.0))
    }
}

/// The text is not a pin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a pin: {PREFIX} and 44 characters of base64, as of a SHA-256", .0)]
pub struct UnknownPin(String);

impl FromStr for Pin {
    type Err = UnknownPin;

    fn from_str(text: &str) -> Result<Self, UnknownPin> {
        let digest = text.strip_prefix(PREFIX).and_then(|digest| STANDARD.decode(digest).ok());
        let digest = digest.and_then(|digest| digest.try_into().ok());
        digest.map(Self).ok_or_else(|| UnknownPin(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_reads_as_it_is_written() {
        let pin = Pin::of(b"key");
        assert_eq!(pin.to_string().parse(), Ok(pin));
        for wrong in ["", "sha256//", "sha256//AAAA", "sha1//AAAA", "sha256//not base64"] {
            let error = wrong.parse::<Pin>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
