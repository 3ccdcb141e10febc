//! A chunked body means the same in whatever pieces it arrives, ends at its last line, and a reader
//! that skips its data finds the same end.

use underpass_protocol::chunked::{BadChunk, Chunked};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x03\x01\x04\x015;x=\"y\"\r\nhello\r\n0\r\na: b\r\nc:\r\n\r\nGET /",
    b"\0\xff\x01\x02A \t; name = value ;b\r\n0123456789\r\n000\r\n\r\n",
    b"\x01\x01\x01\x01ffffffffffffffff\r\na",
    b"\x07\x02\x09\x0b1\r\nx\r\n1\r\ny\r\n0\r\nTrailer: \xe4\t\r\n\r\n",
];

/// The result of reading a body: its data, and where it ended if it did.
type Outcome = Result<(Vec<u8>, Option<usize>), BadChunk>;

/// The lengths of four pieces, used in turn, and a body with what follows it.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let pieces = [0; 4].map(|_: u8| usize::from(input.byte()).max(1));
    let body = input.0;
    let whole = read(body, &[body.len().max(1)]);
    assert_eq!(whole, read(body, &pieces));
    assert_eq!(whole, read(body, &[1]));
    let end = whole.as_ref().map(|(_, end)| *end);
    let end = end.map_err(|error| *error);
    assert_eq!(end, pass(body));
    let skipped = Chunked::default().skip(body);
    assert_eq!(end, skipped.map(|step| step.is_done.then_some(step.consumed)));
    let Ok((data, Some(end))) = whole else { return };
    assert!(data.len() + 5 <= end && body[..end].ends_with(b"\r\n\r\n"));
    // What follows is not read, and no prefix is complete.
    assert_eq!(read(&body[..end], &[end]), Ok((data, Some(end))));
    assert!(matches!(read(&body[..end - 1], &[end]), Ok((_, None))));
}

/// Reads a body that arrives in such pieces.
fn read(body: &[u8], pieces: &[usize]) -> Outcome {
    let mut chunked = Chunked::default();
    let (mut at, mut data) = (0, Vec::new());
    for piece in pieces.iter().cycle() {
        let needed = chunked.needed();
        let bytes = &body[at..body.len().min(at + piece)];
        let step = chunked.step(bytes)?;
        assert!(step.consumed <= bytes.len() && step.data.end <= step.consumed);
        assert!(step.consumed > 0 || bytes.is_empty() || step.is_done);
        // What is certain to be framing neither has data in it nor reaches beyond the end.
        assert!(step.data.is_empty() || step.data.start >= needed);
        assert!(!step.is_done || step.consumed >= needed);
        data.extend_from_slice(&bytes[step.data]);
        at += step.consumed;
        if step.is_done {
            assert_eq!(chunked.needed(), 0);
            return Ok((data, Some(at)));
        }
        if step.consumed == 0 {
            break;
        }
    }
    Ok((data, None))
}

/// The end of the body for a reader that reads the framing a few bytes at a time and skips the
/// data.
fn pass(body: &[u8]) -> Result<Option<usize>, BadChunk> {
    let mut chunked = Chunked::default();
    let mut at = 0;
    loop {
        if let Some(len) = chunked.pass_data() {
            let left = body.len() - at;
            match usize::try_from(len) {
                Ok(len) if len <= left => at += len,
                _ => return Ok(None),
            }
        }
        let needed = chunked.needed();
        assert!(needed > 0, "neither data nor framing");
        let Some(bytes) = body.get(at..at + needed) else {
            return chunked.step(&body[at..]).map(|_| None);
        };
        let step = chunked.step(bytes)?;
        assert!(step.data.is_empty());
        at += step.consumed;
        if step.is_done {
            return Ok(Some(at));
        }
    }
}
