//! A digest and its algorithm.

use std::fmt;
use std::str::FromStr;

/// The algorithm of a digest: those of the registry of RFC 9530 section 5 that are not broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256, for which current processors have instructions.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// Every algorithm, the usual one first.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Returns its key in the fields of RFC 9530, which is also its name everywhere else.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha-256",
            Self::Sha512 => "sha-512",
        }
    }

    /// Returns the length of its digests in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // none is empty
    pub const fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the algorithm of this key, if it is supported.
    pub(super) fn of_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == key)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    /// Reads a name; `sha256`, the form in the names of programs, is accepted too.
    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        let is_meant = |algorithm: &Self| {
            let bare = algorithm.name().split('-');
            name.eq_ignore_ascii_case(algorithm.name())
                || name.eq_ignore_ascii_case(&bare.collect::<String>())
        };
        Self::ALL.into_iter().find(is_meant).ok_or(UnknownAlgorithm)
    }
}

/// The name is not that of an [`Algorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the supported digests are sha-256 and sha-512")]
pub struct UnknownAlgorithm;

/// A digest: equal for equal files, and different for all different files ever found.
///
/// As text it is `sha-256:` and hexadecimal digits; it is read back from that, or with Base64
/// after the colon, or from the digits alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Digest {
    pub(super) algorithm: Algorithm,
    pub(super) value: Box<[u8]>,
}

impl Digest {
    /// Returns a digest of this value; `None` if that is not as long as those of the algorithm
    /// are.
    #[must_use]
    pub fn new(algorithm: Algorithm, value: impl Into<Box<[u8]>>) -> Option<Self> {
        let value = value.into();
        (value.len() == algorithm.len()).then_some(Self { algorithm, value })
    }

    /// Returns its algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns its bytes.
    #[must_use]
    pub const fn value(&self) -> &[u8] {
        &self.value
    }

    /// Returns the bytes in hexadecimal, as `sha256sum` prints them.
    #[must_use]
    pub fn hex(&self) -> String {
        hex(&self.value)
    }
}

/// Returns bytes in hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.hex())
    }
}
