use proptest::prelude::*;
use underpass_protocol::request::target::{
    Target, TargetError, TargetFault, encode_segment, slash_redirect,
};

/// The path and whether it names a folder, or the status of the refusal.
fn path(target: &[u8], prefix: &str) -> Result<(Vec<u8>, bool), u16> {
    Target::parse(target, prefix.as_bytes())
        .map(|target| (target.path.into_owned(), target.is_folder))
        .map_err(|error| error.status())
}

#[test]
fn a_target_names_bytes() {
    for (target, expected, is_folder) in [
        (&b"/"[..], &b""[..], true),
        (b"/a", b"a", false),
        (b"/a/", b"a", true),
        (b"/a/b?c/d", b"a/b", false),
        (b"/?a", b"", true),
        (b"/a%20b+c", b"a b+c", false),
        (b"/%e4%FF", b"\xe4\xff", false),
        (b"/\xe4", b"\xe4", false),
        (b"/a%0ab%3f%23%25", b"a\nb?#%", false),
        (b"/a\\b", b"a\\b", false),
        (b"/...", b"...", false),
        (b"/.a./..b", b".a./..b", false),
        (b"//a//b", b"a/b", false),
        (b"//a//", b"a", true),
        (b"/./a/./b", b"a/b", false),
        (b"/a/.", b"a", true),
        (b"/%2e/a", b"a", false),
        (b"/a/../b", b"b", false),
        (b"/a/b/../../c", b"c", false),
        (b"/a/b/%2E.", b"a", true),
        (b"/a/..", b"", true),
        (b"/a//../b", b"b", false),
        (b"http://host/a?b", b"a", false),
        (b"HTTPS://host", b"", true),
        (b"http://host?a=b/c", b"", true),
    ] {
        let found = path(target, "");
        assert_eq!(found, Ok((expected.to_vec(), is_folder)), "{}", target.escape_ascii());
    }
}

#[test]
fn a_target_that_no_file_can_have_is_refused_with_the_reason() {
    let malformed = TargetError::Malformed;
    for (target, error) in [
        ("/..", malformed(TargetFault::AboveRoot)),
        ("/../etc/passwd", malformed(TargetFault::AboveRoot)),
        ("/a/../../b", malformed(TargetFault::AboveRoot)),
        ("/%2e%2e/b", malformed(TargetFault::AboveRoot)),
        ("//../b", malformed(TargetFault::AboveRoot)),
        ("/a%00", malformed(TargetFault::Nul)),
        ("/a\0b", malformed(TargetFault::Nul)),
        ("/100%", malformed(TargetFault::Escape)),
        ("/100%2", malformed(TargetFault::Escape)),
        ("/100%zz", malformed(TargetFault::Escape)),
        ("/%+1", malformed(TargetFault::Escape)),
        ("/a#b", malformed(TargetFault::Fragment)),
        ("/a?b#c", malformed(TargetFault::Fragment)),
        ("a", malformed(TargetFault::Form)),
        ("", malformed(TargetFault::Form)),
        ("*", malformed(TargetFault::Form)),
        ("?a", malformed(TargetFault::Form)),
        ("/a%2Fb", TargetError::SlashInName),
        ("/..%2fb", TargetError::SlashInName),
    ] {
        assert_eq!(Target::parse(target.as_bytes(), b""), Err(error), "{target:?}");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn only_paths_below_the_prefix_are_served() {
    for (target, expected) in [
        ("/pre/fix/a", Ok(("a", false))),
        ("/pre/fix/", Ok(("", true))),
        ("/pre/fix", Ok(("", false))), // to be redirected, as a folder without its slash
        ("/pre/fix?a", Ok(("", false))),
        ("/%70re//fix/a/", Ok(("a", true))),
        ("/x/../pre/fix/a", Ok(("a", false))),
        ("/pre/fixed", Err(404)),
        ("/pre", Err(404)),
        ("/", Err(404)),
        ("/pre/fix/../a", Err(404)),
        ("/pre/fix/../../../a", Err(400)),
    ] {
        let expected = expected.map(|(path, is_folder)| (path.as_bytes().to_vec(), is_folder));
        assert_eq!(path(target.as_bytes(), "/pre/fix"), expected, "{target:?}");
    }
}

#[test]
fn a_query_has_keys_with_and_without_values() {
    let target = Target::parse(b"/a?json&&after=a%20b+c%&after=z&empty=&x=1=2", b"").unwrap();
    let query = target.query;
    assert!(query.has("json") && query.has("empty") && query.has("after"));
    assert!(!query.has("jso") && !query.has(""));
    assert_eq!(query.get("after").as_deref(), Some(b"a b c%".as_slice()));
    assert_eq!(query.get("x").as_deref(), Some(b"1=2".as_slice()));
    assert_eq!(query.get("json").as_deref(), Some(b"".as_slice()));
    assert_eq!(query.get("nothing"), None);
    assert_eq!(target.raw_path, b"/a");
}

#[test]
fn a_redirect_to_the_slash_stays_on_this_server() {
    for (raw_path, query, expected) in [
        ("/a/b", "", "./b/"),
        ("/a", "json&x=%20/?", "./a/?json&x=%20/?"),
        ("//evil.example", "", "./evil.example/"),
        ("/\\evil.example", "", "./%5Cevil.example/"),
        ("/foo:bar", "", "./foo:bar/"),
        ("", "", "./"),
        ("/x/a%20b/y/c", "q", "./c/?q"),
        ("/a%20b\u{e4}\"<", "", "./a%20b%C3%A4%22%3C/"),
        ("/a", "\"<\u{e4}", "./a/?%22%3C%C3%A4"),
    ] {
        assert_eq!(slash_redirect(raw_path.as_bytes(), query.as_bytes(), false), expected);
    }
    for (raw_path, expected) in [
        ("/a/b", "./b/"),
        ("/a%20b/c", "../a%20b/c/"),
        ("/x/a%20b/y/c", "../../a%20b/y/c/"),
        ("/a%20b/../c", "./c/"),
    ] {
        assert_eq!(slash_redirect(raw_path.as_bytes(), b"", true), expected);
    }
}

proptest! {
    #[test]
    fn a_path_never_leaves_the_root(
        target in prop::collection::vec(prop_oneof![
            Just("/"), Just("."), Just(".."), Just("%2e"), Just("%2F"), Just("%00"), Just("a"), Just("%"),
            Just("é"), Just("?"),
        ], 0..12),
    ) {
        let target = format!("/{}", target.concat());
        if let Ok(target) = Target::parse(target.as_bytes(), b"") {
            prop_assert!(!target.path.contains(&0));
            let parts = target.path.split(|&byte| byte == b'/');
            prop_assert!(
                target.path.is_empty() || parts.into_iter().all(|part| !matches!(part, b"" | b"." | b".."))
            );
        }
    }

    #[test]
    fn every_name_can_be_linked_and_requested(name in prop::collection::vec(1_u8.., 1..40)) {
        prop_assume!(!name.contains(&b'/') && name != b"." && name != b"..");
        let link = format!("/{}", encode_segment(&name));
        prop_assert_eq!(path(link.as_bytes(), ""), Ok((name, false)));
    }

    #[test]
    fn a_redirect_leads_to_the_folder_that_was_meant(
        raw in "/[a-c%/:\\\\]{1,8}/[a-z0-9:é\\\\]{1,8}", repeats: bool,
    ) {
        let Ok(asked) = Target::parse(raw.as_bytes(), b"") else { return Ok(()) };
        let location = slash_redirect(raw.as_bytes(), b"", repeats);
        let parents = raw.rsplit('/').count() - location.matches("../").count();
        let base: String = raw.split_inclusive('/').take(parents - 1).collect();
        let followed = format!("{base}{}", location.trim_start_matches("../").trim_start_matches("./"));
        let found = Target::parse(followed.as_bytes(), b"").unwrap();
        prop_assert_eq!((found.path, found.is_folder), (asked.path, true));
    }
}
