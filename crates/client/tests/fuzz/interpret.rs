//! A response is only accepted as a part of a file, or as the whole, if it is the requested part of
//! the requested version.

use underpass_client::Response;
use underpass_client::download::interpret::{
    FileRequest, Interpretation, StrongValidator, interpret_response,
};

use crate::input::Input;

/// The initial inputs.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x07\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x0aHTTP/1.1 206 x\r\nETag: \"v\"\r\n\
      Content-Range: bytes 5-9/10\r\nContent-Length: 5\r\n\r\n",
    b"\x17\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x0aHTTP/1.1 206 x\r\n\
      Content-Range: bytes 0-4/10\r\n\r\n",
    b"\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0aHTTP/1.1 200 x\r\nETag: \"v\"\r\n\
      Content-Length: 10\r\n\r\n",
    b"\x0d\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0aHTTP/1.1 206 x\r\n\
      Last-Modified: d\r\nContent-Range: bytes 18446744073709551615-18446744073709551615/*\r\n\r\n",
];

/// The input is the request, as flags and numbers, and the head of the response.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    let (from, len, known) = (input.number(), input.number(), input.number());
    let is_set = |bit: u8| flags & (1 << bit) != 0;
    let end = is_set(1).then_some(from.saturating_add(len));
    let version = if is_set(3) {
        StrongValidator::Date("d".to_owned())
    } else {
        StrongValidator::Tag("\"v\"".to_owned())
    };
    let request = FileRequest {
        range: is_set(0).then_some((from, end)),
        version: is_set(2).then_some((version, is_set(4).then_some(known))),
        ..FileRequest::default()
    };
    let Ok(response) = Response::parse(input.0, "GET") else { return };
    match interpret_response(&request, &response) {
        Ok(Interpretation::Part { range, total }) => {
            let (from, end) = request.range.unwrap();
            assert_eq!((response.status, range.start), (206, from));
            assert!(range.start < range.end && range.end <= total);
            assert!(end.is_none_or(|end| range.end <= end));
            check_version(&request, &response, Some(total));
        }
        Ok(Interpretation::Whole { total }) => {
            assert_eq!(response.status, 200);
            let is_from_start = request.range.is_none_or(|(from, _)| from == 0);
            assert!(request.version.is_none() || is_from_start);
            check_version(&request, &response, total);
        }
        _ => {}
    }
}

/// Checks that a response is of the requested version.
fn check_version(request: &FileRequest, response: &Response, total: Option<u64>) {
    let Some((version, known)) = &request.version else { return };
    assert!(known.is_none() || *known == total);
    let (name, own) = match version {
        StrongValidator::Tag(tag) => ("etag", tag),
        StrongValidator::Date(date) | StrongValidator::DateAndTag(date, _) => {
            ("last-modified", date)
        }
    };
    match response.fields.get(name) {
        Some(found) => assert_eq!(found, own.as_bytes()),
        // Only a part may omit the date.
        None => assert_eq!((name, response.status), ("last-modified", 206)),
    }
}
