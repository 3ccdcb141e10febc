//! The stored form of a password: the password itself, or a hash of it.

use std::fmt;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Block, Params, Version};
use sha_crypt::{Params as ShaParams, PasswordVerifier, ShaCrypt};
use subtle::{Choice, ConstantTimeEq};
use underpass_protocol::auth::{HashKind, MAX_PASSWORD, RuleFault};

/// The stored form of a password.
pub(super) enum Secret {
    /// A parsed PHC string.
    Argon2(Box<Argon2Hash>),
    /// The password.
    Plain(Vec<u8>),
    /// A string in the format of crypt(5), checked when it was read.
    Sha512Crypt {
        /// The string.
        hash: String,
        /// The number of rounds, which is the cost of a check.
        cost: u64,
    },
}

/// A parsed PHC string.
pub(super) struct Argon2Hash {
    /// The variant with its parameters.
    argon2: Argon2<'static>,
    /// The salt that is hashed with the password.
    salt: Vec<u8>,
    /// The hash of the right password.
    output: Vec<u8>,
}

/// The memory in which Argon2 hashes are checked. It grows to the size that the most costly hash
/// needs, and is reused for each check.
#[derive(Default)]
pub struct CheckMemory(Vec<Block>);

impl fmt::Debug for CheckMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CheckMemory").field(&self.0.len()).finish()
    }
}

impl Secret {
    /// Parses the password of a rule.
    pub(super) fn parse(password: &str) -> Result<Self, RuleFault> {
        match HashKind::of(password) {
            Some(HashKind::Argon2) => argon2(password),
            Some(HashKind::Sha512Crypt) => sha512_crypt(password),
            Some(HashKind::Unknown) => Err(RuleFault::UnknownHash),
            None if password.len() > MAX_PASSWORD => Err(RuleFault::LongPassword),
            None => Ok(Self::Plain(password.into())),
        }
    }

    /// Returns the time of a check in relative units; 0 if it is negligible.
    pub(super) fn cost(&self) -> u64 {
        match self {
            // A block takes about as long as a round, and there are at least 8 blocks.
            Self::Argon2(hash) => filled(hash.argon2.params()),
            Self::Sha512Crypt { cost, .. } => *cost,
            Self::Plain(_) => 0,
        }
    }

    /// Returns whether this is the password and the rules have it in plain text.
    pub(super) fn is_plain(&self, password: &[u8]) -> bool {
        matches!(self, Self::Plain(secret) if is_same(secret, password).into())
    }

    /// Returns whether this is the password.
    pub(super) fn matches(&self, password: &[u8], memory: &mut CheckMemory) -> bool {
        match self {
            Self::Argon2(hash) => hash.matches(password, memory),
            Self::Plain(secret) => is_same(secret, password).into(),
            Self::Sha512Crypt { hash, .. } => {
                ShaCrypt::SHA512.verify_password(password, hash.as_str()).is_ok()
            }
        }
    }
}

impl Argon2Hash {
    /// Returns whether this is the password.
    fn matches(&self, password: &[u8], CheckMemory(blocks): &mut CheckMemory) -> bool {
        let needed = self.argon2.params().block_count();
        if blocks.len() < needed {
            // Free the old memory first: a hash may need 256 MiB.
            *blocks = Vec::new();
            blocks.resize(needed, Block::default());
        }
        let mut output = vec![0; self.output.len()];
        let hashing = self.argon2.hash_password_into_with_memory(
            password,
            &self.salt,
            &mut output,
            blocks.as_mut_slice(),
        );
        hashing.is_ok() && output.ct_eq(&self.output).into()
    }
}

/// Returns the number of blocks that a check fills.
fn filled(params: &Params) -> u64 {
    u64::from(params.m_cost()) * u64::from(params.t_cost())
}

/// Parses a PHC string.
fn argon2(password: &str) -> Result<Secret, RuleFault> {
    let read = || {
        let hash = PasswordHash::new(password).ok()?;
        let params = Params::try_from(&hash).ok()?;
        let algorithm = Algorithm::try_from(hash.algorithm.as_str()).ok()?;
        let version = hash.version.map(Version::try_from).transpose().ok()?.unwrap_or_default();
        let salt = hash.salt?.to_vec();
        let output = hash.hash?.as_bytes().to_vec();
        let argon2 = Argon2::new(algorithm, version, params);
        Some(Argon2Hash { argon2, salt, output })
    };
    let hash = read().ok_or(RuleFault::BrokenHash)?;
    let params = hash.argon2.params();
    if params.m_cost() > MAX_MEMORY || filled(params) > MAX_FILLED {
        return Err(RuleFault::CostlyHash);
    }
    Ok(Secret::Argon2(Box::new(hash)))
}

/// Parses `$6$rounds=5000$salt$hash`, whose rounds are optional.
fn sha512_crypt(password: &str) -> Result<Secret, RuleFault> {
    let read = || {
        let mut rest = password.strip_prefix("$6$")?;
        let mut rounds = ShaParams::RECOMMENDED_ROUNDS;
        if let Some(given) = rest.strip_prefix("rounds=") {
            let (number, after) = given.split_once('$')?;
            rounds = number.parse().ok()?;
            rest = after;
        }
        ShaParams::new(rounds).ok()?;
        let (salt, hash) = rest.split_once('$')?;
        let is_code = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'/';
        // crypt(5) allows no other salts, and with one the right password would never match.
        let is_of_salt = |byte: u8| is_code(byte) || b"+=,-".contains(&byte);
        let is_salt = (1..=16).contains(&salt.len()) && salt.bytes().all(is_of_salt);
        let is_whole = is_salt && hash.len() == 86 && hash.bytes().all(is_code);
        is_whole.then_some(u64::from(rounds))
    };
    let cost = read().ok_or(RuleFault::BrokenHash)?;
    if cost > MAX_ROUNDS {
        return Err(RuleFault::CostlyHash);
    }
    Ok(Secret::Sha512Crypt { hash: password.into(), cost })
}

/// Compares in a time that depends only on the length of the given password.
fn is_same(secret: &[u8], given: &[u8]) -> Choice {
    let mut same = secret.len().ct_eq(&given.len());
    for (byte, expected) in given.iter().zip(secret.iter().cycle()) {
        same &= byte.ct_eq(expected);
    }
    same
}

/// The maximum memory of an Argon2 hash in KiB: 256 MiB.
const MAX_MEMORY: u32 = 256 << 10;

/// The maximum number of KiB that all passes of an Argon2 hash may fill together: about a second.
const MAX_FILLED: u64 = 1 << 20;

/// The maximum number of rounds of a `$6$` hash: about a second.
const MAX_ROUNDS: u64 = 1_000_000;
