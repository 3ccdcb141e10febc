//! Requests from a few lines, for all tables.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_protocol::request::{Request, parse};

/// Hands `act` the request that these fields make, a GET of `/file`.
pub(crate) fn with_fields<R>(fields: &[&str], act: impl FnOnce(&Request) -> R) -> R {
    with_request("GET /file HTTP/1.1", fields, act)
}

/// Hands `act` the request that the first line and these fields make; `Host` is added.
pub(crate) fn with_request<R>(line: &str, fields: &[&str], act: impl FnOnce(&Request) -> R) -> R {
    let mut head = format!("{line}\r\nHost: example.org\r\n");
    for field in fields {
        head.push_str(field);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    let mut storage = [httparse::EMPTY_HEADER; 32];
    let (request, len) = parse(head.as_bytes(), &mut storage).unwrap().unwrap();
    assert_eq!(len, head.len());
    act(&request)
}

/// A moment: so many seconds after 1970.
pub(crate) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the date of RFC 9110's examples.
pub(crate) const NOVEMBER: u64 = 784_111_777;
