//! Parses the rules of the command line, in the syntax of dufs.

use std::sync::Mutex;

use super::grants::{Grants, Right};
use super::rule_error::{RuleError, RuleFault};
use super::secret::{HashKind, Secret};
use super::users::{User, Users};

/// Parses all rules.
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
            read_paths(paths, users.everyone()).map_err(|fault| at(None, fault))?;
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

/// Splits a rule into its account, `None` for everyone, and its paths.
fn split(rule: &str) -> Result<(Option<Account<'_>>, &str), RuleFault> {
    let (account, paths) = rule.split_once('@').ok_or(RuleFault::NoPaths)?;
    let (account, paths) = match rule.find("@/") {
        Some(at) => (&rule[..at], &rule[at + 1..]),
        // No path begins with a slash: this error is clearer than one about missing paths.
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

/// Creates a user from the parts of a rule.
fn read_user(name: &str, password: &str, paths: &str) -> Result<User, RuleFault> {
    let mut grants = Grants::default();
    read_paths(paths, &mut grants)?;
    let secret = Secret::parse(password)?;
    Ok(User { name: name.into(), secret, grants, verified: Mutex::default() })
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
