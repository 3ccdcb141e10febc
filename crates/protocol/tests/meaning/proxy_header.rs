use std::net::SocketAddr;

use underpass_protocol::request::proxy_header::{
    BadHeader, MAX_BINARY, MAX_LINE, ProxiedClient, parse,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn client(text: &str) -> ProxiedClient {
    ProxiedClient::Client(text.parse::<SocketAddr>().unwrap())
}

/// A binary header with these bytes after the length.
fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family], &len, rest].concat()
}

#[test]
fn lines_of_version_1_name_the_client() {
    let longest = "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
                   ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), MAX_LINE);
    for (line, origin) in [
        ("PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", client("192.0.2.1:56324")),
        ("PROXY TCP4 255.255.255.255 0.0.0.0 65535 0\r\n", client("255.255.255.255:65535")),
        ("PROXY TCP6 2001:db8::1 ::1 1 2\r\n", client("[2001:db8::1]:1")),
        ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", client("192.0.2.1:1")),
        ("PROXY UNKNOWN\r\n", ProxiedClient::Proxy),
        (longest, ProxiedClient::Proxy),
    ] {
        let bytes = [line.as_bytes(), b"GET / HTTP/1.1\r\n"].concat();
        assert_eq!(parse(&bytes), Ok(Some((origin, line.len()))), "{line}");
        for end in 0..line.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{line} {end}");
        }
    }
}

#[test]
fn malformed_lines_are_refused() {
    let long = format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE - 16 + 1));
    assert_eq!(long.len(), MAX_LINE + 1);
    for line in [
        "PROXY \r\n",
        "PROXY TCP4\r\n",
        "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2 \r\n",
        "PROXY TCP4  192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 +1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 \r\n",
        "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
        "PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.01 192.0.2.2 1 2\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\u{e4}\r\n",
        &long,
    ] {
        assert_eq!(parse(line.as_bytes()), Err(BadHeader::Line), "{line}");
    }
    for start in ["GET / HTTP/1.1\r\n", "P ", "proxy TCP4", "\r\n\r\n\r", "\x16\x03\x01"] {
        assert_eq!(parse(start.as_bytes()), Err(BadHeader::Missing), "{start:?}");
    }
}

#[test]
fn headers_of_version_2_name_the_client() {
    let v4 = [192, 0, 2, 1, 192, 0, 2, 2, 0xdc, 4, 1, 187];
    let mut v6 = [0; 36];
    (v6[0], v6[1], v6[15], v6[32], v6[33]) = (0x20, 1, 1, 0, 80);
    let more = [&v4[..], &[4, 0, 1, 0, 0xff]].concat();
    // As long as nginx takes it.
    let most = [&v4[..], &[0; 4096 - 16 - 12]].concat();
    for (header, origin) in [
        (binary(0x21, 0x11, &v4), client("192.0.2.1:56324")),
        (binary(0x21, 0x11, &more), client("192.0.2.1:56324")),
        (binary(0x21, 0x11, &most), client("192.0.2.1:56324")),
        (binary(0x21, 0x21, &v6), client("[2001::1]:80")),
        (binary(0x20, 0x11, &v4), ProxiedClient::Proxy),
        (binary(0x20, 0, &[]), ProxiedClient::Proxy),
        (binary(0x20, 0x51, &[]), ProxiedClient::Proxy),
        (binary(0x21, 0, &[]), ProxiedClient::Proxy),
        (binary(0x21, 0x31, &[0; 216]), ProxiedClient::Proxy),
        (binary(0x21, 0x12, &v4), ProxiedClient::Proxy),
    ] {
        let bytes = [&header[..], b"\x16\x03\x01"].concat();
        assert_eq!(parse(&bytes), Ok(Some((origin, header.len()))), "{header:?}");
        for end in 0..header.len() {
            assert_eq!(parse(&bytes[..end]), Ok(None), "{header:?} {end}");
        }
    }
}

#[test]
fn malformed_headers_of_version_2_are_refused() {
    for (header, fault) in [
        (binary(0x11, 0x11, &[0; 12]), BadHeader::Version),
        (binary(0x22, 0x11, &[0; 12]), BadHeader::Version),
        (binary(0x21, 0x13, &[0; 12]), BadHeader::Version),
        (binary(0x21, 0x51, &[0; 12]), BadHeader::Version),
        (binary(0x21, 0x11, &[0; 11]), BadHeader::Length),
        (binary(0x21, 0x21, &[0; 35]), BadHeader::Length),
        (binary(0x21, 0x11, &[0; MAX_BINARY + 1]), BadHeader::Length),
    ] {
        assert_eq!(parse(&header), Err(fault), "{header:?}");
    }
    // Refused before all of it has arrived.
    let long = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
    assert_eq!(parse(&long), Err(BadHeader::Length));
}
