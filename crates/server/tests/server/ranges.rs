//! Ranges: the table of what a 1000-byte file answers, byte for byte.

use super::rig::{Reply, Running, Site, pattern, text};

fn site() -> Running {
    let site = Site::of(&[("empty", b"")]);
    site.write("file", &pattern(1000));
    site.write("large", &pattern(5 << 20));
    site.start()
}

/// The reply to a GET with this `Range`.
fn range(site: &Running, path: &str, range: &str) -> Reply {
    site.ask("GET", path, &[&format!("Range: {range}")])
}

/// The parts of a multipart body: what each says it is, and its bytes.
fn parts(reply: &Reply) -> Vec<(String, Vec<u8>)> {
    let media_type = reply.field("Content-Type").unwrap();
    let boundary = media_type.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let boundary = format!("--{}", boundary.trim_matches('"'));
    let mut rest = reply.body.as_slice();
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(b"\r\n").unwrap_or(rest);
        rest = rest.strip_prefix(boundary.as_bytes()).unwrap();
        if rest == b"--\r\n" || rest == b"--" {
            return parts;
        }
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = text(&rest[..end]);
        let line = head.lines().find_map(|line| line.strip_prefix("Content-Range: "));
        let line = line.unwrap().to_owned();
        let (first, last) = line[6..].split_once('/').unwrap().0.split_once('-').unwrap();
        let len = last.parse::<usize>().unwrap() + 1 - first.parse::<usize>().unwrap();
        let (bytes, after) = rest[end + 4..].split_at(len);
        parts.push((line, bytes.to_vec()));
        rest = after;
    }
}

#[test]
fn each_single_range_is_answered_as_the_table_says() {
    let site = site();
    let all = pattern(1000);
    for (field, answer, bytes) in [
        ("bytes=0-9", "bytes 0-9/1000", &all[..10]),
        ("bytes=0-", "bytes 0-999/1000", &all[..]),
        ("bytes=990-1990", "bytes 990-999/1000", &all[990..]),
        ("bytes=-2000", "bytes 0-999/1000", &all[..]),
        ("bytes=-1", "bytes 999-999/1000", &all[999..]),
        ("bytes=999-", "bytes 999-999/1000", &all[999..]),
        ("bytes=500-500", "bytes 500-500/1000", &all[500..501]),
        ("bytes=0-6,2000-3000", "bytes 0-6/1000", &all[..7]),
        ("BYTES=0-9", "bytes 0-9/1000", &all[..10]),
        ("bytes=0-18446744073709551615999", "bytes 0-999/1000", &all[..]),
    ] {
        let reply = range(&site, "/file", field);
        assert_eq!(reply.status, 206, "{field}");
        assert_eq!(reply.field("Content-Range"), Some(answer), "{field}");
        assert_eq!(reply.body, bytes, "{field}");
        assert_eq!(reply.field("Accept-Ranges"), Some("bytes"), "{field}");
        assert!(reply.field("ETag").is_some() && reply.field("Last-Modified").is_some());
    }
}

#[test]
fn a_range_past_the_end_gets_the_length_of_the_file() {
    let site = site();
    for field in ["bytes=1000-", "bytes=10-1", "bytes=2000-3000", "bytes=-0", "bytes=5000-,1000-"] {
        let reply = range(&site, "/file", field);
        assert_eq!(reply.status, 416, "{field}");
        assert_eq!(reply.field("Content-Range"), Some("bytes */1000"), "{field}");
    }
}

#[test]
fn invalid_ranges_get_the_whole_file() {
    let site = site();
    let many: Vec<_> = (0..17).map(|at| format!("{}-{}", at * 10, at * 10)).collect();
    let many = format!("bytes={}", many.join(","));
    for field in [
        "lines=0-9",
        "bytes=0-,0-,0-",
        "bytes=0-9,5-20",
        "bytes=",
        "bytes=a-b",
        "bytes= 0-9-",
        "bytes=0 - 9",
        "bytes=--1",
        "0-9",
        &many,
    ] {
        let reply = range(&site, "/file", field);
        assert_eq!((reply.status, reply.body == pattern(1000)), (200, true), "{field}");
        assert_eq!(reply.field("Content-Range"), None, "{field}");
    }
    let twice = site.ask("GET", "/file", &["Range: bytes=0-9", "Range: bytes=5-9"]);
    assert_eq!(twice.status, 200);
}

#[test]
fn a_range_of_an_empty_file_is_the_empty_file() {
    let site = site();
    for field in ["bytes=0-", "bytes=0-9", "bytes=-5"] {
        let reply = range(&site, "/empty", field);
        assert_eq!((reply.status, reply.field("Content-Length")), (200, Some("0")), "{field}");
    }
}

#[test]
fn several_ranges_come_as_parts_in_the_requested_order() {
    let site = site();
    let reply = range(&site, "/file", "bytes=0-0,-2");
    assert_eq!((reply.status, reply.field("Content-Range")), (206, None));
    assert_eq!(
        parts(&reply),
        [
            ("bytes 0-0/1000".to_owned(), pattern(1000)[..1].to_vec()),
            ("bytes 998-999/1000".to_owned(), pattern(1000)[998..].to_vec()),
        ]
    );
    let reply = range(&site, "/file", "bytes=900-999, 0-99 ,,500-599,7000-");
    let found: Vec<_> = parts(&reply).into_iter().map(|(range, _)| range).collect();
    assert_eq!(found, ["bytes 900-999/1000", "bytes 0-99/1000", "bytes 500-599/1000"]);
}

#[test]
fn sixteen_parts_are_allowed() {
    let site = site();
    let ranges: Vec<_> = (0..16).map(|at| format!("{}-{}", at * 60, at * 60 + 9)).collect();
    let reply = range(&site, "/file", &format!("bytes={}", ranges.join(",")));
    let all = pattern(1000);
    for (at, (_, bytes)) in parts(&reply).into_iter().enumerate() {
        assert_eq!(bytes, &all[at * 60..at * 60 + 10]);
    }
}

#[test]
fn parts_of_a_large_file_are_exact_and_never_surface() {
    let site = site();
    let reply = range(&site, "/large", "bytes=4000000-5242879,17-2000016,3000000-3100000");
    let all = pattern(5 << 20);
    let found: Vec<_> = parts(&reply).into_iter().map(|(_, bytes)| bytes).collect();
    assert!(found == [&all[4_000_000..], &all[17..2_000_017], &all[3_000_000..3_100_001]]);
    let moved = found.iter().map(Vec::len).sum::<usize>() as f64;
    assert_eq!(site.metric("sent_bytes_total{mechanism=\"sendfile\"}"), moved);
    assert_eq!(site.metric("sent_bytes_total{mechanism=\"read_write\"}"), 0.0);
}

#[test]
fn the_same_parts_have_the_same_bytes_each_time() {
    let site = site();
    let first = range(&site, "/file", "bytes=0-0,-2");
    let second = range(&site, "/file", "bytes=0-0,-2");
    assert_eq!(first.body, second.body);
    assert_eq!(first.field("Content-Type"), second.field("Content-Type"));
}

#[test]
fn a_head_ignores_ranges() {
    let site = site();
    let head = site.ask("HEAD", "/file", &["Range: bytes=0-9"]);
    assert_eq!((head.status, head.field("Content-Length")), (200, Some("1000")));
    assert_eq!(head.field("Content-Range"), None);
}
