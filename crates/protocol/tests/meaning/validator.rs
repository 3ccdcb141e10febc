use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;
use underpass_protocol::response::validator::{
    etag, is_strong, last_modified, parse_date, push_date,
};
use underpass_protocol::{FileTime, FileVersion};

use crate::rig::{NOVEMBER, at};

fn time(seconds: i64, nanoseconds: u32) -> FileTime {
    FileTime { seconds, nanoseconds }
}

#[test]
fn every_fact_that_changes_with_the_contents_changes_the_tag() {
    let tag = |change: fn(&mut FileVersion)| {
        let (modified, changed) = (time(3, 4), time(5, 6));
        let mut version = FileVersion { device: 9, inode: 1, size: 2, modified, changed, links: 1 };
        change(&mut version);
        etag(&version)
    };
    assert_eq!(tag(|_| ()), "\"1-2-3-4-5-6\"");
    assert_eq!(tag(|version| version.inode = 0xabc), "\"abc-2-3-4-5-6\"");
    assert_eq!(tag(|version| version.size = 0), "\"1-0-3-4-5-6\"");
    assert_eq!(tag(|version| version.modified.seconds = -1), "\"1-2-ffffffffffffffff-4-5-6\"");
    assert_eq!(tag(|version| version.modified.nanoseconds = 5), "\"1-2-3-5-5-6\"");
    assert_eq!(tag(|version| version.changed.seconds = 6), "\"1-2-3-4-6-6\"");
    assert_eq!(tag(|version| version.changed.nanoseconds = 7), "\"1-2-3-4-5-7\"");
}

#[test]
fn strong_tags_are_quoted_and_without_a_mark() {
    for tag in ["\"\"", "\"a\"", "\"W/\"", "\"\u{e4}\""] {
        assert!(is_strong(tag.as_bytes()), "{tag}");
    }
    for tag in ["", "\"", "a", "W/\"a\"", "\"a b\"", "\"a\"b\"", "\"a", "\"\u{7f}\""] {
        assert!(!is_strong(tag.as_bytes()), "{tag}");
    }
}

#[test]
fn a_file_is_never_younger_than_the_response() {
    assert_eq!(last_modified(at(5), at(9)), Some(at(5)));
    assert_eq!(last_modified(at(15), at(9)), Some(at(9)));
    assert_eq!(last_modified(at(5) + Duration::from_millis(999), at(9)), Some(at(5)));
}

#[test]
fn times_outside_of_http_dates_are_omitted() {
    let early = UNIX_EPOCH - Duration::from_secs(1);
    let late = at(253_402_300_800);
    assert_eq!(last_modified(early, at(9)), None);
    assert_eq!(last_modified(late, late), None);
    let mut out = Vec::new();
    push_date(&mut out, early);
    push_date(&mut out, late);
    assert_eq!(out, b"");
    push_date(&mut out, at(253_402_300_799));
    assert_eq!(out, b"Fri, 31 Dec 9999 23:59:59 GMT");
}

#[test]
fn a_date_is_read_in_three_formats() {
    for date in [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
    ] {
        assert_eq!(parse_date(date.as_bytes()), Some(at(NOVEMBER)), "{date}");
    }
    for date in [
        "",
        "0",
        "Sun, 06 Nov 1994",
        "Sun, 31 Feb 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 +0100",
        "\u{e4}",
    ] {
        assert_eq!(parse_date(date.as_bytes()), None, "{date}");
    }
}

proptest! {
    #[test]
    fn every_file_has_a_strong_tag(inode: u64, size in 0_u64.., times: [i64; 2], fractions: [u32; 2]) {
        let [modified, changed] = [0, 1].map(|at| time(times[at], fractions[at]));
        let tag = etag(&FileVersion { device: 1, inode, size, modified, changed, links: 1 });
        prop_assert!(is_strong(tag.as_bytes()), "{}", tag);
    }

    #[test]
    fn a_date_is_read_as_it_was_written(seconds in 0_u64..253_402_300_800) {
        let mut out = Vec::new();
        push_date(&mut out, at(seconds));
        prop_assert_eq!(out.len(), 29);
        prop_assert_eq!(parse_date(&out), Some(at(seconds)));
    }
}
