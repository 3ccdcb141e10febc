//! Access rules: users, the paths they may read and write, and Basic authentication.
//!
//! The rules are those of the command line, in the syntax of dufs. Checking a hashed password is
//! slow by design: it takes tens of milliseconds, in which one thread could answer thousands of
//! requests. So the check is returned as [`PendingCheck`] for another thread, and its result is
//! remembered, right or wrong, so that a client waits only once.

pub(crate) mod access;
pub(crate) mod hosts;
pub(crate) mod passwords;
mod secret;
#[cfg(test)]
mod tests;
mod users;

use std::fmt;
use std::sync::Arc;

use underpass_protocol::auth::{AccessRules, RequestCredentials};
pub use underpass_protocol::auth::{CHALLENGE, Right, RuleError, RuleFault};
use underpass_protocol::request::ClientNet;

pub use secret::CheckMemory;
pub use users::{AccessDecision, PendingCheck};
use users::{Account, Users};

/// The rules about users and paths.
///
/// Cloning is cheap: all clones share the record of verified passwords.
#[derive(Clone, Default)]
pub struct Access {
    /// The users that the rules name, and the rights of everyone.
    users: Arc<Users>,
}

impl Access {
    /// Reads rules such as `alice:secret@/:rw`, as [`AccessRules::parse`] describes them. A
    /// password may be a hash that begins with `$6$` (sha512-crypt) or `$argon2`.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for the first rule that cannot be read; it never contains a password.
    ///
    /// [`AccessRules::parse`]: underpass_protocol::auth::AccessRules::parse
    pub fn parse(rules: &[String]) -> Result<Self, RuleError> {
        Users::parse(rules).map(|users| Self { users: Arc::new(users) })
    }

    /// Returns whether there are no rules. Then no password is needed, and every right is granted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules().is_empty()
    }

    /// Returns whether the rules name any user.
    pub(crate) fn has_users(&self) -> bool {
        self.rules().names().next().is_some()
    }

    /// Returns whether a client without a password may write to any path.
    #[must_use]
    pub fn allows_anonymous_writes(&self) -> bool {
        self.is_empty() || self.rules().allows_anonymous_writes()
    }

    /// Returns the verdict on a request with this `Authorization` field for this path. A verified
    /// password is remembered together with the client that sent it.
    ///
    /// The path is decoded, relative to the root, without a slash at its beginning. Wrong
    /// credentials are refused even for paths that need none, so that a user learns of a mistyped
    /// password; fields of another scheme than Basic count as no credentials.
    #[must_use]
    pub fn check(
        &self,
        authorization: Option<&[u8]>,
        client: ClientNet,
        path: &[u8],
        right: Right,
    ) -> AccessDecision {
        if self.is_empty() {
            return AccessDecision::Allowed { user: None };
        }
        match authorization.map_or(RequestCredentials::None, RequestCredentials::parse) {
            RequestCredentials::None => self.users.decide(None, path, right),
            RequestCredentials::Malformed => AccessDecision::Challenge,
            RequestCredentials::Given { user, password } => {
                self.users.check(&self.users, (&user, password), client, path, right)
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
        self.is_empty() || self.rules().can(user, path, right)
    }

    /// Returns whether this user may see the entry at this path: the user may read it, or it is a
    /// folder on the way to something that the user may read.
    pub(crate) fn may_know(&self, user: Option<&str>, path: &[u8], is_folder: bool) -> bool {
        self.can(user, path, Right::Read) || (is_folder && self.rules().leads(user, path))
    }

    /// Returns whether this user, or everyone, has a right on this path and on everything below
    /// it.
    #[must_use]
    pub fn can_all(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.is_empty() || self.rules().can_all(user, path, right)
    }

    /// Returns whether two names in one folder have the same rights for every client.
    pub(crate) fn treats_alike(&self, path: &[u8], other: &[u8]) -> bool {
        !self.rules().names_path(path) && !self.rules().names_path(other)
    }

    /// Returns whether both have the same users with the same passwords: they are clones of one
    /// value, or neither has rules.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.users, &other.users) || (self.is_empty() && other.is_empty())
    }

    fn rules(&self) -> &AccessRules<Account> {
        &self.users.rules
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("users", &self.rules().names().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
