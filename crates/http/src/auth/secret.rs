//! What a password is compared with: the password itself, or a hash of it.

use argon2::password_hash::PasswordHash;
use argon2::{Argon2, Params, PasswordVerifier};
use sha_crypt::{ROUNDS_DEFAULT, Sha512Params, sha512_check};
use subtle::{Choice, ConstantTimeEq};

use super::RuleFault;
use super::basic::LONGEST_PASSWORD;

/// What a password is compared with.
pub(super) enum Secret {
    /// A string in the PHC format, checked when it was read.
    Argon2 {
        /// The string.
        hash: String,
        /// Blocks of memory filled: what a check costs.
        cost: u64,
    },
    /// The password.
    Plain(Vec<u8>),
    /// A string as crypt(5) describes it, checked when it was read.
    Sha512Crypt {
        /// The string.
        hash: String,
        /// Rounds: what a check costs.
        cost: u64,
    },
}

impl Secret {
    /// Reads the password of a rule.
    pub(super) fn parse(password: &str) -> Result<Self, RuleFault> {
        match HashKind::of(password) {
            Some(HashKind::Argon2) => argon2(password).ok_or(RuleFault::BrokenHash),
            Some(HashKind::Sha512Crypt) => sha512_crypt(password).ok_or(RuleFault::BrokenHash),
            Some(HashKind::Unknown) => Err(RuleFault::UnknownHash),
            None if password.len() > LONGEST_PASSWORD => Err(RuleFault::LongPassword),
            None => Ok(Self::Plain(password.into())),
        }
    }

    /// How long a check takes, by a measure of no unit; 0 if it takes no time to speak of.
    pub(super) const fn cost(&self) -> u64 {
        match self {
            // A block takes about as long as a round, and is never fewer than 8.
            Self::Argon2 { cost, .. } | Self::Sha512Crypt { cost, .. } => *cost,
            Self::Plain(_) => 0,
        }
    }

    /// Whether this is the password.
    pub(super) fn matches(&self, password: &[u8]) -> bool {
        match self {
            Self::Argon2 { hash, .. } => PasswordHash::new(hash)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            Self::Plain(secret) => is_same(secret, password).into(),
            Self::Sha512Crypt { hash, .. } => {
                str::from_utf8(password).is_ok_and(|password| sha512_check(password, hash).is_ok())
            }
        }
    }
}

/// The kind of hash that a password of a rule looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashKind {
    /// Argon2 in one of its variants.
    Argon2,
    /// SHA-512 in the way of crypt(3).
    Sha512Crypt,
    /// Another one of crypt(3), such as bcrypt.
    Unknown,
}

impl HashKind {
    /// None for a plain password.
    pub(super) fn of(password: &str) -> Option<Self> {
        let (id, _) = password.strip_prefix('$')?.split_once('$')?;
        Some(match id {
            "6" => Self::Sha512Crypt,
            "argon2d" | "argon2i" | "argon2id" => Self::Argon2,
            // As a plain password taken for what it is, it would let in whoever has seen the hash.
            "1" | "2" | "2a" | "2b" | "2x" | "2y" | "3" | "5" | "7" | "apr1" | "gy" | "md5"
            | "scrypt" | "sha1" | "sm3" | "y" => Self::Unknown,
            _ => return None,
        })
    }
}

/// Reads a PHC string; none if it is damaged.
fn argon2(password: &str) -> Option<Secret> {
    let hash = PasswordHash::new(password).ok()?;
    let params = Params::try_from(&hash).ok()?;
    hash.salt?;
    hash.hash?;
    let cost = u64::from(params.m_cost()) * u64::from(params.t_cost());
    Some(Secret::Argon2 { hash: password.into(), cost })
}

/// Reads `$6$rounds=5000$salt$hash`, in which the rounds may be left out; none if it is damaged.
fn sha512_crypt(password: &str) -> Option<Secret> {
    let mut rest = password.strip_prefix("$6$")?;
    let mut rounds = ROUNDS_DEFAULT;
    if let Some(given) = rest.strip_prefix("rounds=") {
        let (number, after) = given.split_once('$')?;
        rounds = number.parse().ok()?;
        rest = after;
    }
    Sha512Params::new(rounds).ok()?;
    let (salt, hash) = rest.split_once('$')?;
    let is_code = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
    let is_whole = salt.len() <= 16 && hash.len() == 86 && hash.bytes().all(is_code);
    is_whole.then(|| Secret::Sha512Crypt { hash: password.into(), cost: rounds as u64 })
}

/// Compares in a time that depends on the length of what was given alone.
fn is_same(secret: &[u8], given: &[u8]) -> Choice {
    let mut same = secret.len().ct_eq(&given.len());
    for (byte, expected) in given.iter().zip(secret.iter().cycle()) {
        same &= byte.ct_eq(expected);
    }
    same
}
