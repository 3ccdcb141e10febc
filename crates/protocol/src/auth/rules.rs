//! The rules of the command line, in the syntax of dufs, and what they allow.

use std::collections::HashMap;
use std::sync::Arc;

use super::grants::{Grants, Right};
use super::hash_kind::HashKind;
use super::rule_error::{RuleError, RuleFault};

/// The rules about users and paths. `S` is what the caller keeps of each user's password.
#[derive(Debug)]
pub struct AccessRules<S> {
    /// The rights of everyone.
    everyone: Grants,
    /// The users with a name.
    users: Vec<NamedUser<S>>,
    /// The position of each name in the list.
    by_name: HashMap<Arc<str>, usize>,
}

/// A user with a name.
#[derive(Debug)]
struct NamedUser<S> {
    name: Arc<str>,
    secret: S,
    grants: Grants,
}

/// The decision on a request whose user is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is allowed.
    Allowed,
    /// The client must log in.
    Challenge,
    /// The user lacks the right, or no client has it.
    Forbidden,
    /// The client may read something below the path, but not the path itself: it may see only the
    /// names that lead there.
    Partial,
}

impl<S> Default for AccessRules<S> {
    /// Returns no rules.
    fn default() -> Self {
        Self { everyone: Grants::default(), users: Vec::new(), by_name: HashMap::new() }
    }
}

impl<S> AccessRules<S> {
    /// Reads rules such as `alice:secret@/:rw` or `@/public,/music:ro`; `secret` converts the
    /// password of each user.
    ///
    /// A rule is an account, an `@`, and paths separated by commas, each of which begins with `/`
    /// and may end in `:ro` (the default) or `:rw`. The account is a name and a password with a
    /// colon between them, and nothing at all for everyone. The password is plain, or a hash, which
    /// begins with `$`. Paths are relative to the served folder.
    ///
    /// The account ends at the first `@/`. If a plain password is followed by a second `@/`, it is
    /// not clear which one is meant, and the rule is refused; hashes contain no `@`, so giving the
    /// hash of the password makes any rule clear.
    ///
    /// # Errors
    ///
    /// [`RuleError`] for the first rule that cannot be read; it never contains a password.
    pub fn parse(
        rules: &[String],
        mut secret: impl FnMut(&str) -> Result<S, RuleFault>,
    ) -> Result<Self, RuleError> {
        let mut parsed = Self::default();
        let mut numbers = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let at = |user: Option<&str>, fault| RuleError {
                rule: index + 1,
                user: user.map(|name| name.escape_debug().to_string()),
                fault,
            };
            let (account, paths) = split(rule).map_err(|fault| at(None, fault))?;
            let Some((name, password)) = account else {
                read_paths(paths, &mut parsed.everyone).map_err(|fault| at(None, fault))?;
                continue;
            };
            if let Some(known) = parsed.position(name) {
                return Err(at(Some(name), RuleFault::DuplicateUser { first: numbers[known] }));
            }
            let mut grants = Grants::default();
            let secret = read_paths(paths, &mut grants).and_then(|()| secret(password));
            let secret = secret.map_err(|fault| at(Some(name), fault))?;
            let name: Arc<str> = name.into();
            parsed.by_name.insert(Arc::clone(&name), parsed.users.len());
            parsed.users.push(NamedUser { name, secret, grants });
            numbers.push(index + 1);
        }
        Ok(parsed)
    }

    /// Returns whether there are no rules: they name no user and open nothing to everyone.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.users.is_empty() && self.everyone.is_empty()
    }

    /// Returns whether everyone may write to any path.
    #[must_use]
    pub fn allows_anonymous_writes(&self) -> bool {
        self.everyone.has(Right::Write)
    }

    /// Returns the users' names, in the order of the rules.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.users.iter().map(|user| &user.name)
    }

    /// Returns what is kept of the users' passwords, in the order of the rules.
    pub fn secrets(&self) -> impl Iterator<Item = &S> {
        self.users.iter().map(|user| &user.secret)
    }

    /// Returns the position of the user with this name, if there is one.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the name of the user at this position.
    ///
    /// # Panics
    ///
    /// If [`position`](Self::position) has not returned it.
    #[must_use]
    pub fn name(&self, user: usize) -> &Arc<str> {
        &self.users[user].name
    }

    /// Returns what is kept of the password of the user at this position.
    ///
    /// # Panics
    ///
    /// If [`position`](Self::position) has not returned it.
    #[must_use]
    pub fn secret(&self, user: usize) -> &S {
        &self.users[user].secret
    }

    /// Returns whether this user, or everyone for `None`, has a right on this path. An unknown name
    /// counts as everyone.
    #[must_use]
    pub fn can(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.allows(user.and_then(|name| self.position(name)), path, right)
    }

    /// Returns whether the right covers everything that may lie below the path, too: a longer path
    /// of a rule may give less.
    #[must_use]
    pub fn can_all(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        let user = user.and_then(|name| self.position(name));
        self.beneath(user, path).chain([path]).all(|path| self.allows(user, path, right))
    }

    /// Returns whether this user, or everyone, may read something below the path.
    #[must_use]
    pub fn leads(&self, user: Option<&str>, path: &[u8]) -> bool {
        self.beneath(user.and_then(|name| self.position(name)), path).next().is_some()
    }

    /// Returns whether a rule has this very path, in any case. All others have the same rights as
    /// other names in their folder.
    #[must_use]
    pub fn names_path(&self, path: &[u8]) -> bool {
        self.users.iter().map(|user| &user.grants).chain([&self.everyone]).any(|it| it.names(path))
    }

    /// Returns the decision on a client whose password was right, or that gave none.
    ///
    /// The path is decoded, relative to the root, without a slash at its beginning. The longest
    /// path of a user's rule decides; a user also has the rights of everyone.
    #[must_use]
    pub fn decide(&self, user: Option<usize>, path: &[u8], right: Right) -> Decision {
        if self.allows(user, path, right) {
            Decision::Allowed
        } else if right == Right::Read && self.beneath(user, path).next().is_some() {
            Decision::Partial
        } else if user.is_none() && !self.users.is_empty() {
            Decision::Challenge
        } else {
            Decision::Forbidden
        }
    }

    /// Returns whether a user's own rule or that for everyone allows this.
    fn allows(&self, user: Option<usize>, path: &[u8], right: Right) -> bool {
        let own = user.and_then(|user| self.users[user].grants.right_on(path));
        own.max(self.everyone.right_on(path)) >= Some(right)
    }

    /// Returns the paths below this one in a user's own rule and in that for everyone.
    fn beneath<'u>(
        &'u self,
        user: Option<usize>,
        path: &'u [u8],
    ) -> impl Iterator<Item = &'u [u8]> {
        let own = user.map(|user| &self.users[user].grants);
        own.into_iter().chain([&self.everyone]).flat_map(move |grants| grants.beneath(path))
    }
}

/// A name and a password.
type Account<'r> = (&'r str, &'r str);

/// Splits a rule into its account, `None` for everyone, and its paths.
fn split(rule: &str) -> Result<(Option<Account<'_>>, &str), RuleFault> {
    let (account, paths) = rule.split_once('@').ok_or(RuleFault::NoPaths)?;
    let (account, paths) = match rule.find("@/") {
        Some(at) => (&rule[..at], &rule[at + 1..]),
        // The first path does not begin with a slash: that error is clearer than "no paths".
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

/// Parses `/path:rw,/other`.
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
