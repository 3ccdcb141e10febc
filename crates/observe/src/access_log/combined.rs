//! The combined format, with our additions at its end, where log readers ignore them.

use crate::access_log::escape;
use crate::access_log::escape::Quoting;
use crate::access_log::{AccessEntry, TimeText};

/// Appends one line, without its end.
pub(super) fn write(exchange: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
    escape::push_or_dash(out, exchange.peer.as_bytes(), Quoting::Bare);
    out.extend_from_slice(b" - ");
    escape::push_or_dash(out, user(exchange), Quoting::Bare);
    out.extend_from_slice(b" [");
    out.extend_from_slice(time.common().as_bytes());
    out.extend_from_slice(b"] \"");
    push_request(out, exchange);
    out.extend_from_slice(b"\" ");
    escape::push_number(out, u64::from(exchange.status));
    out.push(b' ');
    escape::push_number(out, exchange.sent);
    out.extend_from_slice(b" \"");
    escape::push_or_dash(out, &exchange.referer, Quoting::Quoted);
    out.extend_from_slice(b"\" \"");
    escape::push_or_dash(out, &exchange.user_agent, Quoting::Quoted);
    out.extend_from_slice(b"\" ");
    escape::push_thousandths(out, milliseconds(exchange));
    out.push(b' ');
    escape::push_number(out, exchange.acknowledged);
    out.push(b' ');
    out.extend_from_slice(exchange.completion().as_bytes());
    out.push(b' ');
    push_mechanisms(out, exchange);
}

/// Returns the name of the user; empty if there is none.
pub(super) fn user(exchange: &AccessEntry) -> &[u8] {
    exchange.user.as_deref().unwrap_or_default().as_bytes()
}

/// Returns the duration in milliseconds.
pub(super) fn milliseconds(exchange: &AccessEntry) -> u64 {
    u64::try_from(exchange.duration.as_millis()).unwrap_or(u64::MAX)
}

/// Appends the request line.
pub(super) fn push_request(out: &mut Vec<u8>, exchange: &AccessEntry) {
    escape::push(out, exchange.verb.as_bytes(), Quoting::Quoted);
    out.push(b' ');
    escape::push(out, &exchange.target, Quoting::Quoted);
    out.push(b' ');
    push_protocol(out, exchange);
}

/// Appends the version of the request.
pub(super) fn push_protocol(out: &mut Vec<u8>, exchange: &AccessEntry) {
    out.extend_from_slice(b"HTTP/1.");
    escape::push_number(out, u64::from(exchange.minor_version));
}

/// Appends the names of the mechanisms in the order of their first use.
pub(super) fn push_mechanisms(out: &mut Vec<u8>, exchange: &AccessEntry) {
    if exchange.mechanisms.is_empty() {
        out.push(b'-');
    }
    for (index, (name, _)) in exchange.mechanisms.iter().enumerate() {
        if index > 0 {
            out.push(b'+');
        }
        out.extend_from_slice(name.as_bytes());
    }
}
