//! The errors of rules.

use super::basic::MAX_PASSWORD;

/// The error of a rule that cannot be read.
///
/// Its message is one line. Paths are named by their number: if the rule was misread, they may
/// contain a part of the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("auth rule {rule}{}: {fault}", .user.as_ref().map(|user| format!(" (user {user})")).unwrap_or_default())]
pub struct RuleError {
    /// The number of the rule, counted from 1.
    pub rule: usize,
    /// The user that the rule is about, if its name could be read.
    pub user: Option<String>,
    /// The fault of the rule.
    pub fault: RuleFault,
}

/// The fault of a rule, with advice for fixing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleFault {
    /// It is ambiguous which `@/` ends the password.
    #[error(
        "\"@/\" occurs twice, so it is not clear where the password ends: give the password as a hash, as \
         \"openssl passwd -6\" makes it"
    )]
    AmbiguousEnd,
    /// The password looks like a hash, but is cut or damaged.
    #[error(
        "the password looks like a hash but is not a whole one: put the rule in single quotes, or the \
         shell replaces what follows each $"
    )]
    BrokenHash,
    /// A check of the hash would take too much memory or time.
    #[error(
        "a check of the hash takes too much memory or time: make it with at most 256 MiB of memory, 1 GiB \
         in all passes, or 1000000 rounds"
    )]
    CostlyHash,
    /// The user has a rule already.
    #[error("rule {first} is about the same user: list all paths in one rule, separated by commas")]
    DuplicateUser {
        /// The number of that rule.
        first: usize,
    },
    /// The plain password is longer than the maximum for requests.
    #[error("the password is longer than {max} bytes: choose a shorter one", max = MAX_PASSWORD)]
    LongPassword,
    /// The account is not followed by paths.
    #[error(
        "it has no path: add one at the end, as in \"name:password@/\" or \
         \"name:password@/in:rw,/out\""
    )]
    NoPaths,
    /// The account has no password.
    #[error(
        "there is no password: write \"name:password@/path\", or \"@/path\" to open the path to everyone"
    )]
    NoPassword,
    /// The account has no name, or one that Basic authentication cannot carry.
    #[error("there is no usable user name before the colon: write \"name:password@/path\"")]
    NoUser,
    /// A path, counted from 1, does not begin with a slash.
    #[error(
        "path {0} does not begin with \"/\": separate paths by commas and begin each with \"/\", the \
         served folder"
    )]
    RelativePath(usize),
    /// A path, counted from 1, has an empty segment, `.` or `..`.
    #[error(
        "path {0} has an empty part, \".\" or \"..\": write it as it is below the served folder"
    )]
    StrangePath(usize),
    /// The password is a hash of an unsupported kind.
    #[error(
        "the password is a hash of an unknown kind, or looks like one: use sha512-crypt, as \"openssl \
         passwd -6\" makes it, or argon2"
    )]
    UnknownHash,
    /// A path, counted from 1, has a colon that is not followed by a right.
    #[error(
        "path {0} ends in something else than \":ro\" or \":rw\": use one of them, also after a path that \
         contains a colon itself"
    )]
    UnknownRight(usize),
}
