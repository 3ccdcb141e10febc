//! A destination names a path below the root of this server, and the same one as
//! the target of a request would.

use underpass_protocol::request::destination::{BadDestination, Depth, Destination};
use underpass_protocol::request::parse;
use underpass_protocol::request::target::Target;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"a:80\nhttp://A/a/b/c%20d\nT\ninfinity",
    b"a\nhttps://a:443/a/b/../b/\nF\n0",
    b"[::1]:1\n/a/b//c\n\n",
    b"a\nhttp://b/x?y\nt",
    b"a\n./b/../c",
];

/// A host, a destination, and other fields, a line each.
pub(crate) fn check(data: &[u8]) {
    let mut lines = data.splitn(4, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (host, value, overwrite, depth) = (line(), line(), line(), line());
    let mut head = [b"MOVE /from HTTP/1.1\r\nHost: ", host, b"\r\nDestination: ", value].concat();
    for (name, value) in [("Overwrite", overwrite), ("Depth", depth)] {
        if !value.is_empty() {
            head.extend_from_slice(format!("\r\n{name}: ").as_bytes());
            head.extend_from_slice(value);
        }
    }
    head.extend_from_slice(b"\r\n\r\n");
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let Ok(Some((request, _))) = parse(&head, &mut storage) else { return };
    let _ = Depth::read(&request);
    let own = request.authority().unwrap();
    let whole = Destination::read(&request, b"");
    for prefix in [&b""[..], b"/a/b"] {
        match Destination::read(&request, prefix) {
            Ok(found) => check_path(&found, request.single("destination").unwrap(), own, prefix),
            Err(refused) => {
                assert!(matches!(refused.status(), 400 | 502));
                // A prefix can only keep a destination from being one of ours.
                assert!(whole.is_err() || refused == BadDestination::Outside);
            }
        }
    }
}

/// Follows the destination by hand.
fn check_path(found: &Destination, value: &[u8], own: &[u8], prefix: &[u8]) {
    assert!(!found.path.contains(&0) && !value.contains(&b'?') && !value.contains(&b'#'));
    let mut parts = found.path.split(|&byte| byte == b'/');
    assert!(found.path.is_empty() || parts.all(|part| !matches!(part, b"" | b"." | b"..")));
    let joined;
    let path = if value.first() == Some(&b'/') {
        value
    } else if value.first() == Some(&b'.') {
        // Relative to the folder of `/from`.
        joined = [b"/", value].concat();
        &joined
    } else {
        let lower = value.to_ascii_lowercase();
        let (rest, port) = match lower.strip_prefix(b"https://") {
            Some(rest) => (rest, ":443"),
            None => (lower.strip_prefix(b"http://").unwrap(), ":80"),
        };
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let bare = |name: &[u8]| {
            let name = name.to_ascii_lowercase();
            name.strip_suffix(port.as_bytes()).map(<[u8]>::to_vec).unwrap_or(name)
        };
        // A client may name its user, once.
        let authority = &rest[..len];
        let user = authority.iter().position(|&byte| byte == b'@').map_or(0, |at| at + 1);
        let (name, own_name) = (bare(&authority[user..]), bare(own));
        let further = name.strip_prefix(&*own_name).expect("another server");
        let has_port = own.rsplit(|&byte| byte == b']').next().unwrap().contains(&b':');
        assert!(further.is_empty() || (further[0] == b':' && !has_port), "another port");
        &value[value.len() - (rest.len() - len)..]
    };
    let path = if path.is_empty() { b"/" } else { path };
    let target = Target::parse(path, prefix).unwrap();
    assert_eq!((&*target.path, target.is_folder), (found.path.as_slice(), found.is_folder));
}
