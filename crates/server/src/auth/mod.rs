//! Access rules: users, the paths they may read and write, and Basic authentication.
//!
//! The rules are those of the command line, in the syntax of dufs. A hashed password is meant to be
//! slow to check, tens of milliseconds, in which one thread could have answered thousands of
//! requests; so the check is returned as [`Pending`] work for another thread, and its result is
//! remembered, right or wrong, so that a client does not wait again for each request.

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
/// It is cheap to clone: all clones share what they remember about passwords that were right.
#[derive(Clone, Default)]
pub struct Access {
    /// The users that the rules name, and the rights of everyone.
    users: Arc<Users>,
}

impl Access {
    /// Reads rules such as `alice:secret@/:rw` or `@/public,/music:ro`.
    ///
    /// A rule is an account, an `@`, and paths separated by commas, each of which begins with `/`
    /// and may end in `:ro` (the default) or `:rw`. The account is a name and a password with a
    /// colon between them, and nothing at all for everyone. The password is plain, or a hash that
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

    /// Returns whether there are no rules. Then no password is needed, and every right is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Returns whether the rules name any user.
    #[must_use]
    pub fn has_users(&self) -> bool {
        !self.users.names().is_empty()
    }

    /// Returns whether a client without a password may write to any path.
    #[must_use]
    pub fn lets_anyone_write(&self) -> bool {
        self.is_empty() || self.users.lets_anyone_write()
    }

    /// Returns the verdict on a request with this `Authorization` field for this path.
    ///
    /// The path is decoded, relative to the root, without a slash at its beginning. The longest
    /// path of a user's rule decides; a user also has the rights of everyone. Wrong credentials
    /// are refused even for paths that need none, so that a user learns of a mistyped password;
    /// fields of another scheme than Basic count as no credentials.
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

    /// Returns whether this user, or everyone for `None`, has a right on this path.
    ///
    /// The user must be one that [`check`] has authenticated.
    ///
    /// [`check`]: Self::check
    #[must_use]
    pub fn can(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.is_empty() || self.users.can(user, path, right)
    }

    /// Returns whether this user may see the entry at this path: the user may read it, or it is a
    /// folder on the way to something that the user may read.
    #[must_use]
    pub fn may_know(&self, user: Option<&str>, path: &[u8], is_folder: bool) -> bool {
        self.can(user, path, Right::Read) || (is_folder && self.users.leads(user, path))
    }

    /// Returns whether this user, or everyone, has a right on this path and on everything below
    /// it.
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
