//! Who may read and write what: users, their paths, and Basic authentication.
//!
//! The rules are those of the command line, in the spelling of dufs. A hashed password is meant to
//! be slow to check, tens of milliseconds, in which one thread could have answered thousands of
//! requests; so the check is handed back as [`Pending`] work for another thread, and the answer is
//! remembered, right or wrong, so that a client pays once and not for each request.

pub(crate) mod access; // who asks, and whether the rules let it
mod basic;
mod grants;
pub(crate) mod hosts; // names the server goes by
pub(crate) mod passwords; // checks of hashes
mod rules;
mod secret;
#[cfg(test)]
mod tests;
mod users;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use basic::Credentials;
pub use rules::{RuleError, RuleFault};
pub use secret::CheckMemory;
use users::Users;

/// The value of `WWW-Authenticate` that goes with [`Verdict::Challenge`].
///
/// The charset tells the client to send names and passwords in UTF-8 (RFC 7617, section 2.1).
pub const CHALLENGE: &str = "Basic realm=\"underpass\", charset=\"UTF-8\"";

/// What somebody wants to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Look at it.
    Read,
    /// Change it, which includes looking at it.
    Write,
}

/// What the rules say to one request.
#[derive(Debug)]
pub enum Verdict {
    /// It may go on.
    Allowed {
        /// Who asks; nobody in particular if there was no need to tell.
        user: Option<Arc<str>>,
    },
    /// 429: too many passwords are waiting to be checked.
    Busy,
    /// 401 with [`CHALLENGE`]: tell who you are.
    Challenge,
    /// 403: it is known who asks, and he may not; or nobody may.
    Forbidden,
    /// The client may read something beneath the path, but not the path itself: it may be shown which
    /// names lead there, and nothing else.
    Partial {
        /// Who asks; nobody in particular if there was no need to tell.
        user: Option<Arc<str>>,
    },
    /// Not known yet: the password must be checked against a hash, away from the event loop.
    Verify(Pending),
    /// 401 with [`CHALLENGE`], and later each time: the name or the password is wrong.
    Wrong,
}

/// The rules about users and paths.
///
/// Cheap to clone: all clones share what they remember about passwords that were right.
#[derive(Clone, Default)]
pub struct Access {
    /// Everybody that the rules name.
    users: Arc<Users>,
}

impl Access {
    /// Reads rules such as `alice:secret@/:rw` or `@/public,/music:ro`.
    ///
    /// A rule is an account, an `@`, and paths separated by commas, each of which begins with `/`
    /// and may end in `:ro` (the default) or `:rw`. The account is a name and a password with a
    /// colon between them, and nothing at all for everybody. The password is plain, or a hash that
    /// begins with `$6$` (sha512-crypt) or `$argon2`. Paths are relative to the served folder.
    ///
    /// The account ends at the first `@/`. If a plain password is followed by a second `@/`, it is
    /// not clear which one is meant, and the rule is refused; hashes contain no `@`, so giving the
    /// hash of the password makes any rule clear.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for the first rule that cannot be read; it never contains a password.
    pub fn parse(rules: &[String]) -> Result<Self, RuleError> {
        rules::parse(rules).map(|users| Self { users: Arc::new(users) })
    }

    /// Whether there are no rules. Then nobody is asked who he is, and every right is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Whether somebody has a name and a password.
    #[must_use]
    pub fn has_users(&self) -> bool {
        !self.users.names().is_empty()
    }

    /// Whether everybody may write somewhere, whoever it is.
    #[must_use]
    pub fn lets_everybody_write(&self) -> bool {
        self.is_empty() || self.users.lets_everybody_write()
    }

    /// What the rules say to a request with this `Authorization` field for this path.
    ///
    /// The path is decoded, relative to the root, without a slash at its beginning. The longest
    /// path of a user's rule decides; what everybody may do, a user may do as well. Credentials
    /// that are wrong are refused even where none are needed, so that a user who mistypes his
    /// password is told; fields of another scheme than Basic count as none.
    #[must_use]
    pub fn check(&self, authorization: Option<&[u8]>, path: &[u8], right: Right) -> Verdict {
        if self.is_empty() {
            return Verdict::Allowed { user: None };
        }
        match authorization.map_or(Credentials::None, basic::read) {
            Credentials::None => self.users.decide(None, path, right),
            Credentials::Malformed => Verdict::Challenge,
            Credentials::Given { user, password } => {
                self.users.check(&self.users, &user, password, path, right)
            }
        }
    }

    /// Whether this user, or everybody if it is none, may do this with this path.
    ///
    /// The user is one whom [`check`] has found to be genuine.
    ///
    /// [`check`]: Self::check
    #[must_use]
    pub fn can(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.is_empty() || self.users.can(user, path, right)
    }

    /// Whether this user may know that there is an entry at this path: one that may be read, or a
    /// folder on the way to one.
    #[must_use]
    pub fn may_know(&self, user: Option<&str>, path: &[u8], is_folder: bool) -> bool {
        self.can(user, path, Right::Read) || (is_folder && self.users.leads(user, path))
    }

    /// The same, with this path and with all that may lie beneath it.
    #[must_use]
    pub fn can_all(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.is_empty() || self.users.can_all(user, path, right)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("users", &self.users.names()).finish_non_exhaustive()
    }
}

/// A password that has to be checked against a hash.
pub struct Pending {
    /// Where the answer comes from and is remembered.
    users: Arc<Users>,
    /// Whose password it may be; `None` if the answer is no already, and only the time it takes to
    /// say so must not differ.
    user: Option<usize>,
    /// The password.
    password: Vec<u8>,
    /// The digest under which it is remembered that they are wrong.
    refusal: u128,
    /// What is to be done if it is right,
    path: Vec<u8>,
    /// and with which right.
    right: Right,
}

impl Pending {
    /// Checks the password. Takes as long as its hash was made to take, up to seconds.
    ///
    /// Never answers [`Verdict::Verify`].
    #[must_use]
    pub fn run(self, memory: &mut CheckMemory) -> Verdict {
        memory.reserve(self.users.blocks());
        if self.users.verify(self.user, &self.password, memory, Instant::now) {
            self.users.decide(self.user, &self.path, self.right)
        } else {
            self.users.refuse(self.refusal);
            Verdict::Wrong
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}
