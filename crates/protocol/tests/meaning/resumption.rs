use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use underpass_protocol::response::resumption::{ResumableDownload, Resumptions};

use crate::rig::{with_fields, with_request};

/// The length of each version.
const LEN: u64 = 100 << 20;

const CLIENT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

/// The download that a request with these fields, for the file in this version, stands for.
fn download(broken: &Resumptions, fields: &[&str], etag: &str) -> Option<ResumableDownload> {
    with_fields(fields, |request| broken.download(CLIENT, 0, request, etag, LEN))
}

/// Returns whether the response would be appended to a beginning of `"old"` on the same client.
#[track_caller]
fn mixes(broken: &Resumptions, fields: &[&str], etag: &str) -> bool {
    broken.would_mix(&download(broken, fields, etag).unwrap(), Instant::now())
}

/// A client has the beginning of `"old"`.
fn broken_off(fields: &[&str]) -> Resumptions {
    let broken = Resumptions::default();
    broken.broken_off(&download(&broken, fields, "\"old\"").unwrap(), 50 << 20, Instant::now());
    broken
}

#[test]
fn resuming_another_version_is_detected() {
    let broken = broken_off(&[]);
    // Another version may have the same date, and `*` is any.
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    for sent in ["", "If-Match: *"]
        .map(str::to_owned)
        .into_iter()
        .chain(["If-Range", "If-Unmodified-Since"].map(|name| format!("{name}: {date}")))
    {
        let fields = ["Range: bytes=7-", &sent];
        let fields = if sent.is_empty() { &fields[..1] } else { &fields };
        assert!(mixes(&broken, fields, "\"new\""), "{sent}");
    }
    for (fields, etag) in [
        (&["Range: bytes=7-"][..], "\"old\""),
        (&[], "\"new\""),
        (&["Range: bytes=0-"], "\"new\""),
        (&["Range: bytes=7-", "If-Range: \"old\""], "\"new\""),
        (&["Range: bytes=7-", "If-Match: \"new\""], "\"new\""),
        (&["Range: bytes=7-", "User-Agent: another"], "\"new\""),
        (&["Range: bytes=7-", "X-Forwarded-For: 192.0.2.1"], "\"new\""),
    ] {
        assert!(!mixes(&broken, fields, etag), "{fields:?} {etag}");
    }
    let other = with_fields(&["Range: bytes=7-"], |request| {
        let elsewhere = Some(IpAddr::V4(Ipv4Addr::BROADCAST));
        broken.download(elsewhere, 0, request, "\"new\"", LEN).unwrap()
    });
    assert!(!broken.would_mix(&other, Instant::now()));
}

#[test]
fn only_one_part_is_a_download_and_only_one_to_the_end_is_remembered() {
    let broken = Resumptions::default();
    for range in ["bytes=-9", "bytes=1-2,5-", "bytes=5-,8-", "bytes", "lines=1-"] {
        assert_eq!(download(&broken, &[&format!("Range: {range}")], "\"a\""), None, "{range}");
    }
    assert_eq!(download(&broken, &["Range: bytes=1-", "Range: bytes=1-"], "\"a\""), None);
    let head = with_request("HEAD /file HTTP/1.1", &[], |request| {
        broken.download(CLIENT, 0, request, "\"a\"", LEN)
    });
    assert_eq!(head, None);
    let last = format!("bytes=5-{}", LEN - 1);
    for (range, is_to_end) in [("bytes=5-", true), (&last, true), ("bytes=5-9", false)] {
        let download = download(&broken, &[&format!("Range: {range}")], "\"a\"").unwrap();
        assert_eq!(download.is_to_end(), is_to_end, "{range}");
    }
}

#[test]
fn a_short_probe_of_the_new_version_does_not_hide_the_old_part() {
    let look = |arrived: u64| {
        let broken = broken_off(&[]);
        let new = download(&broken, &[], "\"new\"").unwrap();
        broken.broken_off(&new, arrived, Instant::now());
        broken
    };
    // As aria2 does: it asks for all, leaves, and asks for a part.
    let broken = look(130_000);
    for range in ["Range: bytes=4000000-", "Range: bytes=4000000-4999999"] {
        assert!(mixes(&broken, &[range], "\"new\""), "{range}");
    }
    assert!(!mixes(&broken, &["Range: bytes=7-"], "\"new\""), "it can have these of the new one");
    // A player has read the beginning of the new one, and goes to another place.
    assert!(!mixes(&look(1_000_000), &["Range: bytes=4000000-"], "\"new\""));
    // Beyond the bytes known to have arrived, the latest version decides.
    assert!(!mixes(&broken, &["Range: bytes=60000000-"], "\"new\""));
    for version in 0..5 {
        let newer = download(&broken, &[], &format!("\"newer {version}\"")).unwrap();
        broken.broken_off(&newer, 5, Instant::now());
    }
    assert!(!mixes(&broken, &["Range: bytes=4000000-"], "\"newer 4\""), "there is a bound");
}

#[test]
fn readers_may_seek_anywhere_in_a_new_version() {
    // A player that has seen the old version goes to the end, where the index is.
    let broken = broken_off(&[]);
    for (from, is_refused) in [(50 << 20, true), (51 << 20, true), (60 << 20, false)] {
        let range = format!("Range: bytes={from}-");
        assert_eq!(mixes(&broken, &[&range], "\"new\""), is_refused, "{from}");
    }
    // Players and mounts begin with a range, and are at another place before that is known to have
    // broken off.
    for range in ["bytes=0-", "bytes=0-134217727", &format!("bytes=0-{}", LEN - 1)] {
        let broken = broken_off(&["Range: bytes=102400-"]);
        assert!(mixes(&broken, &["Range: bytes=151552-"], "\"new\""));
        assert!(!mixes(&broken, &[&format!("Range: {range}")], "\"new\""));
        for place in ["Range: bytes=151552-", "Range: bytes=151552-50000000"] {
            assert!(!mixes(&broken, &[place], "\"new\""), "{range}");
        }
    }
    // These say nothing about the old part: the version is the same, a look, and axel's question.
    assert!(!mixes(&broken, &["Range: bytes=0-"], "\"old\""));
    assert!(!mixes(&broken, &["Range: bytes=0-99"], "\"new\""));
    with_request("GET /file HTTP/1.0", &["Range: bytes=0-"], |request| {
        let probe = broken.download(CLIENT, 0, request, "\"new\"", LEN).unwrap();
        assert!(!broken.would_mix(&probe, Instant::now()));
    });
    assert!(mixes(&broken, &["Range: bytes=7-"], "\"new\""));
}

#[test]
fn parts_whose_last_byte_is_named_are_known_where_they_lie() {
    let last = LEN - 1;
    let broken = broken_off(&[&format!("Range: bytes=25000000-{last}")]);
    let part = |from: u64| format!("Range: bytes={from}-{last}");
    assert!(mixes(&broken, &[&part(40_000_000)], "\"new\""));
    assert!(mixes(&broken, &["Range: bytes=40000000-40000009"], "\"new\""));
    assert!(mixes(&broken, &["Range: bytes=40000000-"], "\"new\""));
    assert!(!mixes(&broken, &[&part(40_000_000)], "\"old\""));
    // It never had this one; and as readers of zip files ask first.
    for from in [10_000_000, last - 10] {
        assert!(!mixes(&broken, &[&part(from)], "\"new\""), "{from}");
    }
    // Another part that is complete does not make the file complete.
    broken.completed(&download(&broken, &[&part(75_000_000)], "\"old\"").unwrap());
    assert!(mixes(&broken, &[&part(40_000_000)], "\"new\""));
}

#[test]
fn a_refused_continuation_is_refused_again() {
    let broken = broken_off(&["Range: bytes=3-"]);
    for _ in 0..3 {
        assert!(mixes(&broken, &["Range: bytes=7-"], "\"new\""));
    }
}

#[test]
fn a_restarted_or_complete_download_is_not_refused() {
    let broken = broken_off(&[]);
    broken.broken_off(&download(&broken, &[], "\"new\"").unwrap(), 20, Instant::now());
    assert!(!mixes(&broken, &["Range: bytes=7-"], "\"new\""));
    assert!(mixes(&broken, &["Range: bytes=7-"], "\"newer\""));

    let broken = broken_off(&[]);
    broken.completed(&download(&broken, &["Range: bytes=7-"], "\"old\"").unwrap());
    assert!(!mixes(&broken, &["Range: bytes=7-"], "\"grown\""));
}

#[test]
fn broken_downloads_are_forgotten_after_a_day_or_many_others() {
    let broken = broken_off(&[]);
    let again = download(&broken, &["Range: bytes=7-"], "\"new\"").unwrap();
    let now = Instant::now();
    assert!(broken.would_mix(&again, now + Duration::from_secs(23 * 3600)));
    assert!(!broken.would_mix(&again, now + Duration::from_secs(25 * 3600)));
    let flood = |count: u32| {
        for index in 0..count {
            let agent = format!("User-Agent: {count}-{index}");
            broken.broken_off(&download(&broken, &[&agent], "\"old\"").unwrap(), 50, now);
        }
    };
    flood(8_000);
    assert!(broken.would_mix(&again, now));
    flood(16_500);
    assert!(!broken.would_mix(&again, now));
}
