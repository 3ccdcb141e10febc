//! Computes digests of bytes.

use sha2::digest::Update;
use sha2::{Digest as _, Sha256, Sha512};

use super::value::{Algorithm, Digest};

/// A digest in progress. `sha2` uses the processor's SHA instructions if it has any.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-512.
    Sha512(Sha512),
}

impl Hasher {
    /// Starts a digest of nothing yet.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
            Algorithm::Sha512 => Self::Sha512(Sha512::new()),
        }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => Update::update(hasher, bytes),
            Self::Sha512(hasher) => Update::update(hasher, bytes),
        }
    }

    /// Returns the digest of all bytes added.
    #[must_use]
    pub fn finish(self) -> Digest {
        let (algorithm, value): (_, Box<[u8]>) = match self {
            Self::Sha256(hasher) => (Algorithm::Sha256, hasher.finalize().as_slice().into()),
            Self::Sha512(hasher) => (Algorithm::Sha512, hasher.finalize().as_slice().into()),
        };
        Digest { algorithm, value }
    }
}
