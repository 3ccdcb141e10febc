use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use underpass_protocol::response::resumption::{ResumableDownload, Resumptions};

use crate::rig::{with_fields, with_request};

const CLIENT: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

/// What a request with these fields, for the file in this version, is taken for.
fn download(broken: &Resumptions, fields: &[&str], etag: &str) -> Option<ResumableDownload> {
    with_fields(fields, |request| broken.download(CLIENT, 0, request, etag))
}

/// Whether it would be appended to a beginning of `"old"` that the same client has.
#[track_caller]
fn mixes(broken: &Resumptions, fields: &[&str], etag: &str) -> bool {
    broken.would_mix(&download(broken, fields, etag).unwrap(), Instant::now())
}

/// A client has the beginning of `"old"`.
fn broken_off(fields: &[&str]) -> Resumptions {
    let broken = Resumptions::default();
    broken.broken_off(&download(&broken, fields, "\"old\"").unwrap(), Instant::now());
    broken
}

#[test]
fn resuming_another_version_is_detected() {
    let broken = broken_off(&[]);
    assert!(mixes(&broken, &["Range: bytes=7-"], "\"new\""));
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
        broken.download(elsewhere, 0, request, "\"new\"").unwrap()
    });
    assert!(!broken.would_mix(&other, Instant::now()));
}

#[test]
fn only_what_goes_on_to_the_end_is_a_download() {
    let broken = Resumptions::default();
    for range in ["bytes=0-9", "bytes=-9", "bytes=1-2,5-", "bytes=5-,8-", "bytes", "lines=1-"] {
        assert_eq!(download(&broken, &[&format!("Range: {range}")], "\"a\""), None, "{range}");
    }
    assert_eq!(download(&broken, &["Range: bytes=1-", "Range: bytes=1-"], "\"a\""), None);
    let head = with_request("HEAD /file HTTP/1.1", &[], |request| {
        broken.download(CLIENT, 0, request, "\"a\"")
    });
    assert_eq!(head, None);
}

#[test]
fn what_was_refused_is_refused_again() {
    let broken = broken_off(&["Range: bytes=3-"]);
    for _ in 0..3 {
        assert!(mixes(&broken, &["Range: bytes=7-"], "\"new\""));
    }
}

#[test]
fn a_restarted_or_complete_download_is_not_refused() {
    let broken = broken_off(&[]);
    broken.broken_off(&download(&broken, &[], "\"new\"").unwrap(), Instant::now());
    assert!(!mixes(&broken, &["Range: bytes=7-"], "\"new\""));
    assert!(mixes(&broken, &["Range: bytes=7-"], "\"newer\""));

    let broken = broken_off(&[]);
    broken.completed(&download(&broken, &["Range: bytes=7-"], "\"old\"").unwrap());
    assert!(!mixes(&broken, &["Range: bytes=7-"], "\"grown\""));
}

#[test]
fn it_is_forgotten_after_a_day_or_when_too_many_others_broke_off() {
    let broken = broken_off(&[]);
    let again = download(&broken, &["Range: bytes=7-"], "\"new\"").unwrap();
    let now = Instant::now();
    assert!(broken.would_mix(&again, now + Duration::from_secs(23 * 3600)));
    assert!(!broken.would_mix(&again, now + Duration::from_secs(25 * 3600)));
    let flood = |count: u32| {
        for index in 0..count {
            let agent = format!("User-Agent: {count}-{index}");
            broken.broken_off(&download(&broken, &[&agent], "\"old\"").unwrap(), now);
        }
    };
    flood(8_000);
    assert!(broken.would_mix(&again, now));
    flood(16_500);
    assert!(!broken.would_mix(&again, now));
}
