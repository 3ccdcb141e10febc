//! The errors of rules.

use std::borrow::Cow;
use std::fmt;

use super::basic::MAX_PASSWORD;

/// The error of a rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The number of the rule, counted from 1.
    pub rule: usize,
    /// The user that the rule is about, if its name could be read.
    pub user: Option<String>,
    /// The fault of the rule.
    pub fault: RuleFault,
}

/// The fault of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleFault {
    /// It is ambiguous which `@/` ends the password.
    AmbiguousEnd,
    /// The password looks like a hash, but is cut or damaged.
    BrokenHash,
    /// A check of the hash would take too much memory or time.
    CostlyHash,
    /// The user has a rule already.
    DuplicateUser {
        /// The number of that rule.
        first: usize,
    },
    /// The plain password is longer than the maximum for requests.
    LongPassword,
    /// The account is not followed by paths.
    NoPaths,
    /// The account has no password.
    NoPassword,
    /// The account has no name, or one that Basic authentication cannot carry.
    NoUser,
    /// A path, counted from 1, does not begin with a slash.
    RelativePath(usize),
    /// A path, counted from 1, has an empty segment, `.` or `..`.
    StrangePath(usize),
    /// The password is a hash of an unsupported kind.
    UnknownHash,
    /// A path, counted from 1, has a colon that is not followed by a right.
    UnknownRight(usize),
}

impl fmt::Display for RuleError {
    /// Writes one line. Paths are named by their number: if the rule was misread, they may contain
    /// a part of the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "auth rule {}", self.rule)?;
        if let Some(user) = &self.user {
            write!(f, " (user {user})")?;
        }
        write!(f, ": {}", self.fault)
    }
}

impl std::error::Error for RuleError {}

impl RuleFault {
    /// Returns the description of the fault.
    fn complaint(self) -> Cow<'static, str> {
        let text = match self {
            Self::AmbiguousEnd => "\"@/\" occurs twice, so it is not clear where the password ends",
            Self::BrokenHash => "the password looks like a hash but is not a whole one",
            Self::CostlyHash => "a check of the hash takes too much memory or time",
            Self::DuplicateUser { first } => {
                return format!("rule {first} is about the same user").into();
            }
            Self::LongPassword => {
                return format!("the password is longer than {MAX_PASSWORD} bytes").into();
            }
            Self::NoPaths => "it does not say which paths it opens",
            Self::NoPassword => "there is no password",
            Self::NoUser => "there is no usable user name before the colon",
            Self::RelativePath(number) => {
                return format!("path {number} does not begin with \"/\"").into();
            }
            Self::StrangePath(number) => {
                return format!("path {number} has an empty part, \".\" or \"..\"").into();
            }
            Self::UnknownHash => "the password is a hash of an unknown kind",
            Self::UnknownRight(number) => {
                let text = format!("path {number} ends in something else than \":ro\" or \":rw\"");
                return text.into();
            }
        };
        text.into()
    }

    /// Returns the advice for fixing it.
    const fn remedy(self) -> &'static str {
        match self {
            Self::AmbiguousEnd => "give the password as a hash, as \"openssl passwd -6\" makes it",
            Self::BrokenHash => {
                "put the rule in single quotes, or the shell replaces what follows each $"
            }
            Self::CostlyHash => {
                "make it with at most 256 MiB of memory, 1 GiB in all passes, or 1000000 rounds"
            }
            Self::DuplicateUser { .. } => "list all paths in one rule, separated by commas",
            Self::LongPassword => "choose a shorter one",
            Self::NoPaths => {
                "add them at the end, as in \"name:password@/\" or \"name:password@/in:rw,/out\""
            }
            Self::NoPassword => {
                "write \"name:password@/path\", or \"@/path\" to open the path to everyone"
            }
            Self::NoUser => "write \"name:password@/path\"",
            Self::RelativePath(_) => {
                "separate paths by commas and begin each with \"/\", the served folder"
            }
            Self::StrangePath(_) => "write it as it is below the served folder",
            Self::UnknownHash => "use sha512-crypt, as \"openssl passwd -6\" makes it, or argon2",
            Self::UnknownRight(_) => {
                "use one of them, also after a path that contains a colon itself"
            }
        }
    }
}

impl fmt::Display for RuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.complaint(), self.remedy())
    }
}
