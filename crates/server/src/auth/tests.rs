//! Tests of the access rules.

use std::time::Instant;

use argon2::password_hash::PasswordHasher;
use argon2::{Argon2, Params};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::users::BELIEVED_FOR;
use super::*;

/// `Hello world!`, as `openssl passwd -6 -salt saltstring` hashes it.
const SHA512: &str = "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1";

/// `Hello world!`, as cheap as the format allows.
fn argon2() -> String {
    let params = Params::new(8, 1, 1, None).unwrap();
    Argon2::from(params)
        .hash_password_with_salt(b"Hello world!", b"saltstring")
        .unwrap()
        .to_string()
}

fn access(rules: &[&str]) -> Access {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    Access::parse(&rules).unwrap()
}

fn error(rules: &[&str]) -> RuleError {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    Access::parse(&rules).unwrap_err()
}

fn basic(credentials: impl AsRef<[u8]>) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

/// Returns the verdict in a word, and whether it took the check of a hash.
fn verdict(access: &Access, authorization: &str, path: &str, right: Right) -> (String, bool) {
    let field = (!authorization.is_empty()).then_some(authorization.as_bytes());
    let (verdict, waited) = match access.check(field, ClientNet::of(None), path.as_bytes(), right) {
        AccessDecision::Verify(pending) => (pending.run(&mut CheckMemory::default()), true),
        verdict => (verdict, false),
    };
    let label = match verdict {
        AccessDecision::Allowed { user } => format!("allowed {}", user.as_deref().unwrap_or("-")),
        AccessDecision::Challenge | AccessDecision::Wrong => "challenge".into(),
        AccessDecision::Busy => panic!("that is for the server to say"),
        AccessDecision::Forbidden => "forbidden".into(),
        AccessDecision::Partial { user } => format!("partial {}", user.as_deref().unwrap_or("-")),
        AccessDecision::Verify(_) => panic!("run() never asks to wait again"),
    };
    (label, waited)
}

/// Returns the verdict in a word, and checks that no hash was needed for it.
fn label(access: &Access, credentials: &str, path: &str, right: Right) -> String {
    let field = if credentials.is_empty() { String::new() } else { basic(credentials) };
    let given = (!field.is_empty()).then_some(field.as_bytes());
    if let AccessDecision::Verify(pending) =
        access.check(given, ClientNet::of(None), path.as_bytes(), right)
    {
        assert!(pending.at_once().is_some(), "plain passwords are checked at once");
    }
    verdict(access, &field, path, right).0
}

#[test]
fn without_rules_no_password_is_needed() {
    let access = Access::default();
    assert!(access.is_empty() && Access::parse(&[]).unwrap().is_empty());
    for right in [Right::Read, Right::Write] {
        assert_eq!(label(&access, "", "a/b", right), "allowed -");
        assert_eq!(label(&access, "who:ever", "a/b", right), "allowed -");
        assert!(access.can(None, b"a/b", right));
    }
}

#[test]
fn every_combination_of_rule_user_and_path_has_one_answer() {
    let access =
        access(&["alice:secret@/:rw,/archive:ro", "bob:b:c@@/in:rw,/out", "@/out,/drop:rw"]);
    let table = [
        ("", "", Right::Read, "partial -"),
        ("", "outer", Right::Read, "challenge"),
        ("", "out", Right::Read, "allowed -"),
        ("", "out/x", Right::Read, "allowed -"),
        ("", "out/x", Right::Write, "challenge"),
        ("", "drop/x", Right::Write, "allowed -"),
        ("alice:secret", "", Right::Read, "allowed alice"),
        ("alice:secret", "", Right::Write, "allowed alice"),
        ("alice:secret", "archive/x", Right::Read, "allowed alice"),
        ("alice:secret", "archive/x", Right::Write, "forbidden"),
        ("alice:secret", "archived", Right::Write, "allowed alice"),
        ("alice:secret", "out/x", Right::Write, "allowed alice"),
        ("bob:b:c@", "", Right::Read, "partial bob"),
        ("bob:b:c@", "", Right::Write, "forbidden"),
        ("bob:b:c@", "other", Right::Read, "forbidden"),
        ("bob:b:c@", "in/x", Right::Write, "allowed bob"),
        ("bob:b:c@", "out/x", Right::Write, "forbidden"),
        ("bob:b:c@", "drop/x", Right::Write, "allowed bob"),
        ("bob:b", "in", Right::Read, "challenge"),
        ("bob:", "in", Right::Read, "challenge"),
        ("alice:secret ", "", Right::Read, "challenge"),
        ("alice:secretsecret", "", Right::Read, "challenge"),
        ("Alice:secret", "", Right::Read, "challenge"),
        ("carol:secret", "", Right::Read, "challenge"),
        ("alice:wrong", "out", Right::Read, "challenge"),
    ];
    for (credentials, path, right, expected) in table {
        let answer = label(&access, credentials, path, right);
        assert_eq!(answer, expected, "{credentials} {path} {right:?}");
    }
}

#[test]
fn rights_from_can_agree_with_those_from_check() {
    let access = access(&["alice:a@/x:rw", "@/y"]);
    for path in ["", "x", "x/1", "y", "y/1", "z"] {
        for right in [Right::Read, Right::Write] {
            for (name, credentials) in [(None, ""), (Some("alice"), "alice:a")] {
                let allowed = label(&access, credentials, path, right).starts_with("allowed");
                assert_eq!(access.can(name, path.as_bytes(), right), allowed, "{path} {name:?}");
            }
        }
    }
    assert!(!access.can(Some("nobody"), b"x", Right::Read));
}

#[test]
fn credentials_of_another_scheme_count_as_none() {
    let access = access(&["alice:a@/", "@/open"]);
    assert_eq!(verdict(&access, "Bearer abc", "open", Right::Read).0, "allowed -");
    assert_eq!(verdict(&access, "Bearer abc", "", Right::Read).0, "partial -");
    assert_eq!(verdict(&access, "Basic !", "open", Right::Read).0, "challenge");
}

#[test]
fn no_challenge_without_users() {
    let access = access(&["@/open", "@/more"]);
    assert_eq!(label(&access, "", "more", Right::Read), "allowed -");
    assert_eq!(label(&access, "", "shut", Right::Read), "forbidden");
    assert_eq!(
        label(&access, "a:b", "shut", Right::Read),
        "challenge",
        "the credentials are wrong"
    );
}

#[test]
fn hashed_password_is_checked_once_and_then_remembered() {
    for hash in [SHA512.into(), argon2()] {
        let access = access(&[&format!("alice:{hash}@/:rw,/archive")]);
        let (right, wrong) = (basic("alice:Hello world!"), basic("alice:Hello world"));
        let allowed = "allowed alice".to_owned();
        assert_eq!(verdict(&access, &wrong, "", Right::Read), ("challenge".into(), true));
        assert_eq!(verdict(&access, &right, "", Right::Write), (allowed.clone(), true), "{hash}");
        assert_eq!(verdict(&access, &right, "", Right::Write), (allowed.clone(), false));
        assert_eq!(verdict(&access.clone(), &right, "", Right::Write), (allowed, false));
        let forbidden = ("forbidden".to_owned(), false);
        assert_eq!(verdict(&access, &right, "archive", Right::Write), forbidden);
        assert_eq!(verdict(&access, &wrong, "", Right::Read), ("challenge".into(), false));
        let token = basic([b"alice:Hello world!".as_slice(), b"\xff"].concat());
        assert_eq!(verdict(&access, &token, "", Right::Read), ("challenge".into(), true));
    }
}

#[test]
fn response_times_do_not_reveal_user_names() {
    let access = access(&[&format!("alice:{SHA512}@/"), "bob:plain@/", "@/open"]);
    for credentials in ["alice:x", "bob:x", "carol:x", "\u{fc}:x", ":"] {
        let answer = verdict(&access, &basic(credentials), "open", Right::Read);
        assert_eq!(answer, ("challenge".into(), true), "{credentials}");
        let again = verdict(&access, &basic(credentials), "open", Right::Read);
        assert_eq!(again, ("challenge".into(), false), "{credentials}");
    }
    assert_eq!(label(&access, "bob:plain", "", Right::Read), "allowed bob");
}

#[test]
fn wrong_passwords_cost_the_same_for_every_name() {
    let cheap = SHA512.replace("$6$", "$6$rounds=1000$");
    let access = access(&[
        &format!("alice:{SHA512}@/"),
        &format!("bob:{cheap}@/"),
        &format!("carol:{cheap}@/"),
        &format!("dora:{}@/", argon2()),
        "erik:plain@/",
    ]);
    let users = &access.users;
    let checks = |user: Option<usize>| {
        let own = user.map(|user| users.rules.secret(user));
        let all = own.into_iter().chain(users.decoys(user));
        let mut costs: Vec<_> = all.map(|account| account.secret.cost()).collect();
        costs.sort_unstable();
        costs
    };
    for user in [Some(0), Some(1), Some(2), Some(3), None] {
        assert_eq!(checks(user), [8, 1000, 5000], "{user:?}");
    }
}

#[test]
fn password_verified_for_one_user_does_not_admit_another() {
    let access = access(&[&format!("alice:{SHA512}@/a"), &format!("bob:{}@/b", argon2())]);
    let (alice, bob) = (basic("alice:Hello world!"), basic("bob:Hello world!"));
    assert_eq!(verdict(&access, &alice, "a", Right::Read), ("allowed alice".into(), true));
    assert_eq!(verdict(&access, &bob, "b", Right::Read), ("allowed bob".into(), true));
    assert_eq!(verdict(&access, &bob, "a", Right::Read), ("forbidden".into(), false));
    assert_eq!(verdict(&access, &alice, "a", Right::Read), ("allowed alice".into(), false));
}

#[test]
fn only_a_connection_with_a_verified_password_skips_the_check() {
    for secret in ["plain".to_owned(), argon2()] {
        let access = access(&[&format!("alice:{secret}@/")]);
        let password = if secret == "plain" { "plain" } else { "Hello world!" };
        let field = basic(format!("alice:{password}"));
        let check = |last: u8| {
            let client = ClientNet::of(Some(([192, 0, 2, last], 1).into()));
            access.check(Some(field.as_bytes()), client, b"", Right::Read)
        };
        let AccessDecision::Verify(first) = check(1) else { panic!("it is not known") };
        assert!(matches!(first.run(&mut CheckMemory::default()), AccessDecision::Allowed { .. }));
        assert!(matches!(check(1), AccessDecision::Allowed { .. }));
        let AccessDecision::Verify(second) = check(2) else { panic!("another may guess it") };
        assert!(matches!(second.at_once(), Some(AccessDecision::Allowed { .. })), "without a hash");
        assert!(matches!(check(2), AccessDecision::Allowed { .. }));
        assert!(matches!(check(1), AccessDecision::Allowed { .. }));
    }
}

#[test]
fn a_verified_password_is_checked_again_after_a_while() {
    let access = access(&[&format!("alice:{SHA512}@/")]);
    let long_ago = Instant::now().checked_sub(BELIEVED_FOR).unwrap();
    assert!(access.users.verify(
        Some(0),
        (b"Hello world!", ClientNet::of(None)),
        &mut CheckMemory::default(),
        || { long_ago }
    ));
    let field = basic("alice:Hello world!");
    assert_eq!(verdict(&access, &field, "", Right::Read), ("allowed alice".into(), true));
    assert_eq!(verdict(&access, &field, "", Right::Read), ("allowed alice".into(), false));
}

#[test]
fn many_connections_with_the_same_password_all_get_in() {
    let access = access(&[&format!("alice:{SHA512}@/")]);
    let field = basic("alice:Hello world!");
    let pending: Vec<_> = (0..16)
        .map(|_| {
            match access.check(Some(field.as_bytes()), ClientNet::of(None), b"x", Right::Read) {
                AccessDecision::Verify(pending) => pending,
                other => panic!("not verified yet: {other:?}"),
            }
        })
        .collect();
    let threads: Vec<_> = pending
        .into_iter()
        .map(|pending| std::thread::spawn(move || pending.run(&mut CheckMemory::default())))
        .collect();
    for thread in threads {
        assert!(matches!(thread.join().unwrap(), AccessDecision::Allowed { user: Some(_) }));
    }
}

#[test]
fn hashes_and_unusual_passwords_are_parsed_verbatim() {
    let argon2 = argon2();
    assert!(argon2.contains(','), "the commas of a hash do not separate paths");
    let access = access(&[
        &format!("hash:{argon2}@/x@/y"),
        "mail@example.org:a@b:c$d,e@/",
        "dollar:$6@/",
        "unicode:p\u{e4}ss@/\u{e4}",
    ]);
    let answer = |credentials: &str, path| verdict(&access, &basic(credentials), path, Right::Read);
    assert_eq!(answer("hash:Hello world!", "x@/y").0, "allowed hash");
    assert_eq!(answer("mail@example.org:a@b:c$d,e", "x").0, "allowed mail@example.org");
    assert_eq!(answer("dollar:$6", "x").0, "allowed dollar");
    assert_eq!(answer("unicode:p\u{e4}ss", "\u{e4}/x").0, "allowed unicode");
}

#[test]
fn paths_may_end_in_a_slash_and_contain_colons() {
    let access = access(&["a:b@/x/:rw,/y:z:ro"]);
    assert!(access.can(Some("a"), b"x/1", Right::Write));
    assert!(access.can(Some("a"), b"y:z", Right::Read));
    assert!(!access.can(Some("a"), b"y:z", Right::Write));
}

#[test]
fn faults_of_rules_are_reported_with_their_position() {
    let cut = format!("a:{}@/", &SHA512[..60]);
    let costly = |costs| argon2().replace("m=8,t=1,p=1", costs);
    let costly = |costs| format!("a:{}@/", costly(costs));
    let salted = |salt: &str| format!("a:$6${salt}${}@/", "x".repeat(86));
    let table = [
        ("", RuleFault::NoPaths),
        ("alice", RuleFault::NoPaths),
        ("alice:secret", RuleFault::NoPaths),
        ("@", RuleFault::NoPaths),
        ("alice@/", RuleFault::NoPassword),
        ("alice:@/", RuleFault::NoPassword),
        (":secret@/", RuleFault::NoUser),
        ("a\u{7}:secret@/", RuleFault::NoUser),
        ("a:sec@/ret@/", RuleFault::AmbiguousEnd),
        ("a:secret@x", RuleFault::RelativePath(1)),
        ("a:secret@/x,y", RuleFault::RelativePath(2)),
        ("a:secret@/x,", RuleFault::RelativePath(2)),
        ("a:secret@/x//y", RuleFault::StrangePath(1)),
        ("a:secret@/,/../x:rw", RuleFault::StrangePath(2)),
        ("a:secret@/./x", RuleFault::StrangePath(1)),
        ("a:secret@//", RuleFault::StrangePath(1)),
        ("a:secret@/x:wr", RuleFault::UnknownRight(1)),
        ("a:secret@/x:RW", RuleFault::UnknownRight(1)),
        ("a:$2y$05$abcdefghijklmnopqrstuv@/", RuleFault::UnknownHash),
        ("a:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=@/", RuleFault::UnknownHash),
        ("a:{SHA512-CRYPT}$6$salt$x@/", RuleFault::UnknownHash),
        ("a:$pbkdf2-sha256$29000$salt$x@/", RuleFault::UnknownHash),
        ("a:$P$BabcdefghijklmnopqrstuvwxyzA./@/", RuleFault::UnknownHash),
        ("a:$6$salt@/", RuleFault::BrokenHash),
        ("a:$6$rounds=1$salt$x@/", RuleFault::BrokenHash),
        (&salted("my_salt"), RuleFault::BrokenHash),
        (&salted(""), RuleFault::BrokenHash),
        ("a:$argon2id$v=19$m=8,t=1,p=1$x@/", RuleFault::BrokenHash),
        (&cut, RuleFault::BrokenHash),
        (&costly("m=262145,t=1,p=1"), RuleFault::CostlyHash),
        (&costly("m=262144,t=5,p=1"), RuleFault::CostlyHash),
        (&costly("m=4294967295,t=4294967295,p=1"), RuleFault::CostlyHash),
        (
            &SHA512.replace("$6$", "a:$6$rounds=1000001$").replace("z1", "z1@/"),
            RuleFault::CostlyHash,
        ),
    ];
    for (rule, fault) in table {
        let error = error(&["@/open", rule]);
        assert_eq!((error.rule, error.fault), (2, fault), "{rule}");
        let text = error.to_string();
        assert!(text.starts_with("auth rule 2") && !text.contains('\n'), "{text}");
        assert!(!text.contains("secret") && !text.contains("$salt"), "{text}");
    }
}

#[test]
fn values_without_the_form_of_a_hash_are_plain_passwords() {
    for password in ["$open", "$$x", "pa$$word", "$a b$c", "{x", "{}x", "{a b}c", "x{SHA}y"] {
        let access = access(&[&format!("a:{password}@/")]);
        assert_eq!(label(&access, &format!("a:{password}"), "x", Right::Read), "allowed a");
    }
}

#[test]
fn second_rule_for_a_user_is_refused() {
    let error = error(&["alice:a@/x", "bob:b@/", "alice:a@/y"]);
    assert_eq!(
        error.to_string(),
        "auth rule 3 (user alice): rule 1 is about the same user: \
         list all paths in one rule, separated by commas"
    );
}

#[test]
fn debug_output_hides_passwords() {
    let access = access(&["alice:secret@/"]);
    assert_eq!(format!("{access:?}"), "Access { users: [\"alice\"], .. }");
    let hashed = Access::parse(&[format!("alice:{SHA512}@/")]).unwrap();
    let verdict =
        hashed.check(Some(basic("alice:secret").as_bytes()), ClientNet::of(None), b"", Right::Read);
    assert_eq!(format!("{verdict:?}"), "Verify(Pending { .. })");
}
