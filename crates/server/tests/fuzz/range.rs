//! Ranges lie inside the file, apart from each other, and are few; several of them make a body of
//! the announced length.

use std::ops::Range;

use underpass_protocol::response::multipart::Multipart;
use underpass_protocol::response::range::{MAX_PARTS, RangeAnswer, answer};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\x03\xe8bytes=0-0,-2",
    b"\0\0\0\0\0\0\x03\xe8bytes=10-19,30-39 , 50-",
    b"\xff\xff\xff\xff\xff\xff\xff\xffbytes=18446744073709551614-,0-1",
];

/// A length and the value of a field.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let (len, value) = (input.number(), input.0);
    let ranges = match answer(value, len) {
        RangeAnswer::Whole => return,
        RangeAnswer::Unsatisfiable => return assert!(len > 0),
        RangeAnswer::Part(range) => vec![range],
        RangeAnswer::Parts(ranges) => ranges,
    };
    assert!(!ranges.is_empty() && ranges.len() <= MAX_PARTS);
    for (index, range) in ranges.iter().enumerate() {
        assert!(range.start < range.end && range.end <= len);
        for other in &ranges[..index] {
            assert!(range.end <= other.start || other.end <= range.start);
        }
    }
    let multipart = Multipart::new(&ranges, len, "text/plain; charset=utf-8", "\"tag\"");
    let headers: usize = multipart.parts.iter().map(|(header, _)| header.len()).sum();
    let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let framing = (headers + multipart.closing.len()) as u64;
    assert_eq!(multipart.len(), data.saturating_add(framing));
    check_parts(&multipart, &ranges, len);
}

/// Each part says which range it has, between boundaries that are all the same.
fn check_parts(multipart: &Multipart, ranges: &[Range<u64>], len: u64) {
    assert_eq!(multipart.parts.len(), ranges.len());
    let boundary = &multipart.boundary;
    assert!(boundary.len() == 32 && boundary.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert!(multipart.media_type().ends_with(boundary));
    assert_eq!(multipart.closing, format!("\r\n--{boundary}--\r\n").as_bytes());
    for (index, ((header, part), range)) in multipart.parts.iter().zip(ranges).enumerate() {
        assert_eq!(part, range);
        let break_before = if index == 0 { "" } else { "\r\n" };
        let expected = format!(
            "{break_before}--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Range: bytes {}-{}/{len}\r\n\r\n",
            range.start,
            range.end - 1
        );
        assert_eq!(str::from_utf8(header), Ok(expected.as_str()));
    }
}
