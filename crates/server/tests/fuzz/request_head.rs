//! Any input is a request with one meaning, the beginning of one, or refused; and a chunked body
//! ends at the same byte in whatever pieces it arrives.

use underpass_protocol::chunked::{BadChunk, Chunked};
use underpass_protocol::request::{BodyLength, Request, parse, too_long};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"GET /a?b HTTP/1.1\r\nHost: a\r\nRange: bytes=0-\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost:a:80\r\nTransfer-Encoding: chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n0\r\na: b\r\n\r\n",
    b"OPTIONS * HTTP/1.1\nHost: [::1]\nContent-Length: 3\nExpect: 100-continue\n\nabc",
];

/// The bytes that arrive on a connection.
pub(crate) fn check(bytes: &[u8]) {
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let _ = too_long(bytes).status();
    let Ok(Some((request, len))) = parse(bytes, &mut storage) else { return };
    assert!(len <= bytes.len());
    check_head(&request);

    // Bytes after the head do not change it, and no prefix of it is a complete head.
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let again = parse(&bytes[..len], &mut storage).unwrap().unwrap();
    assert_eq!((again.0.target, again.1), (request.target, len));
    let mut storage = [httparse::EMPTY_HEADER; 16];
    assert!(parse(&bytes[..len - 1], &mut storage).unwrap().is_none());

    if request.body() == Ok(BodyLength::Chunked) {
        let body = &bytes[len..];
        assert_eq!(end_of(body, 1), end_of(body, body.len().max(1)));
    }
}

/// No part of a head contains what ends it.
fn check_head(request: &Request) {
    let is_clean = |bytes: &[u8]| !bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    assert!(is_clean(request.target) && is_clean(request.verb.as_bytes()));
    assert!(request.minor_version <= 1);
    if request.minor_version == 1 {
        assert_eq!(request.fields("host").count(), 1);
    }
    for name in ["host", "range", "connection", "content-length", "a"] {
        assert!(request.fields(name).all(is_clean));
    }
    if let Ok(BodyLength::Length(len)) = request.body() {
        assert!(len > 0);
    }
    let _ = (request.keeps_alive(), request.expects_continue(), request.authority());
}

/// The end of a chunked body that arrives in pieces of this size, and the length of its data.
fn end_of(body: &[u8], piece: usize) -> Result<Option<(usize, usize)>, BadChunk> {
    let mut chunked = Chunked::default();
    let (mut at, mut data) = (0, 0);
    loop {
        let step = chunked.step(&body[at..body.len().min(at + piece)])?;
        assert!(step.data.end <= step.consumed && step.consumed <= body.len() - at);
        at += step.consumed;
        data += step.data.len();
        match (step.is_done, step.consumed) {
            (true, _) => return Ok(Some((at, data))),
            (false, 0) => return Ok(None),
            _ => {}
        }
    }
}
