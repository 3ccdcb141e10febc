//! Which locks are granted, and which changes they prevent; and the meaning of an `If` field.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)]

use std::ops::Range;
use std::time::{Duration, Instant};

use underpass_dav::condition::{IfField, State};
use underpass_dav::locks::{
    Lock, LockError, LockTable, MAX_COVERING, MAX_TIMEOUT, Reach, Submitted, timeout, token,
};

fn lock(token: &str, root: &str, is_deep: bool, is_exclusive: bool, now: Instant) -> Lock {
    Lock {
        token: token.into(),
        root: root.as_bytes().into(),
        link: None,
        is_folder: is_deep,
        is_deep,
        is_exclusive,
        owner: "".into(),
        user: None,
        realm: 0,
        client: "one".into(),
        expires: now + Duration::from_secs(60),
    }
}

const WRITE: Reach = Reach { names: false, is_deep: false };
const CREATE: Reach = Reach { names: true, is_deep: false };
const REMOVE: Reach = Reach { names: true, is_deep: true };

fn with<'a>(tokens: &'a [&'a str]) -> Submitted<'a> {
    Submitted { tokens, user: None, realm: 0 }
}

#[test]
fn exclusive_locks_exclude_and_shared_ones_do_not() {
    let now = Instant::now();
    let mut table = LockTable::default();
    let mut add = |token: &str, root: &str, is_deep, is_exclusive| match table
        .add(lock(token, root, is_deep, is_exclusive, now), now)
    {
        Ok(()) => "given".to_owned(),
        Err(LockError::Conflict(other)) => other.token.to_string(),
        Err(error) => format!("{error:?}"),
    };
    assert_eq!(add("a", "x/y", false, true), "given");
    assert_eq!(add("b", "x/y", false, true), "a");
    assert_eq!(add("b", "x/y", false, false), "a");
    assert_eq!(add("b", "x", true, true), "a", "a deep lock meets those below");
    assert_eq!(add("b", "x", true, false), "a");
    assert_eq!(add("b", "", true, true), "a");
    assert_eq!(add("b", "x", false, true), "given");
    assert_eq!(add("c", "x/yy", false, true), "given", "whole names only");
    assert_eq!(add("d", "z", true, false), "given");
    assert_eq!(add("e", "z", true, false), "given");
    assert_eq!(add("f", "z/deep/er", false, true), "d", "a deep lock holds below");
    assert_eq!(add("f", "z/deep/er", false, false), "given");
}

#[test]
fn no_lock_is_granted_on_a_changing_path() {
    let now = Instant::now();
    let mut table = LockTable::default();
    let add = |table: &mut LockTable, root: &str, is_deep| {
        !matches!(table.add(lock(root, root, is_deep, false, now), now), Err(LockError::Changing))
    };
    let may = |table: &mut LockTable, root: &str| add(table, root, false);
    for path in ["a/b", "a/b", "c"] {
        table.begin_change(path.as_bytes());
    }
    assert!(!may(&mut table, "a/b") && !may(&mut table, "a/b/x") && !may(&mut table, "c"));
    assert!(may(&mut table, "a/bb"));
    // Neither does a folder whose names or contents are changing.
    assert!(!may(&mut table, "a") && !may(&mut table, "") && !add(&mut table, "a", true));
    table.begin_change(b"d/deep/er");
    assert!(may(&mut table, "d") && !add(&mut table, "d", true) && !may(&mut table, "d/deep"));
    table.end_change(b"a/b");
    assert!(!may(&mut table, "a/b"), "there is another change");
    table.end_change(b"a/b");
    assert!(may(&mut table, "a/b") && !may(&mut table, "c"));
}

#[test]
fn changes_need_a_token_at_each_locked_place() {
    let now = Instant::now();
    let mut table = LockTable::default();
    for one in [
        lock("flat", "a", false, true, now),
        lock("deep", "b", true, true, now),
        lock("file", "a/x", false, true, now),
        lock("first", "c", true, false, now),
        lock("second", "c", true, false, now),
    ] {
        table.add(one, now).unwrap();
    }
    let meets = |path: &str, reach, tokens: &[&str]| {
        let checked = table.check(path.as_bytes(), reach, with(tokens), now);
        checked.err().map(|lock| lock.token.to_string())
    };
    assert_eq!(meets("a/other", WRITE, &[]), None, "a file in a folder that is locked alone");
    assert_eq!(meets("a/new", CREATE, &[]).as_deref(), Some("flat"));
    assert_eq!(meets("a/new", CREATE, &["flat"]), None);
    assert_eq!(meets("a/b/new", CREATE, &[]), None);
    assert_eq!(meets("b/deep/er", WRITE, &[]).as_deref(), Some("deep"));
    assert_eq!(meets("b/deep/er", CREATE, &["flat", "deep"]), None);
    assert_eq!(meets("bb", CREATE, &[]), None);
    assert_eq!(meets("a", REMOVE, &["flat"]).as_deref(), Some("file"));
    assert_eq!(meets("a", REMOVE, &["flat", "file"]), None);
    assert_eq!(meets("", REMOVE, &["flat", "file", "deep"]).as_deref(), Some("first"));
    assert_eq!(meets("c/x", WRITE, &["second"]), None, "one of those that are shared");
    assert_eq!(meets("c/x", WRITE, &["flat"]).as_deref(), Some("first"));
}

#[test]
fn locks_belong_to_their_user_and_end() {
    let now = Instant::now();
    let mut table = LockTable::default();
    let own = Lock { user: Some("alice".into()), ..lock("t", "a", false, true, now) };
    table.add(own, now).unwrap();
    let alice = Submitted { tokens: &["t"], user: Some("alice"), realm: 0 };
    let bob = Submitted { tokens: &["t"], user: Some("bob"), realm: 0 };
    assert!(table.check(b"a", WRITE, alice, now).is_ok());
    assert!(table.check(b"a", WRITE, bob, now).is_err());
    assert!(table.check(b"a", WRITE, with(&["t"]), now).is_err());
    assert!(!table.remove(b"a", bob, now) && !table.remove(b"b", alice, now));
    let later = now + Duration::from_secs(50);
    assert!(table.refresh(b"a", bob, MAX_TIMEOUT, later).is_none());
    assert!(table.refresh(b"a", alice, Duration::from_secs(20), later).is_some());
    assert!(table.check(b"a", WRITE, with(&[]), now + Duration::from_secs(69)).is_err());
    assert!(table.check(b"a", WRITE, with(&[]), now + Duration::from_secs(70)).is_ok());
    assert!(table.remove(b"a", alice, now) && table.is_empty());
    for (token, root) in [("1", "a"), ("2", "a/b"), ("3", "ab")] {
        table.add(lock(token, root, false, true, now), now).unwrap();
    }
    table.forget(b"a");
    assert!(table.covering(b"a/b", now).next().is_none());
    assert!(table.covering(b"ab", now).next().is_some());
}

#[test]
fn a_path_has_a_bounded_number_of_locks() {
    let now = Instant::now();
    let mut table = LockTable::default();
    let mut add = |token: usize, root: &str, now| {
        let one = Lock { client: token.to_string().into(), ..lock("", root, true, false, now) };
        table.add(Lock { token: token.to_string().into(), ..one }, now)
    };
    for token in 0..MAX_COVERING {
        assert!(add(token, if token % 2 == 0 { "a" } else { "a/b" }, now).is_ok());
    }
    for path in ["a/b", "a/b/c"] {
        assert!(matches!(add(MAX_COVERING, path, now), Err(LockError::TooMany)), "{path}");
    }
    assert!(add(MAX_COVERING, "c", now).is_ok());
    assert!(add(0, "a/b", now + MAX_TIMEOUT).is_ok(), "they have ended");
}

#[test]
fn one_client_has_a_bounded_number_of_locks() {
    let now = Instant::now();
    let mut table = LockTable::default();
    let mut add = |number: usize, client: &str, now| {
        let path = format!("{client}/{number}");
        let one = Lock { client: client.into(), ..lock(&path, &path, false, true, now) };
        table.add(one, now).is_ok()
    };
    assert_eq!((0..300).filter(|number| add(*number, "one", now)).count(), 256);
    // A few clients may take one half; of the other, each gets a small share.
    let mut fill = |clients: Range<usize>, each: usize| {
        let others = clients.flat_map(|client| (0..each).map(move |number| (client, number)));
        others.filter(|(client, number)| add(*number, &client.to_string(), now)).count()
    };
    assert_eq!(fill(0..20, 256), 2048 - 256 + 13 * 16);
    assert_eq!(fill(20..140, 17), 2048 - 13 * 16);
    assert!(add(0, "new", now + Duration::from_secs(60)), "the others have ended");
}

#[test]
fn a_timeout_is_bounded() {
    let seconds = |field: Option<&str>| timeout(field.map(str::as_bytes)).as_secs();
    assert_eq!(seconds(Some("Second-600")), 600);
    assert_eq!(seconds(Some("Second-600, Infinite")), 600);
    for field in [None, Some("Infinite"), Some("Infinite, Second-5"), Some("Second-4100000000")] {
        assert_eq!(seconds(field), 3600, "{field:?}");
    }
    assert_eq!((seconds(Some("Second-0")), seconds(Some("Second-x"))), (1, 3600));
    assert_eq!(token([0xff; 16]), "urn:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff");
}

#[test]
fn an_if_field_is_read_as_it_is_written() {
    let field = IfField::parse(b"(<a> [\"x\"]) (Not <b>[W/\"](\"])").unwrap();
    assert_eq!(field.tokens(), ["a", "b"]);
    let states = |list: usize| {
        let conditions = &field.lists()[list].conditions;
        conditions.iter().map(|one| (one.is_not, one.state)).collect::<Vec<_>>()
    };
    assert_eq!(states(0), [(false, State::Locked("a")), (false, State::Etag("\"x\""))]);
    assert_eq!(states(1), [(true, State::Locked("b")), (false, State::Etag("W/\"](\""))]);
    let field = IfField::parse(b"<http://h/a> (<a>) (<b>) </c>(not<d>)").unwrap();
    let resources: Vec<_> = field.lists().iter().map(|list| list.resource).collect();
    assert_eq!(resources, [Some("http://h/a"), Some("http://h/a"), Some("/c")]);
    assert!(field.holds(|resource, state| resource == Some("/c") && state != State::Locked("d")));
    assert!(!field.holds(|_, state| state == State::Locked("d")));
    for bad in [
        "",
        " ",
        "a",
        "()",
        "(",
        "(<a>",
        "(<a)",
        "<a>",
        "(<a>) <b>",
        "<a> <b> (<c>)",
        "(a)",
        "([x])",
        "([\"x\")",
        "([\"x\"x])",
        "(<a>) <b> (<c>)",
        "(Not)",
        "(<a>)x",
    ] {
        assert_eq!(IfField::parse(bad.as_bytes()), None, "{bad}");
    }
    assert!(IfField::parse(&b"(<a>)".repeat(65)).is_none());
}

#[test]
fn a_lock_holds_at_its_link_and_ends_at_both_paths() {
    let now = Instant::now();
    let through = |root: &str, link: &str| {
        let link = Some(link.as_bytes().into());
        Lock { link, ..lock("a", root, true, true, now) }
    };
    let is_held = |table: &LockTable, path: &str| table.covering(path.as_bytes(), now).count() == 1;
    let ends: [fn(&mut LockTable); 4] = [
        |table| table.end("a"),
        |table| table.forget(b"link"),
        |table| table.forget(b"folder"),
        |table| assert!(table.remove(b"folder/x", with(&["a"]), Instant::now())),
    ];
    for end in ends {
        let mut table = LockTable::default();
        table.add(through("folder", "link"), now).unwrap();
        assert!(is_held(&table, "folder/x") && is_held(&table, "link"));
        assert!(table.add(lock("b", "link", false, true, now), now).is_err());
        table.refresh(b"link", with(&["a"]), Duration::from_secs(600), now).unwrap();
        let later = now + Duration::from_secs(300);
        assert_eq!(table.covering(b"folder", later).count(), 1, "refreshed at the other path");
        end(&mut table);
        assert!(table.is_empty() && !is_held(&table, "folder") && !is_held(&table, "link"));
    }
    let mut table = LockTable::default();
    // The link is in the folder that it leads to.
    table.add(through("folder", "folder/link"), now).unwrap();
    assert!(is_held(&table, "folder"));
}
