//! Ranges lie inside the file, apart from each other, and are few; several of them make a body of
//! the announced length.

#![no_main]

use libfuzzer_sys::fuzz_target;
use underpass_http::multipart::Multipart;
use underpass_http::range::{MAX_PARTS, RangeAnswer, answer};

fuzz_target!(|input: (u64, &[u8])| {
    let (len, value) = input;
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
});
