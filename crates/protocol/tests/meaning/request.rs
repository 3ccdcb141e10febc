use proptest::prelude::*;
use underpass_protocol::request::{
    BodyLength, EMPTY_LINES, Malformed, Method, OwnedRequest, parse, too_long,
};

use crate::rig::{with_fields, with_request};

/// What parsing the bytes says, without the request itself.
fn outcome(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut storage = [httparse::EMPTY_HEADER; 8];
    parse(bytes, &mut storage).map(|parsed| parsed.map(|(_, len)| len))
}

#[test]
fn a_head_is_read_up_to_its_blank_line() {
    let bytes =
        b"HEAD /a%20b?json HTTP/1.1\r\nHost: example.org:5000\r\nRange:  bytes=0- \r\n\r\nGET";
    let mut storage = [httparse::EMPTY_HEADER; 8];
    let (request, len) = parse(bytes, &mut storage).unwrap().unwrap();
    assert_eq!(&bytes[len..], b"GET");
    assert_eq!((request.method, request.verb), (Method::Head, "HEAD"));
    assert_eq!((request.target, request.minor_version), (b"/a%20b?json".as_slice(), 1));
    assert_eq!(request.field("RANGE"), Some(b"bytes=0-".as_slice()));
    assert_eq!(request.field("Rang"), None);
    assert_eq!(request.authority(), Some(b"example.org:5000".as_slice()));
}

#[test]
fn every_beginning_of_a_head_asks_for_more() {
    let head = b"\r\nGET /a HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n";
    for len in 0..head.len() {
        assert_eq!(outcome(&head[..len]), Ok(None), "{len} bytes");
    }
    assert_eq!(outcome(head), Ok(Some(head.len())));
}

#[test]
fn a_later_minor_version_is_read_as_1_1() {
    let head = b"\r\nGET /a?b HTTP/1.2\r\nHost: c\r\nRange: d\r\n\r\n";
    for len in 0..head.len() {
        assert_eq!(outcome(&head[..len]), Ok(None), "{len} bytes");
    }
    let mut storage = [httparse::EMPTY_HEADER; 8];
    let (request, len) = parse(head, &mut storage).unwrap().unwrap();
    assert_eq!((len, request.verb, request.target), (head.len(), "GET", b"/a?b".as_slice()));
    assert_eq!((request.minor_version, request.field("range")), (1, Some(b"d".as_slice())));
    assert!(request.keeps_alive());
}

#[test]
fn ambiguous_requests_are_refused() {
    for (head, refused) in [
        ("GET / HTTP/1.1\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: me@a\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", Malformed::Field),
        ("GET / HTTP/1.1\r\nHost: a\r\n\rX: a\r\n\r\n", Malformed::LineEnd),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", Malformed::LineEnd),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::RequestLine),
        ("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Malformed::LineEnd),
        ("GET /\r\n", Malformed::RequestLine),
        ("G(T / HTTP/1.1\r\n", Malformed::RequestLine),
        ("GET / SPDY/1.1\r\n", Malformed::RequestLine),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}", Malformed::RequestLine), // TLS
        ("GET / HTTP/2.0\r\n", Malformed::Version),
        ("GET / HTTP/3.0\r\n", Malformed::Version),
        ("GET / HTTP/1.2\r\nHost: a\r\nHost: b\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.2\r\nHost : a\r\n\r\n", Malformed::Field),
        ("GET a HTTP/1.2\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET  / HTTP/1.2\r\nHost: a\r\n\r\n", Malformed::RequestLine),
        ("GET / HTTP/1.1\r\nHost: [ab..cd::1]\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: []\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: [v.a]\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a%zz\r\n\r\n", Malformed::Host),
        ("GET / HTTP/1.1\r\nHost: a%4\r\n\r\n", Malformed::Host),
        ("GET http://[]/ HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET http://a%zz/ HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Malformed::Version), // HTTP/2 from the start
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET http:///a HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET http://me@a/ HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
        ("CONNECT /a HTTP/1.1\r\nHost: a\r\n\r\n", Malformed::Target),
    ] {
        assert_eq!(outcome(head.as_bytes()), Err(refused), "{head:?}");
    }
}

#[test]
fn unambiguous_requests_are_accepted() {
    for head in [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a_b.example:\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        "\r\nGET /a?b HTTP/1.9\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: [v1.a:b]:1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: [::ffff:192.0.2.1]\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a%4a\r\n\r\n",
        "GET /\u{e4} HTTP/1.1\r\nHost: a\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET HTTP://a:80 HTTP/1.1\r\nHost: b\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n",
        "M-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(outcome(head.as_bytes()), Ok(Some(head.len())), "{head:?}");
    }
}

#[test]
fn a_few_empty_lines_before_a_request_are_skipped() {
    let request = "GET / HTTP/1.0\r\n\r\n";
    let head = "\r\n".repeat(EMPTY_LINES / 2) + request;
    assert_eq!(outcome(head.as_bytes()), Ok(Some(head.len())));
    let head = "\r\n".repeat(EMPTY_LINES / 2 + 1);
    assert_eq!(outcome(head.as_bytes()), Err(Malformed::RequestLine));
    assert_eq!(outcome((head + request).as_bytes()), Err(Malformed::RequestLine));
}

#[test]
fn more_fields_than_there_is_room_for_are_431() {
    let head = format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(9));
    assert_eq!(outcome(head.as_bytes()).map_err(|refused| refused.status()), Err(431));
}

#[test]
fn a_head_that_never_ends_is_414_or_431() {
    assert_eq!(too_long(b"\r\nGET /aaaaaaa").status(), 414);
    assert_eq!(too_long(b"\r\nGET / HTTP/1.1\r\nA: aaaaa").status(), 431);
}

#[test]
fn the_authority_of_the_target_wins_over_host() {
    let authority = with_request("GET http://other:1/a HTTP/1.1", &[], |request| {
        request.authority().unwrap().to_vec()
    });
    assert_eq!(authority, b"other:1");
}

#[test]
fn the_end_of_the_body_is_certain_or_the_request_refused() {
    use BodyLength::{Chunked, Length, None};
    for (line, fields, expected) in [
        ("GET / HTTP/1.1", &[][..], Ok(None)),
        ("GET / HTTP/1.1", &["Content-Length: 0"], Ok(None)),
        ("PUT / HTTP/1.1", &["Content-Length: 5"], Ok(Length(5))),
        ("PUT / HTTP/1.1", &["Content-Length: 18446744073709551615"], Ok(Length(u64::MAX))),
        ("PUT / HTTP/1.1", &["Content-Length: 5", "content-length: 5"], Ok(Length(5))),
        ("PUT / HTTP/1.1", &["Content-Length: 5, 05"], Ok(Length(5))),
        ("PUT / HTTP/1.0", &["Content-Length: 5"], Ok(Length(5))),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: Chunked"], Ok(Chunked)),
        ("PUT / HTTP/1.1", &["Content-Length: 5", "Content-Length: 6"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 5, 6"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 5,"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length:"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: +5"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: -5"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 0x5"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 5 5"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 18446744073709551616"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 5", "Transfer-Encoding: chunked"], Err(400)),
        ("PUT / HTTP/1.1", &["Content-Length: 0", "Transfer-Encoding: chunked"], Err(400)),
        ("PUT / HTTP/1.0", &["Transfer-Encoding: chunked"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding:"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: gzip"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: identity"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: xchunked"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: chunked, gzip"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: chunked, chunked"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], Err(400)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: gzip, chunked"], Err(501)),
        ("PUT / HTTP/1.1", &["Transfer-Encoding: gzip", "Transfer-Encoding: chunked"], Err(501)),
    ] {
        let body = with_request(line, fields, |request| request.body());
        assert_eq!(body.map_err(|refused| refused.status()), expected, "{line} {fields:?}");
    }
}

#[test]
fn a_connection_stays_open_as_its_version_has_it() {
    for (version, fields, expected) in [
        ("1.1", &[][..], true),
        ("1.0", &[], false),
        ("1.1", &["Connection: close"], false),
        ("1.1", &["Connection: Upgrade, CLOSE"], false),
        ("1.1", &["Connection: Upgrade", "Connection: close"], false),
        ("1.1", &["Connection: closer"], true),
        ("1.0", &["Connection: Keep-Alive"], true),
        ("1.0", &["Connection: keep-alive, close"], false),
    ] {
        let line = format!("GET / HTTP/{version}");
        let keeps_alive = with_request(&line, fields, |request| request.keeps_alive());
        assert_eq!(keeps_alive, expected, "{version} {fields:?}");
    }
}

#[test]
fn only_a_client_that_asks_waits_for_100() {
    for (fields, expected) in [
        (&["Expect: 100-Continue"][..], true),
        (&["Expect: 100-continue, foo"], true),
        (&["Expect: foo", "Expect: bar=\"a\" ,100-continue"], true),
        (&["Expect: foo, 100-continues"], false),
        (&[], false),
    ] {
        let expects = with_fields(fields, |request| request.expects_continue());
        assert_eq!(expects, expected, "{fields:?}");
    }
    assert!(!with_request("PUT / HTTP/1.0", &["Expect: 100-continue"], |request| {
        request.expects_continue()
    }));
}

#[test]
fn a_single_field_is_one_that_is_not_repeated() {
    let single = |fields: &[&str]| with_fields(fields, |r| r.single("range").map(<[u8]>::to_vec));
    assert_eq!(single(&["Range: a"]), Some(b"a".to_vec()));
    assert_eq!(single(&["Range: a", "Range: a"]), None);
    assert_eq!(single(&[]), None);
}

proptest! {
    #[test]
    fn no_bytes_confuse_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut storage = [httparse::EMPTY_HEADER; 8];
        if let Ok(Some((request, len))) = parse(&bytes, &mut storage) {
            prop_assert!(len <= bytes.len());
            let _ = (request.body(), request.keeps_alive());
        }
    }

    #[test]
    fn a_refused_beginning_is_never_accepted_later(
        line in "(GET|HEAD|P.T) [/*a-z:. ]{1,8} HTTP/1.[0-2]", fields in "([A-Z]{1,3}:? ?[a-z\\r\\n]{0,4}\r\n){0,4}",
    ) {
        let head = format!("{line}\r\n{fields}\r\n");
        let refused = (0..head.len()).find(|&len| outcome(&head.as_bytes()[..len]).is_err());
        if refused.is_some() {
            prop_assert!(outcome(head.as_bytes()).is_err());
        }
    }
}

#[test]
fn a_request_that_is_kept_is_the_one_that_was_read() {
    let head = b"PUT /a?b HTTP/1.0\r\nHost: h\r\nA: 1\r\nB:\r\na: 2\r\n\r\nrest";
    let mut storage = [httparse::EMPTY_HEADER; 8];
    let (request, _) = parse(head, &mut storage).unwrap().unwrap();
    let kept = OwnedRequest::new(&request);
    let mut fields = Vec::new();
    let again = kept.request(&mut fields);
    assert_eq!((again.method, again.verb, again.target), (request.method, "PUT", &b"/a?b"[..]));
    assert_eq!((again.minor_version, again.field("b")), (0, Some(&b""[..])));
    assert_eq!(again.fields("a").collect::<Vec<_>>(), [b"1", b"2"]);
    assert_eq!(again.authority(), Some(&b"h"[..]));
}
