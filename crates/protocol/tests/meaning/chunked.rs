use proptest::prelude::*;
use underpass_protocol::chunked::{BadChunk, Chunked, MAX_FRAMING};

/// The data of a body that comes in pieces of `piece` bytes, and how many bytes it took.
fn decode(body: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, BadChunk> {
    let mut chunked = Chunked::default();
    let (mut data, mut at) = (Vec::new(), 0);
    loop {
        let bytes = &body[at..body.len().min(at + piece)];
        let step = chunked.step(bytes)?;
        data.extend_from_slice(&bytes[step.data]);
        at += step.consumed;
        if step.is_done {
            return Ok(Some((data, at)));
        }
        if step.consumed == 0 {
            return Ok(None);
        }
    }
}

#[test]
fn a_chunked_body_ends_where_its_last_chunk_does() {
    for (body, data) in [
        ("0\r\n\r\n", ""),
        ("5\r\nhello\r\n0\r\n\r\n", "hello"),
        ("2\r\nhe\r\n03\r\nllo\r\n00\r\n\r\n", "hello"),
        ("A;name=\"v;\"\r\n0123456789\r\n0;a\r\n\r\n", "0123456789"),
        ("5 \t;a\r\n\r\n\r\n0\r\n0\r\n\r\n", "\r\n\r\n0"),
        ("1; a = b\t; c=\"\\\"; \\\\\" ;d\r\nx\r\n0\r\n\r\n", "x"),
        ("0\r\nA:\r\nB-c:\t\u{e4} \r\n\r\n", ""),
        ("0\r\nTrailer: a\r\nOther: b\r\n\r\n", ""),
    ] {
        for piece in 1..=body.len() {
            let with_next = format!("{body}GET /");
            let found = decode(with_next.as_bytes(), piece);
            assert_eq!(found, Ok(Some((data.as_bytes().to_vec(), body.len()))), "{body:?} {piece}");
        }
        for len in 0..body.len() {
            assert_eq!(decode(&body.as_bytes()[..len], 100), Ok(None), "{body:?} {len}");
        }
        let skipped = Chunked::default().skip(format!("{body}GET /").as_bytes()).unwrap();
        assert_eq!((skipped.consumed, skipped.is_done), (body.len(), true));
    }
}

#[test]
fn responses_of_old_servers_are_read() {
    let chunk = format!("1  ;{}\r\nx\r\n", "a".repeat(MAX_FRAMING / 2));
    let body = format!("{chunk}{chunk}{chunk}5  \r\nhello\r\n0 \r\n\r\n");
    assert!(Chunked::default().skip(body.as_bytes()).is_err());
    let skipped = Chunked::of_response().skip(body.as_bytes()).unwrap();
    assert_eq!((skipped.consumed, skipped.is_done), (body.len(), true));
    let long = format!("1;{}\r\nx\r\n0\r\n\r\n", "a".repeat(2 * MAX_FRAMING));
    assert_eq!(Chunked::of_response().skip(long.as_bytes()), Err(BadChunk::TooMuchFraming));
}

#[test]
fn malformed_chunked_bodies_are_refused() {
    for (body, refused) in [
        ("\r\n", BadChunk::Unexpected(b'\r')),
        (";\r\n", BadChunk::Unexpected(b';')),
        (" 5\r\n", BadChunk::Unexpected(b' ')),
        ("-5\r\n", BadChunk::Unexpected(b'-')),
        ("0x5\r\n", BadChunk::Unexpected(b'x')),
        ("5\nhello", BadChunk::Unexpected(b'\n')),
        ("5\r\r", BadChunk::Unexpected(b'\r')),
        ("5;a\nhello", BadChunk::Unexpected(b'\n')),
        ("5;\0", BadChunk::Unexpected(0)),
        ("5\r\nhello0", BadChunk::Unexpected(b'0')),
        ("5\r\nhello\n", BadChunk::Unexpected(b'\n')),
        ("0\r\n\n", BadChunk::Unexpected(b'\n')),
        ("0\r\nA: b\n", BadChunk::Unexpected(b'\n')),
        ("0\r\nA: b\r\r", BadChunk::Unexpected(b'\r')),
        ("5 \r\n", BadChunk::Unexpected(b'\r')),
        ("5 5\r\n", BadChunk::Unexpected(b'5')),
        ("5;\r\n", BadChunk::Unexpected(b'\r')),
        ("5;;a\r\n", BadChunk::Unexpected(b';')),
        ("5;bad[=x\r\n", BadChunk::Unexpected(b'[')),
        ("5;a=\r\n", BadChunk::Unexpected(b'\r')),
        ("5;a \r\n", BadChunk::Unexpected(b'\r')),
        ("5;a b\r\n", BadChunk::Unexpected(b'b')),
        ("5;a=\"b\r\n", BadChunk::Unexpected(b'\r')),
        ("5;a=\"b\"c\r\n", BadChunk::Unexpected(b'c')),
        ("0\r\nA\r\n\r\n", BadChunk::Unexpected(b'\r')),
        ("0\r\n: b\r\n\r\n", BadChunk::Unexpected(b':')),
        ("0\r\nA : b\r\n\r\n", BadChunk::Unexpected(b' ')),
        ("0\r\nA: b\r\n c\r\n\r\n", BadChunk::Unexpected(b' ')),
        ("0\r\n A: b\r\n\r\n", BadChunk::Unexpected(b' ')),
        ("0\r\nA: \0\r\n\r\n", BadChunk::Unexpected(0)),
        ("00000000000000001\r\n", BadChunk::TooLong),
        ("10000000000000000\r\n", BadChunk::TooLong),
    ] {
        assert_eq!(decode(body.as_bytes(), 100), Err(refused), "{body:?}");
    }
}

#[test]
fn the_longest_chunk_is_as_long_as_a_number() {
    assert_eq!(decode(b"ffffffffffffffff\r\nabc", 100), Ok(None));
}

#[test]
fn framing_is_bounded_over_the_whole_body() {
    let long = |len| format!("0;{}\r\n\r\n", "a".repeat(len));
    assert!(matches!(decode(long(MAX_FRAMING - 1).as_bytes(), 1 << 20), Ok(Some(_))));
    assert_eq!(decode(long(MAX_FRAMING).as_bytes(), 1 << 20), Err(BadChunk::TooMuchFraming));
    let many = "1;aaaaaaaaa\r\n.\r\n".repeat(MAX_FRAMING / 10 + 1);
    assert_eq!(decode(many.as_bytes(), 1 << 20), Err(BadChunk::TooMuchFraming));
    let trailer = format!("0\r\n{}", "a: b\r\n".repeat(MAX_FRAMING / 4 + 1));
    assert_eq!(decode(trailer.as_bytes(), 1 << 20), Err(BadChunk::TooMuchFraming));
}

proptest! {
    #[test]
    fn data_comes_out_as_it_went_in(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..10),
        piece in 1_usize..60,
    ) {
        let mut body = Vec::new();
        for chunk in &chunks {
            body.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let len = body.len();
        prop_assert_eq!(decode(&body, piece), Ok(Some((chunks.concat(), len))));
    }

    #[test]
    fn pieces_do_not_change_the_meaning(body in "[0-2af;\r\n]{0,40}", piece in 1_usize..10) {
        prop_assert_eq!(decode(body.as_bytes(), piece), decode(body.as_bytes(), 1000));
    }
}
