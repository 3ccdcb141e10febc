//! Access rules, the rights that they give, and the credentials of requests.
//!
//! This module parses and decides. It checks no password: checking one, against a hash where the
//! rule has one, and remembering the result are up to the caller.

mod basic;
mod grants;
mod hash_kind;
mod rule_error;
mod rules;

pub use basic::{MAX_PASSWORD, RequestCredentials};
pub use grants::Right;
pub use hash_kind::HashKind;
pub use rule_error::{RuleError, RuleFault};
pub use rules::{AccessRules, Decision};

/// The value of `WWW-Authenticate` in a response with status 401.
///
/// The charset tells the client to send names and passwords in UTF-8 (RFC 7617, section 2.1).
pub const CHALLENGE: &str = "Basic realm=\"underpass\", charset=\"UTF-8\"";
