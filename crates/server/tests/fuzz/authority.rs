//! A request names one authority, and a page of that server is not foreign to it.

use underpass_protocol::request::origin::is_foreign;
use underpass_protocol::request::target::Target;
use underpass_protocol::request::{Method, parse};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"http://a:80/b/../c?d\na\nhttp://A",
    b"/b\n[::1]:8000\nhttp://[::1]:8000",
    b"HTTPS://%61:443\n\nnull",
    b"https://[v1.a:b]/\n127.0.0.1:\nhttps://[v1.a:b]:443",
];

/// A target, a host and an origin, a line each.
pub(crate) fn check(data: &[u8]) {
    let mut lines = data.splitn(3, |&byte| byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (target, host, origin) = (line(), line(), line());
    let head = |target: &[u8], host: &[u8], origin: &[u8]| {
        let parts =
            [b"GET ", target, b" HTTP/1.1\r\nHost: ", host, b"\r\nOrigin: ", origin, b"\r\n\r\n"];
        parts.concat()
    };
    let bytes = head(target, host, origin);
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let Ok(Some((request, _))) = parse(&bytes, &mut storage) else { return };
    let own = request.authority().unwrap();
    check_authority(own);
    check_authority(request.single("host").unwrap());
    let _ = (is_foreign(&request, false), is_foreign(&request, true));

    // The two forms of a target mean one path (RFC 9112 3.2.2).
    if request.method == Method::Get && request.target[0] != b'/' {
        let scheme = request.target.iter().position(|&byte| byte == b'/').unwrap() + 2;
        let after = scheme + own.len();
        assert_eq!(&request.target[scheme..after], own);
        let rest = &request.target[after..];
        let rest = if rest.first() == Some(&b'/') { rest.to_vec() } else { [b"/", rest].concat() };
        let [long, short] = [request.target, &rest].map(|target| Target::parse(target, b""));
        match (long, short) {
            (Ok(long), Ok(short)) => {
                assert_eq!((long.path, long.is_folder), (short.path, short.is_folder));
                assert_eq!(long.query.raw, short.query.raw);
            }
            (long, short) => assert_eq!(long.err(), short.err()),
        }
    }

    let same = [b"http://", own].concat();
    let bytes = head(request.target, request.single("host").unwrap(), &same);
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let (request, _) = parse(&bytes, &mut storage).unwrap().unwrap();
    assert!(!is_foreign(&request, false) && is_foreign(&request, true));
}

/// A host, and digits if there is a port; nothing that another reader would take for an end of it.
fn check_authority(authority: &[u8]) {
    let is_odd = |byte: &u8| b"/?#@\\\"<>^`{|} \t".contains(byte) || !byte.is_ascii_graphic();
    assert!(!authority.iter().any(is_odd), "{}", authority.escape_ascii());
    let port = match authority {
        [b'[', inside @ ..] => inside.splitn(2, |&byte| byte == b']').nth(1).unwrap(),
        name => {
            assert!(!name.contains(&b'[') && !name.contains(&b']'));
            &name[name.iter().position(|&byte| byte == b':').unwrap_or(name.len())..]
        }
    };
    assert!(port.is_empty() || port[0] == b':' && port[1..].iter().all(u8::is_ascii_digit));
}
