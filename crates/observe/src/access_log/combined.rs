//! The combined format, with our additions at its end, where log readers ignore them.

use crate::access_log::escape;
use crate::access_log::escape::Quoting;
use crate::access_log::{AccessEntry, TimeText};

/// Appends one line, without a newline.
pub(super) fn write(entry: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
    escape::push_or_dash(out, entry.peer.as_bytes(), Quoting::Bare);
    out.extend_from_slice(b" - ");
    escape::push_or_dash(out, user(entry), Quoting::Bare);
    out.extend_from_slice(b" [");
    out.extend_from_slice(time.common().as_bytes());
    out.extend_from_slice(b"] \"");
    push_request(out, entry);
    out.extend_from_slice(b"\" ");
    escape::push_number(out, u64::from(entry.status));
    out.push(b' ');
    escape::push_number(out, entry.sent);
    out.extend_from_slice(b" \"");
    escape::push_or_dash(out, &entry.referer, Quoting::Quoted);
    out.extend_from_slice(b"\" \"");
    escape::push_or_dash(out, &entry.user_agent, Quoting::Quoted);
    out.extend_from_slice(b"\" ");
    escape::push_thousandths(out, milliseconds(entry));
    out.push(b' ');
    escape::push_number(out, entry.acknowledged);
    out.push(b' ');
    out.extend_from_slice(entry.completion().as_bytes());
    out.push(b' ');
    push_mechanisms(out, entry);
}

/// Returns the name of the user; empty if there is none.
pub(super) fn user(entry: &AccessEntry) -> &[u8] {
    entry.user.as_deref().unwrap_or_default().as_bytes()
}

/// Returns the duration in milliseconds.
pub(super) fn milliseconds(entry: &AccessEntry) -> u64 {
    u64::try_from(entry.duration.as_millis()).unwrap_or(u64::MAX)
}

/// Appends the request line; that of an unparsable request is logged as its target.
pub(super) fn push_request(out: &mut Vec<u8>, entry: &AccessEntry) {
    if entry.verb.is_empty() {
        return escape::push_or_dash(out, &entry.target, Quoting::Quoted);
    }
    escape::push(out, entry.verb.as_bytes(), Quoting::Quoted);
    out.push(b' ');
    escape::push(out, &entry.target, Quoting::Quoted);
    out.push(b' ');
    push_protocol(out, entry);
}

/// Appends the version of the request.
pub(super) fn push_protocol(out: &mut Vec<u8>, entry: &AccessEntry) {
    out.extend_from_slice(b"HTTP/1.");
    escape::push_number(out, u64::from(entry.minor_version));
}

/// Appends the names of the mechanisms in the order of their first use.
pub(super) fn push_mechanisms(out: &mut Vec<u8>, entry: &AccessEntry) {
    escape::push_joined(out, &entry.mechanisms, b"+", |out, (mechanism, _)| {
        out.extend_from_slice(mechanism.name().as_bytes());
    });
}
