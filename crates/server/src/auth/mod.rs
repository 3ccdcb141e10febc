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
mod rule_error;
mod rules;
mod secret;
#[cfg(test)]
mod tests;
mod users;

use std::fmt;
use std::sync::Arc;

use basic::Credentials;
pub use grants::Right;
pub use rule_error::{RuleError, RuleFault};
pub use secret::CheckMemory;
use users::Users;
pub use users::{Pending, Verdict};

/// The value of `WWW-Authenticate` that goes with [`Verdict::Challenge`].
///
/// The charset tells the client to send names and passwords in UTF-8 (RFC 7617, section 2.1).
pub const CHALLENGE: &str = "Basic realm=\"underpass\", charset=\"UTF-8\"";

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
