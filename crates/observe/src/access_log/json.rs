//! The JSON format: one object for each request. The names of its fields are stable.

use underpass_engine::Tally;

use crate::access_log::combined::{milliseconds, push_protocol, user};
use crate::access_log::escape;
use crate::access_log::{AccessEntry, TimeText};

/// Appends one object, without a newline.
///
/// It does not use serde, because it runs for every request, on bytes that may not be UTF-8.
pub(super) fn write(entry: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    time.push_rfc3339_with_thousandths(out);
    out.push(b'"');
    if let Some(site) = &entry.site {
        text(out, "site", site.name().as_bytes());
    }
    text(out, "remote", entry.peer.as_bytes());
    text_or_null(out, "user", user(entry));
    text(out, "method", entry.verb.as_bytes());
    text(out, "target", &entry.target);
    key(out, "protocol");
    out.push(b'"');
    push_protocol(out, entry);
    out.push(b'"');
    tls(out, entry);
    number(out, "status", u64::from(entry.status));
    number(out, "bytes", entry.body_len);
    number(out, "received", entry.received);
    number(out, "sent", entry.sent);
    number(out, "acknowledged", entry.acknowledged);
    key(out, "complete");
    let is_complete = entry.is_complete && entry.failure.is_none();
    out.extend_from_slice(if is_complete { b"true" } else { b"false" });
    text_or_null(out, "failure", entry.failure.unwrap_or_default().as_bytes());
    key(out, "duration_s");
    escape::push_thousandths(out, milliseconds(entry));
    mechanisms(out, entry);
    number(out, "calls", entry.calls);
    number(out, "user_space_bytes", entry.user_space_bytes);
    cost(out, entry);
    declined(out, entry);
    if let Some(cache) = entry.cache {
        text(out, "cache", cache.as_bytes());
        number(out, "origin_bytes", entry.origin_bytes);
        key(out, "waited_s");
        escape::push_thousandths(out, u64::try_from(entry.waited.as_millis()).unwrap_or(u64::MAX));
    }
    text_or_null(out, "referer", &entry.referer);
    text_or_null(out, "user_agent", &entry.user_agent);
    out.push(b'}');
}

/// Appends the TLS properties of the connection, or null.
fn tls(out: &mut Vec<u8>, entry: &AccessEntry) {
    key(out, "tls");
    let Some(tls) = entry.tls else { return out.extend_from_slice(b"null") };
    out.extend_from_slice(b"{\"version\":");
    string(out, tls.version.as_bytes());
    text(out, "suite", tls.suite.as_bytes());
    key(out, "resumed");
    out.extend_from_slice(if tls.is_resumed { b"true" } else { b"false" });
    text(out, "where", tls.place().as_bytes());
    if let Some(why) = tls.why {
        text(out, "why", why.as_bytes());
    }
    out.push(b'}');
}

/// Appends the bytes and calls by mechanism.
fn mechanisms(out: &mut Vec<u8>, entry: &AccessEntry) {
    let by_mechanism = |out: &mut Vec<u8>, value: fn(&Tally) -> u64| {
        out.push(b'{');
        for (index, (mechanism, tally)) in entry.mechanisms.iter().enumerate() {
            out.extend_from_slice(if index > 0 { b",\"" } else { b"\"" });
            escape::push_json(out, mechanism.name().as_bytes());
            out.extend_from_slice(b"\":");
            escape::push_number(out, value(tally));
        }
        out.push(b'}');
    };
    key(out, "mechanisms");
    by_mechanism(out, |tally| tally.bytes);
    key(out, "mechanism_calls");
    by_mechanism(out, |tally| tally.calls);
}

/// Appends the processor seconds and context switches.
fn cost(out: &mut Vec<u8>, entry: &AccessEntry) {
    let usage = entry.usage;
    key(out, "cpu_s");
    out.extend_from_slice(b"{\"user\":");
    escape::push_millionths(out, usage.user.as_micros());
    out.extend_from_slice(b",\"system\":");
    escape::push_millionths(out, usage.system.as_micros());
    out.push(b'}');
    key(out, "context_switches");
    out.extend_from_slice(b"{\"voluntary\":");
    escape::push_number(out, usage.voluntary_switches);
    number(out, "involuntary", usage.involuntary_switches);
    out.push(b'}');
}

/// Appends the operations that the kernel declined.
fn declined(out: &mut Vec<u8>, entry: &AccessEntry) {
    key(out, "declined");
    out.push(b'[');
    for (index, decline) in entry.declined.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        string(out, decline.as_bytes());
    }
    out.push(b']');
}

/// Appends the name of the next field, with the comma before it.
fn key(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

/// Appends a field with a number.
fn number(out: &mut Vec<u8>, name: &str, value: u64) {
    key(out, name);
    escape::push_number(out, value);
}

/// Appends a field with text.
fn text(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    key(out, name);
    string(out, value);
}

/// Appends a field with text, or null if it is empty.
fn text_or_null(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    if value.is_empty() {
        key(out, name);
        out.extend_from_slice(b"null");
    } else {
        text(out, name, value);
    }
}

/// Appends a string in its quotes.
fn string(out: &mut Vec<u8>, value: &[u8]) {
    out.push(b'"');
    escape::push_json(out, value);
    out.push(b'"');
}
