//! Only the name and password of a user are accepted as that user's.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use underpass_protocol::request::ClientNet;
use underpass_server::auth::{Access, AccessDecision, CheckMemory, Right};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"own/a\nBasic YWxpY2U6c2VjcmV0",
    b"own\nbasic \t Ym9iOjpAOg==",
    b"public/x\nBearer YTpi",
    b"\nBasic YWxpY2U6c2VjcmV0 YTpi",
];

const USERS: [(&str, &str); 2] = [("alice", "secret"), ("bob", ":@:")];

/// A path and an `Authorization` field.
pub(crate) fn check(data: &[u8]) {
    let (path, field) = match data.iter().position(|&byte| byte == b'\n') {
        Some(end) => (&data[..end], Some(&data[end + 1..])),
        None => (data, None),
    };
    let access = access();
    for right in [Right::Read, Right::Write] {
        let verdict = match access.check(field, ClientNet::of(None), path, right) {
            AccessDecision::Verify(pending) => pending.run(&mut CheckMemory::default()),
            verdict => verdict,
        };
        match verdict {
            AccessDecision::Allowed { user } => {
                assert!(access.can(user.as_deref(), path, right));
                if let Some(user) = user {
                    assert_is_of(&user, field.unwrap());
                }
            }
            AccessDecision::Partial { user } => {
                // What is beneath may be read, and the path itself may not.
                assert!(!access.can(user.as_deref(), path, right));
                if let Some(user) = user {
                    assert_is_of(&user, field.unwrap());
                }
            }
            AccessDecision::Forbidden => {
                let known = USERS.iter().filter(|(name, _)| is_of(name, field.unwrap()));
                assert_eq!(known.count(), 1, "the user is known");
            }
            AccessDecision::Challenge | AccessDecision::Wrong => {
                assert!(field.is_some() || !access.can(None, path, right));
            }
            verdict => panic!("unexpected verdict: {verdict:?}"),
        }
    }
}

fn access() -> &'static Access {
    static ACCESS: OnceLock<Access> = OnceLock::new();
    ACCESS.get_or_init(|| {
        let [(alice, secret), (bob, colons)] = USERS;
        let rules = [
            format!("{alice}:{secret}@/own:rw,/own/not"),
            format!("{bob}:{colons}@/:rw"),
            "@/public".to_owned(),
        ];
        Access::parse(&rules).unwrap()
    })
}

fn assert_is_of(user: &str, field: &[u8]) {
    assert!(is_of(user, field), "{user}: {}", field.escape_ascii());
}

/// Whether the field is the one that the user sends, but for padding and white space.
fn is_of(user: &str, field: &[u8]) -> bool {
    let password = USERS.iter().find(|(name, _)| *name == user).unwrap().1;
    let token = BASE64_STANDARD_NO_PAD.encode(format!("{user}:{password}"));
    let text = str::from_utf8(field).unwrap_or_default();
    let Some((scheme, rest)) = text.split_at_checked(5) else { return false };
    scheme.eq_ignore_ascii_case("basic") && rest.trim_ascii().trim_end_matches('=') == token
}
