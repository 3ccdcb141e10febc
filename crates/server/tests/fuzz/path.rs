//! No target leads out of the root, means two files, or is redirected to another server.

use underpass_protocol::request::target::{Target, encode_segment, slash_redirect};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"/a/b/c%20d?x=1&after=%41",
    b"http://a:80/a/b/../%2e%2e//c/",
    b"/a/b/%00%ff%2F;?#",
    b"//a/b\\",
];

/// A target, without and with a prefix.
pub(crate) fn check(bytes: &[u8]) {
    check_below(bytes, b"");
    check_below(bytes, b"/a/b");
}

/// What holds for every target below every prefix.
fn check_below(bytes: &[u8], prefix: &[u8]) {
    let Ok(target) = Target::parse(bytes, prefix) else { return };
    assert!(!target.path.contains(&0));
    let parts = || target.path.split(|&byte| byte == b'/');
    assert!(target.path.is_empty() || parts().all(|part| !matches!(part, b"" | b"." | b"..")));
    for key in ["a", "after", ""] {
        assert_eq!(target.query.has(key), target.query.get(key).is_some());
    }

    // The normalized path means the same.
    let mut link = prefix.to_vec();
    for part in parts() {
        link.push(b'/');
        link.extend_from_slice(encode_segment(part).as_bytes());
    }
    let again = Target::parse(&link, prefix).unwrap();
    assert_eq!(again.path, target.path);

    for repeats in [false, true] {
        let location = slash_redirect(target.raw_path, target.query.raw, repeats);
        let rest = location.trim_start_matches("../");
        let parents = (location.len() - rest.len()) / 3;
        let rest = rest.strip_prefix("./").unwrap_or(rest);
        assert!(location.starts_with('.') && !rest.starts_with('/'));
        assert!(location.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\'));
        if target.raw_path.first() == Some(&b'/') && !target.is_folder {
            let slashes =
                target.raw_path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
            let base = slashes.map(|(at, _)| at).nth(parents).unwrap();
            let followed = [&target.raw_path[..=base], rest.as_bytes()].concat();
            let followed = Target::parse(&followed, prefix).unwrap();
            assert!(followed.is_folder);
            assert_eq!(followed.path, target.path);
        }
    }
}
