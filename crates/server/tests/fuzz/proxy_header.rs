//! A proxy's header has one meaning, and takes no byte of what comes after it.

use underpass_protocol::request::proxy_header::{MAX_BINARY, MAX_LINE, ProxiedClient, parse};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\nGET",
    b"PROXY TCP6 2001:db8::1 ::1 1 2\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc0\0\x02\x02\xdc\x04\x01\xbbGET",
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
];

/// The bytes of a connection.
pub(crate) fn check(data: &[u8]) {
    let whole = parse(data);
    for end in 0..data.len() {
        match (parse(&data[..end]), &whole) {
            // It may go on: with what follows, or with something else.
            (Ok(None), _) => assert!(end < (16 + MAX_BINARY).max(MAX_LINE)),
            (shorter, whole) => assert_eq!(&shorter, whole, "{end}"),
        }
    }
    if let Ok(Some((origin, len))) = whole {
        assert!(len <= data.len() && len >= 15);
        assert_eq!(parse(&data[..len]), Ok(Some((origin, len))));
        assert_eq!(parse(&data[..len - 1]), Ok(None));
        if let ProxiedClient::Client(address) = origin {
            assert_eq!(address.ip(), address.ip().to_canonical());
        }
    }
}
