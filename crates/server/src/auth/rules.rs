//! The rules of the command line, in the spelling of dufs.

use std::borrow::Cow;
use std::fmt;
use std::sync::Mutex;

use super::Right;
use super::basic::LONGEST_PASSWORD;
use super::grants::Grants;
use super::secret::{HashKind, Secret};
use super::users::{User, Users};

/// A rule that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// Which one, counted from 1.
    pub rule: usize,
    /// The user it is about, if that could be told.
    pub user: Option<String>,
    /// What is wrong with it.
    pub fault: RuleFault,
}

/// What is wrong with a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleFault {
    /// It cannot be told which `@/` ends the password.
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
    /// The plain password is longer than any that will be looked at.
    LongPassword,
    /// The account is not followed by paths.
    NoPaths,
    /// The account has no password.
    NoPassword,
    /// The account has no name, or one that Basic authentication cannot carry.
    NoUser,
    /// A path, counted from 1, that does not begin with a slash.
    RelativePath(usize),
    /// A path, counted from 1, with an empty part, `.` or `..`.
    StrangePath(usize),
    /// The password is a hash of a kind that is not known here.
    UnknownHash,
    /// A path, counted from 1, with a colon that is followed by something else than a right.
    UnknownRight(usize),
}

impl fmt::Display for RuleError {
    /// One line. Paths are named by their number: if the rule was misread, they may contain a part
    /// of the password.
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
    /// What is wrong.
    fn complaint(self) -> Cow<'static, str> {
        let text = match self {
            Self::AmbiguousEnd => "\"@/\" occurs twice, so it is not clear where the password ends",
            Self::BrokenHash => "the password looks like a hash but is not a whole one",
            Self::CostlyHash => "a check of the hash takes too much memory or time",
            Self::DuplicateUser { first } => {
                return format!("rule {first} is about the same user").into();
            }
            Self::LongPassword => {
                return format!("the password is longer than {LONGEST_PASSWORD} bytes").into();
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

    /// What to do about it.
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
                "write \"name:password@/path\", or \"@/path\" to open the path to everybody"
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

/// Reads all rules.
pub(super) fn parse(rules: &[String]) -> Result<Users, RuleError> {
    let mut users = Users::default();
    let mut numbers = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let at = |user: Option<&str>, fault| RuleError {
            rule: index + 1,
            user: user.map(|name| name.escape_debug().to_string()),
            fault,
        };
        let (account, paths) = split(rule).map_err(|fault| at(None, fault))?;
        let Some((name, password)) = account else {
            read_paths(paths, users.everybody()).map_err(|fault| at(None, fault))?;
            continue;
        };
        if let Some(known) = users.position(name) {
            return Err(at(Some(name), RuleFault::DuplicateUser { first: numbers[known] }));
        }
        let user = read_user(name, password, paths).map_err(|fault| at(Some(name), fault))?;
        users.add(user);
        numbers.push(index + 1);
    }
    Ok(users)
}

/// A name and a password.
type Account<'r> = (&'r str, &'r str);

/// Parts a rule into its account, none for everybody, and its paths.
fn split(rule: &str) -> Result<(Option<Account<'_>>, &str), RuleFault> {
    let (account, paths) = rule.split_once('@').ok_or(RuleFault::NoPaths)?;
    let (account, paths) = match rule.find("@/") {
        Some(at) => (&rule[..at], &rule[at + 1..]),
        // Not one path begins with a slash: say so, rather than that there are none.
        None => (account, paths),
    };
    if account.is_empty() {
        return Ok((None, paths));
    }
    let (name, password) = account.split_once(':').ok_or(RuleFault::NoPassword)?;
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(RuleFault::NoUser);
    }
    if password.is_empty() {
        return Err(RuleFault::NoPassword);
    }
    if paths.contains("@/") && HashKind::of(password).is_none() {
        return Err(RuleFault::AmbiguousEnd);
    }
    Ok((Some((name, password)), paths))
}

/// Makes a user of the parts of a rule.
fn read_user(name: &str, password: &str, paths: &str) -> Result<User, RuleFault> {
    let mut grants = Grants::default();
    read_paths(paths, &mut grants)?;
    let secret = Secret::parse(password)?;
    Ok(User { name: name.into(), secret, grants, verified: Mutex::default() })
}

/// Reads `/path:rw,/other`.
fn read_paths(paths: &str, grants: &mut Grants) -> Result<(), RuleFault> {
    if paths.is_empty() {
        return Err(RuleFault::NoPaths);
    }
    for (index, item) in paths.split(',').enumerate() {
        let number = index + 1;
        let path = item.strip_prefix('/').ok_or(RuleFault::RelativePath(number))?;
        let (path, right) = match path.rsplit_once(':') {
            None => (path, Right::Read),
            Some((path, "ro")) => (path, Right::Read),
            Some((path, "rw")) => (path, Right::Write),
            Some(_) => return Err(RuleFault::UnknownRight(number)),
        };
        let folder = path.strip_suffix('/').unwrap_or(path);
        let is_strange = |part: &str| matches!(part, "" | "." | "..");
        if !path.is_empty() && folder.split('/').any(is_strange) {
            return Err(RuleFault::StrangePath(number));
        }
        grants.add(folder.into(), right);
    }
    Ok(())
}
