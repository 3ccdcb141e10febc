use std::collections::BTreeMap;
use std::time::SystemTime;

use proptest::prelude::*;
use underpass_protocol::request::negotiate::Coding;
use underpass_protocol::response::multipart::Multipart;
use underpass_protocol::response::plan::{
    PlannedBody, Representation, ResponsePlan, plan, plan_conflict,
};

use crate::rig::{NOVEMBER, at, with_request};

/// A file of 1000 bytes.
fn facts() -> Representation<'static> {
    Representation {
        len: 1000,
        etag: "\"v1\"",
        modified: Some(at(NOVEMBER)),
        changed: None,
        has_weak_date: false,
        media_type: "image/png",
        coding: None,
        is_coded: false,
        varies: false,
        file_name: None,
        is_download: false,
    }
}

/// The plan for a request, a day later.
fn planned(verb: &str, fields: &[&str], facts: &Representation) -> ResponsePlan {
    planned_at(verb, fields, facts, at(NOVEMBER + 86_400))
}

/// The plan for a request at this moment.
fn planned_at(
    verb: &str,
    fields: &[&str],
    facts: &Representation,
    now: SystemTime,
) -> ResponsePlan {
    with_request(&format!("{verb} /a HTTP/1.1"), fields, |request| plan(request, facts, now))
}

/// The lines of a plan by name; a name that occurs twice is a mistake.
fn lines(plan: &ResponsePlan) -> BTreeMap<String, String> {
    let text = String::from_utf8(plan.fields.clone()).unwrap();
    assert!(text.ends_with("\r\n"), "{text:?}");
    let mut lines = BTreeMap::new();
    for line in text.trim_end().split("\r\n") {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(lines.insert(name.to_owned(), value.to_owned()), None, "{name} twice");
    }
    lines
}

/// The names of the lines, in alphabetical order.
fn names(plan: &ResponsePlan) -> String {
    lines(plan).into_keys().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_whole_file_comes_with_all_that_is_known_of_it() {
    let plan = planned("GET", &[], &facts());
    assert_eq!((plan.status, &plan.body, plan.body_len), (200, &PlannedBody::Whole, 1000));
    assert_eq!(
        String::from_utf8(plan.fields).unwrap(),
        "Content-Type: image/png\r\nContent-Length: 1000\r\n\
         Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nETag: \"v1\"\r\nAccept-Ranges: bytes\r\n"
    );
}

#[test]
fn an_empty_file_is_200_with_or_without_a_range() {
    let facts = Representation { len: 0, ..facts() };
    for fields in [&[][..], &["Range: bytes=0-"]] {
        let plan = planned("GET", fields, &facts);
        assert_eq!((plan.status, &plan.body, plan.body_len), (200, &PlannedBody::Nothing, 0));
        assert_eq!(lines(&plan)["Content-Length"], "0");
    }
}

#[test]
fn head_is_get_without_its_body_and_without_ranges() {
    for fields in [&[][..], &["If-Match: \"x\""], &["If-None-Match: \"v1\""]] {
        let (get, head) = (planned("GET", fields, &facts()), planned("HEAD", fields, &facts()));
        assert_eq!(head.body, PlannedBody::Nothing);
        assert_eq!(
            (get.status, get.fields, get.body_len),
            (head.status, head.fields, head.body_len)
        );
    }
    let ranged = planned("HEAD", &["Range: bytes=0-9"], &facts());
    assert_eq!(ranged, planned("HEAD", &[], &facts()));
}

#[test]
fn one_range_is_a_part_of_the_file() {
    let plan = planned("GET", &["Range: bytes=990-1990"], &facts());
    assert_eq!((plan.status, &plan.body, plan.body_len), (206, &PlannedBody::Range(990..1000), 10));
    assert_eq!(
        names(&plan),
        "Accept-Ranges Content-Length Content-Range Content-Type ETag Last-Modified"
    );
    assert_eq!(lines(&plan)["Content-Range"], "bytes 990-999/1000");
    assert_eq!(lines(&plan)["Content-Length"], "10");
}

#[test]
fn several_ranges_are_parts_with_headers_between_them() {
    let plan = planned("GET", &["Range: bytes=0-0,-2"], &facts());
    let PlannedBody::Multipart(multipart) = &plan.body else { panic!("{plan:?}") };
    let text = String::from_utf8(sent(multipart, &[b'.'; 1000])).unwrap();
    let boundary = &multipart.boundary;
    assert_eq!(
        text,
        format!(
            "--{boundary}\r\nContent-Type: image/png\r\nContent-Range: bytes 0-0/1000\r\n\r\n.\r\n\
             --{boundary}\r\nContent-Type: image/png\r\nContent-Range: bytes 998-999/1000\r\n\r\n..\
             \r\n--{boundary}--\r\n"
        )
    );
    assert_eq!((plan.status, plan.body_len), (206, text.len() as u64));
    assert_eq!(names(&plan), "Accept-Ranges Content-Length Content-Type ETag Last-Modified");
    assert_eq!(lines(&plan)["Content-Type"], format!("multipart/byteranges; boundary={boundary}"));
    assert_eq!(lines(&plan)["Content-Length"], text.len().to_string());
}

#[test]
fn a_boundary_is_the_same_for_the_same_ranges_of_the_same_version_only() {
    let boundary = |ranges: &[_], etag| Multipart::new(ranges, 1000, "a/b", etag).boundary;
    let first = boundary(&[0..1, 5..6], "\"v1\"");
    assert_eq!(first.len(), 32);
    assert_eq!(first, boundary(&[0..1, 5..6], "\"v1\""));
    assert_ne!(first, boundary(&[0..1, 5..6], "\"v2\""));
    assert_ne!(first, boundary(&[0..1, 5..7], "\"v1\""));
    assert_ne!(first[..16], first[16..]);
}

#[test]
fn a_range_outside_of_the_file_gets_its_length() {
    let plan = planned("GET", &["Range: bytes=1000-"], &facts());
    let PlannedBody::Message(text) = &plan.body else { panic!("{plan:?}") };
    assert_eq!((plan.status, plan.body_len), (416, text.len() as u64));
    assert_eq!(names(&plan), "Content-Length Content-Range Content-Type");
    assert_eq!(lines(&plan)["Content-Range"], "bytes */1000");
    assert_eq!(lines(&plan)["Content-Length"], text.len().to_string());
}

#[test]
fn a_resumed_download_never_mixes_two_versions() {
    let status = |field: &str| planned("GET", &["Range: bytes=5-", field], &facts()).status;
    assert_eq!(status("If-Range: \"v1\""), 206);
    assert_eq!(status("If-Range: \"v0\""), 200);
    assert_eq!(status("If-Range: Sun, 06 Nov 1994 08:49:37 GMT"), 206);
    assert_eq!(status("If-Range: Sun, 06 Nov 1994 08:49:36 GMT"), 200);
    assert_eq!(status("If-Match: \"v0\""), 412);
    assert_eq!(status("If-None-Match: \"v1\""), 304); // before Range
    let weak = Representation { has_weak_date: true, ..facts() };
    let status = |field: &str| planned("GET", &["Range: bytes=5-", field], &weak).status;
    assert_eq!(status("If-Range: Sun, 06 Nov 1994 08:49:37 GMT"), 200);
    assert_eq!(status("If-Range: \"v1\""), 206);
    assert_eq!(status("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"), 304);
    // A stale If-Range makes even an impossible range harmless.
    let plan = planned("GET", &["Range: bytes=5000-", "If-Range: \"v0\""], &facts());
    assert_eq!((plan.status, plan.body), (200, PlannedBody::Whole));
}

#[test]
fn a_304_has_validators_and_no_body() {
    let facts = Representation { varies: true, coding: Some(Coding::Br), ..facts() };
    let plan = planned("GET", &["If-None-Match: \"v1\""], &facts);
    assert_eq!((plan.status, &plan.body, plan.body_len), (304, &PlannedBody::Nothing, 0));
    assert_eq!(names(&plan), "ETag Last-Modified Vary");
}

#[test]
fn another_version_than_the_requested_one_is_412() {
    let plan = planned("GET", &["If-Match: \"v0\"", "Range: bytes=0-9"], &facts());
    let PlannedBody::Message(text) = &plan.body else { panic!("{plan:?}") };
    assert_eq!((plan.status, plan.body_len), (412, text.len() as u64));
    assert_eq!(names(&plan), "Content-Length Content-Type");
}

#[test]
fn a_compressed_file_names_its_coding_and_every_response_has_vary() {
    let facts = Representation { varies: true, coding: Some(Coding::Gzip), ..facts() };
    for (fields, status, has_coding) in [
        (&[][..], 200, true),
        (&["Range: bytes=0-9"], 206, true),
        (&["Range: bytes=0-0,-2"], 200, true), // a coding is of the file, not of the parts around it
        (&["Range: bytes=1000-"], 416, false),
        (&["If-Match: \"x\""], 412, false),
        (&["If-None-Match: *"], 304, false),
    ] {
        let plan = planned("GET", fields, &facts);
        let lines = lines(&plan);
        assert_eq!(plan.status, status, "{fields:?}");
        assert_eq!(lines["Vary"], "Accept-Encoding", "{fields:?}");
        let coding = has_coding.then_some("gzip");
        assert_eq!(lines.get("Content-Encoding").map(String::as_str), coding, "{fields:?}");
    }
}

#[test]
fn a_download_has_a_name_that_every_client_can_use() {
    for (name, is_download, expected) in [
        (None, false, None),
        (None, true, Some("attachment")),
        (Some(&b"a b(1).txt"[..]), false, Some("inline; filename=\"a b(1).txt\"")),
        (Some(b"a.txt"), true, Some("attachment; filename=\"a.txt\"")),
        (
            Some("\u{e4}.txt".as_bytes()),
            true,
            Some("attachment; filename=\"_.txt\"; filename*=UTF-8''%C3%A4.txt"),
        ),
        (
            Some(b"\xe4.txt"),
            true,
            Some("attachment; filename=\"_.txt\"; filename*=UTF-8''%EF%BF%BD.txt"),
        ),
        (Some(b"a\"b"), false, Some("inline; filename=\"a_b\"; filename*=UTF-8''a%22b")),
        (Some(b"a\\b"), false, Some("inline; filename=\"a_b\"; filename*=UTF-8''a%5Cb")),
        (
            Some(b"100%.txt"),
            false,
            Some("inline; filename=\"100_.txt\"; filename*=UTF-8''100%25.txt"),
        ),
        (
            Some(b"a\r\nSet-Cookie: b"),
            false,
            Some(
                "inline; filename=\"a__Set-Cookie: b\"; filename*=UTF-8''a%0D%0ASet-Cookie%3A%20b",
            ),
        ),
    ] {
        let plan = planned("GET", &[], &Representation { file_name: name, is_download, ..facts() });
        let lines = lines(&plan);
        assert_eq!(lines.get("Content-Disposition").map(String::as_str), expected);
    }
}

#[test]
fn a_file_from_the_future_is_as_old_as_the_response() {
    let plan = planned_at("GET", &[], &facts(), at(NOVEMBER - 1));
    assert_eq!(lines(&plan)["Last-Modified"], "Sun, 06 Nov 1994 08:49:36 GMT");
}

#[test]
fn a_file_from_before_1970_has_no_date() {
    let modified = at(0) - std::time::Duration::from_secs(1);
    let plan = planned("GET", &[], &Representation { modified: Some(modified), ..facts() });
    assert_eq!(names(&plan), "Accept-Ranges Content-Length Content-Type ETag");
}

/// What a client receives of a multipart body of this file.
fn sent(multipart: &Multipart, file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (header, range) in &multipart.parts {
        out.extend_from_slice(header);
        out.extend_from_slice(&file[range.start as usize..range.end as usize]);
    }
    out.extend_from_slice(&multipart.closing);
    out
}

proptest! {
    #[test]
    fn a_multipart_body_is_as_long_as_announced(
        ranges in prop::collection::vec((0_u64..5000, 1_u64..500), 1..20), etag in "\"[a-z]{0,9}\"",
    ) {
        let ranges: Vec<_> = ranges.into_iter().map(|(start, len)| start..start + len).collect();
        let multipart = Multipart::new(&ranges, 5500, "text/plain; charset=utf-8", &etag);
        prop_assert_eq!(sent(&multipart, &[0; 5500]).len() as u64, multipart.len());
    }

    #[test]
    fn a_plan_promises_what_it_sends(
        specs in prop::collection::vec("[0-9]{0,4}-[0-9]{0,4}", 1..5),
        verb in "GET|HEAD", len in 0_u64..3000,
    ) {
        let field = format!("Range: bytes={}", specs.join(", "));
        let plan = planned(&verb, &[&field], &Representation { len, ..facts() });
        let body = match &plan.body {
            PlannedBody::Nothing => None,
            PlannedBody::Whole => Some(len),
            PlannedBody::Range(range) => Some(range.end - range.start),
            PlannedBody::Multipart(parts) => Some(sent(parts, &vec![0; len as usize]).len() as u64),
            PlannedBody::Message(text) => Some(text.len() as u64),
        };
        prop_assert!(body.is_none_or(|body| body == plan.body_len));
        prop_assert_eq!(body.is_none(), verb == "HEAD" || (len == 0 && plan.status == 200));
        prop_assert_eq!(&lines(&plan)["Content-Length"], &plan.body_len.to_string());
    }
}

#[test]
fn appending_to_another_version_is_an_error() {
    for (fields, status) in [
        (&["Range: bytes=7-"][..], 409),
        (&["Range: bytes=5000-"], 409),
        (&["Range: bytes=7-", "If-Unmodified-Since: Sun, 06 Nov 2044 08:49:37 GMT"], 409),
        (&["Range: bytes=7-", "If-None-Match: \"v1\""], 304),
        (&["Range: bytes=7-", "If-Range: Sun, 06 Nov 1994 08:49:37 GMT"], 200),
    ] {
        let plan = with_request("GET /a HTTP/1.1", fields, |request| {
            plan_conflict(request, &facts(), at(NOVEMBER))
        });
        assert_eq!(plan.status, status, "{fields:?}");
        assert!(!matches!(plan.body, PlannedBody::Range(_) | PlannedBody::Multipart(_)));
    }
}
