//! Whatever rules say, rights grow with the user and with the right, and hold for whole folders; a
//! rule that is refused is reported in one line.

use underpass_server::auth::{Access, Right};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"a/b\nalice:secret@/a:rw,/a/b\n@/public",
    b"a\na:b@/:rw\nc:$6$abc$def@/a",
    b"x/y\n@/x:rw,/x/y:ro\nb:p@@/@/x/y/z:rw",
    b"\na:$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$AAAAAAAAAAAAAAAAAAAAAA@/:ro",
];

/// A path, and rules, a line each.
pub(crate) fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let path = lines.next().unwrap_or_default().trim_matches('/').as_bytes();
    let rules: Vec<String> = lines.map(str::to_owned).collect();
    let access = match Access::parse(&rules) {
        Ok(access) => access,
        Err(error) => {
            assert!((1..=rules.len()).contains(&error.rule));
            let why = error.to_string();
            return assert!(!why.chars().any(char::is_control), "{why:?}");
        }
    };
    assert_eq!(access.is_empty(), rules.is_empty());
    let names = rules.iter().filter_map(|rule| rule.split_once(':')).map(|(name, _)| name);
    let below = [path, b"/b"].concat();
    let below = below.strip_prefix(b"/").unwrap_or(&below);
    for user in names.map(Some).chain([None]) {
        let can = |path, right| access.can(user, path, right);
        let can_all = |path, right| access.can_all(user, path, right);
        for right in [Right::Read, Right::Write] {
            assert!(!access.can(None, path, right) || can(path, right), "everybody may");
            assert!(!can_all(path, right) || can(path, right) && can(below, right));
            assert!(!can_all(path, right) || can_all(below, right));
            assert!(!can_all(b"", right) || can(path, right), "all of it");
        }
        assert!(!can(path, Right::Write) || can(path, Right::Read));
        assert!(!can_all(path, Right::Write) || can_all(path, Right::Read));
    }
}
