//! Whatever the fields of a request say, its plan is well formed, promises what it sends, and
//! sends a part of the file only if the version is the requested one.

use std::time::{Duration, UNIX_EPOCH};

use underpass_protocol::request::negotiate::{Coding, acceptable, wants_html, wants_json};
use underpass_protocol::request::{Method, Request, parse};
use underpass_protocol::response::conditional::{
    PreconditionResult, Validators, evaluate, range_applies,
};
use underpass_protocol::response::plan::{PlannedBody, Representation, ResponsePlan, plan};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x01\0If-None-Match: \"a-1\", W/\"b\"",
    b"\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\0Range: bytes=0-0,-2\r\n\
        If-Range: Thu, 01 Jan 1970 00:00:01 GMT",
    b"\x1e\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\x01\0If-Match: \"a-1\"\r\n\
        If-Unmodified-Since: Thu, 01 Jan 1970 00:00:01 GMT\r\nAccept-Encoding: br;q=0.5, *",
];

/// A request with these fields.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let (choice, modified, now) = (input.byte(), input.number() as u32, input.number() as u32);
    let (len, fields) = (input.number() as u16, input.0);
    let verb = if choice & 1 == 0 { "GET" } else { "HEAD" };
    let head = [verb.as_bytes(), b" /a HTTP/1.0\r\n", fields, b"\r\n\r\n"].concat();
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let Ok(Some((request, _))) = parse(&head, &mut storage) else { return };
    let _ = (wants_html(&request), wants_json(&request), acceptable(&request).count());
    let facts = Representation {
        len: len.into(),
        etag: "\"a-1\"",
        modified: Some(UNIX_EPOCH + Duration::from_secs(modified.into())),
        changed: (choice & 32 != 0).then_some(UNIX_EPOCH),
        has_weak_date: choice & 64 != 0,
        media_type: "text/plain; charset=utf-8",
        coding: (choice & 2 != 0).then_some(Coding::Zstd),
        is_coded: false,
        varies: choice & 4 != 0,
        file_name: (choice & 8 != 0).then_some(fields),
        is_download: choice & 16 != 0,
    };
    let now = UNIX_EPOCH + Duration::from_secs(now.into());
    let plan = plan(&request, &facts, now);
    check_fields(&plan);
    check_body(&plan, &request, &facts);
    let current = Validators { etag: facts.etag, modified: facts.modified, changed: facts.changed };
    if plan.status == 206 {
        assert_eq!(evaluate(&request, Some(current)), PreconditionResult::Holds);
        assert!(range_applies(&request, current, now));
    }
}

/// The lines can be read back, and the length is said once.
fn check_fields(plan: &ResponsePlan) {
    let bytes = [plan.fields.as_slice(), b"\r\n"].concat();
    let mut storage = [httparse::EMPTY_HEADER; 16];
    let httparse::Status::Complete((len, fields)) =
        httparse::parse_headers(&bytes, &mut storage).unwrap()
    else {
        panic!("the fields do not end");
    };
    assert_eq!(len, bytes.len());
    let mut lengths = fields.iter().filter(|field| field.name == "Content-Length");
    let expected = plan.body_len.to_string();
    let expected = (plan.status != 304).then_some(expected.as_bytes());
    assert_eq!(lengths.next().map(|field| field.value), expected);
    assert!(lengths.next().is_none());
}

/// The body is as long as promised and fits the status.
fn check_body(plan: &ResponsePlan, request: &Request, facts: &Representation) {
    let (statuses, len): (&[u16], u64) = match &plan.body {
        PlannedBody::Nothing if request.method == Method::Head => return,
        PlannedBody::Nothing => (&[200, 304], 0),
        PlannedBody::Whole => (&[200], facts.len),
        PlannedBody::Range(range) => {
            assert!(range.start < range.end && range.end <= facts.len);
            (&[206], range.end - range.start)
        }
        PlannedBody::Multipart(multipart) => (&[206], multipart.len()),
        PlannedBody::Message(text) => (&[412, 416], text.len() as u64),
    };
    assert!(statuses.contains(&plan.status));
    assert_eq!(plan.body_len, len);
}
