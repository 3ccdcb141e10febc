use std::ops::Range;

use proptest::prelude::*;
use underpass_protocol::response::range::{
    MAX_PARTS, RangeAnswer, answer, first_of_request, of_request,
};

use crate::rig::with_fields;

#[test]
fn the_first_range_is_known_before_the_length_as_far_as_it_says() {
    for (value, expected) in [
        ("bytes=0-", Some(0..u64::MAX)),
        ("bytes=5-9, 20-29", Some(5..10)),
        ("bytes= , 7-", Some(7..u64::MAX)),
        ("bytes=-5", Some(0..0)),
        ("bytes=9-5", Some(0..0)),
        ("bytes=18446744073709551615-", Some(0..0)),
        ("bytes=18446744073709551614-99999999999999999999", Some(u64::MAX - 1..u64::MAX)),
        ("bytes=x-", None),
        ("bytes=", None),
        ("pages=0-1", None),
    ] {
        let found = with_fields(&[&format!("Range: {value}")], first_of_request);
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn ranges_of_1000_bytes_are_answered_as_clients_expect() {
    use RangeAnswer::{Part, Parts, Unsatisfiable, Whole};
    for (value, expected) in [
        ("bytes=0-9", Part(0..10)),
        ("bytes=0-0", Part(0..1)),
        ("bytes=0-", Part(0..1000)), // players probe with it
        ("bytes=990-1990", Part(990..1000)),
        ("bytes=999-", Part(999..1000)),
        ("bytes=-1", Part(999..1000)),
        ("bytes=-2000", Part(0..1000)),
        ("bytes=007-008", Part(7..9)),
        ("BYTES=0-9", Part(0..10)),
        ("bytes= 0-9 ", Part(0..10)),
        ("bytes=,0-9,,", Part(0..10)),
        ("bytes=1-18446744073709551615", Part(1..1000)),
        ("bytes=1-99999999999999999999999", Part(1..1000)),
        ("bytes=-99999999999999999999999", Part(0..1000)),
        ("bytes=1000-", Unsatisfiable),
        ("bytes=1000-1001", Unsatisfiable),
        ("bytes=18446744073709551615-", Unsatisfiable),
        ("bytes=99999999999999999999999-", Unsatisfiable),
        ("bytes=99999999999999999999998-99999999999999999999999", Unsatisfiable),
        ("bytes=-0", Unsatisfiable),
        ("bytes=10-1", Unsatisfiable), // the habit of all peers
        ("bytes=2000-,3000-", Unsatisfiable),
        ("bytes=0-6,2000-3000", Part(0..7)),
        ("bytes=10-1,0-6", Part(0..7)),
        ("bytes=0-0,-2", Parts(vec![0..1, 998..1000])),
        ("bytes=-2 , 0-0", Parts(vec![998..1000, 0..1])),
        ("bytes=0-9,10-19", Parts(vec![0..10, 10..20])),
        ("bytes=0-9,2000-,20-29", Parts(vec![0..10, 20..30])),
        ("bytes=0-,0-,0-", Whole),
        ("bytes=0-9,9-10", Whole),
        ("bytes=5-9,100-,0-6", Whole),
        ("lines=0-9", Whole),
        ("bytes", Whole),
        ("bytes=", Whole),
        ("bytes=,", Whole),
        ("bytes=-", Whole),
        ("bytes=a-b", Whole),
        ("bytes=0-9,x", Whole),
        ("bytes=0 - 9", Whole),
        ("bytes =0-9", Whole),
        ("bytes=0-9-10", Whole),
        ("bytes=--5", Whole),
        ("bytes=+0-9", Whole),
        ("0-9", Whole),
        ("", Whole),
    ] {
        assert_eq!(answer(value.as_bytes(), 1000), expected, "{value}");
    }
}

#[test]
fn an_empty_file_is_sent_whole_for_every_range() {
    for value in ["bytes=0-", "bytes=0-0", "bytes=-5", "bytes=5-", "bytes=0-,1-"] {
        assert_eq!(answer(value.as_bytes(), 0), RangeAnswer::Whole, "{value}");
    }
}

#[test]
fn too_many_parts_get_the_whole_file() {
    let value = |count: usize| {
        let specs = (0..count).map(|index| format!("{0}-{0}", index * 2));
        format!("bytes={}", specs.collect::<Vec<_>>().join(","))
    };
    let parts = answer(value(MAX_PARTS).as_bytes(), 1000);
    assert!(matches!(parts, RangeAnswer::Parts(parts) if parts.len() == MAX_PARTS));
    assert_eq!(answer(value(MAX_PARTS + 1).as_bytes(), 1000), RangeAnswer::Whole);
}

#[test]
fn several_range_fields_are_ignored() {
    let asked = |fields: &[&str]| with_fields(fields, |request| of_request(request, 1000));
    assert_eq!(asked(&["Range: bytes=0-9"]), RangeAnswer::Part(0..10));
    assert_eq!(asked(&["Range: bytes=0-9", "Range: bytes=0-9"]), RangeAnswer::Whole);
    assert_eq!(asked(&[]), RangeAnswer::Whole);
}

#[test]
fn ranges_do_not_overflow_at_the_largest_length() {
    let len = u64::MAX;
    assert_eq!(answer(b"bytes=-1", len), RangeAnswer::Part(len - 1..len));
    assert_eq!(answer(b"bytes=0-18446744073709551615", len), RangeAnswer::Part(0..len));
}

/// The ranges of an answer.
fn ranges(answer: RangeAnswer) -> Vec<Range<u64>> {
    match answer {
        RangeAnswer::Part(range) => vec![range],
        RangeAnswer::Parts(ranges) => ranges,
        RangeAnswer::Whole | RangeAnswer::Unsatisfiable => Vec::new(),
    }
}

proptest! {
    #[test]
    fn ranges_lie_in_the_file_and_apart(value in "bytes=([0-9]{0,3}-[0-9]{0,3}, ?){0,6}[0-9]{1,3}-", len in 0_u64..1200) {
        let ranges = ranges(answer(value.as_bytes(), len));
        for (index, range) in ranges.iter().enumerate() {
            prop_assert!(range.start < range.end && range.end <= len);
            for other in &ranges[..index] {
                prop_assert!(range.end <= other.start || other.end <= range.start);
            }
        }
        prop_assert!(ranges.len() <= MAX_PARTS);
        prop_assert!(ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= len);
    }

    #[test]
    fn one_range_is_the_bytes_that_it_names(first in 0_u64..50, last in 0_u64..50, len in 1_u64..50) {
        let value = format!("bytes={first}-{last}");
        let named: Vec<u64> = (0..len).filter(|byte| (first..=last).contains(byte)).collect();
        let found: Vec<u64> = ranges(answer(value.as_bytes(), len)).into_iter().flatten().collect();
        prop_assert_eq!(found, named);
    }

    #[test]
    fn any_range_value_gives_ranges_within_the_file(value in prop::collection::vec(any::<u8>(), 0..60), len: u64) {
        for range in ranges(answer(&value, len)) {
            prop_assert!(range.start < range.end && range.end <= len);
        }
    }
}
