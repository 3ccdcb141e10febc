//! Whether the preconditions of a request hold for the current version of a file (RFC 9110 13).
//!
//! Two versions of a file must never be mixed, so in every doubtful case the current one is sent
//! whole: a tag or a date that cannot be read matches nothing. Nor may a file be lost: with an
//! `If-None-Match` that cannot be read, none is replaced.

use std::time::{Duration, SystemTime};

use super::validator::{is_etag_char, is_strong, last_modified, parse_date, whole_seconds};
use crate::request::{Method, Request};

/// The validators of the current version of a file.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The entity tag with its quotes; a weak one never matches where a strong one is needed.
    pub etag: &'a str,
    /// The time at which the file was last changed, if that is known.
    pub modified: Option<SystemTime>,
    /// The time since which it has been in this version, if that is known: its ctime.
    pub changed: Option<SystemTime>,
}

/// The result of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionResult {
    /// Process the request.
    Holds,
    /// The client has this version already: 304.
    NotModified,
    /// The client means another version: 412.
    Fails,
}

/// Returns whether a request that changes something has preconditions.
#[must_use]
pub fn is_conditional(request: &Request) -> bool {
    ["if-match", "if-none-match", "if-unmodified-since"].iter().any(|name| request.has(name))
}

/// Evaluates the preconditions in the order of 13.2.2; `None` if there is no file now.
#[must_use]
pub fn evaluate(request: &Request, current: Option<Validators>) -> PreconditionResult {
    // Steps 1 and 2: If-Match, else If-Unmodified-Since.
    let is_meant = match compare(request, "if-match", current, TagComparison::Strong) {
        Some(result) => result == ListResult::Named,
        None => current.is_none_or(|current| is_unmodified_since(request, current)),
    };
    if !is_meant {
        return PreconditionResult::Fails;
    }
    // Steps 3 and 4: If-None-Match, else If-Modified-Since.
    let is_read = matches!(request.method, Method::Get | Method::Head);
    let is_known = match compare(request, "if-none-match", current, TagComparison::Weak) {
        // What a list means that cannot be read is unknown, so it lets nothing be replaced.
        Some(ListResult::Unreadable) => !is_read,
        Some(result) => result == ListResult::Named,
        None => is_read && current.is_some_and(|current| !is_modified_since(request, current)),
    };
    match (is_known, is_read) {
        (false, _) => PreconditionResult::Holds,
        (true, true) => PreconditionResult::NotModified,
        (true, false) => PreconditionResult::Fails,
    }
}

/// Returns whether `Range` applies: there is no `If-Range`, or it names this very version
/// (13.1.5).
#[must_use]
pub fn range_applies(request: &Request, current: Validators, now: SystemTime) -> bool {
    let mut fields = request.fields("if-range");
    let Some(value) = fields.next() else { return true };
    if fields.next().is_some() {
        return false; // not a list: which one is meant is unknown
    }
    if value.first() == Some(&b'"') {
        return is_strong(value) && value == current.etag.as_bytes();
    }
    // A weak tag is not a date either, and so never holds. A date must be exactly that of
    // Last-Modified, and be strong: a second old, or the file may have changed again within the
    // second that it names (8.8.2.2).
    let modified = current.modified.and_then(|modified| last_modified(modified, now));
    let (Some(date), Some(modified)) = (parse_date(value), modified) else {
        return false;
    };
    let now = whole_seconds(now).unwrap_or(now);
    date == modified && now.duration_since(date).is_ok_and(|age| age >= Duration::from_secs(1))
}

/// Returns whether the compressed form of a file, with this entity tag, suits the request.
///
/// `Range` counts the bytes of the file itself: clients that decompress a response decompress a
/// part as well. A client with the beginning of the compressed form, as a browser, names its tag.
#[must_use]
pub fn may_be_packed(request: &Request, etag: &str) -> bool {
    let names = |name| {
        let has_tag =
            |value| look_for(value, etag.as_bytes(), TagComparison::Strong) == ListResult::Named;
        request.fields(name).any(has_tag)
    };
    !request.has("range") || names("if-range") || names("if-match")
}

/// The way in which two entity tags are compared (8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TagComparison {
    /// Both must be strong.
    Strong,
    /// The mark of weakness is ignored.
    Weak,
}

/// Whether a list of entity tags has that of the current version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListResult {
    /// It has.
    Named,
    /// It has only others, or there is no current version.
    Other,
    /// It is no list of tags, at least after those that are not this one.
    Unreadable,
}

/// Compares the current version with a field; `None` if there is no such field.
fn compare(
    request: &Request,
    name: &str,
    current: Option<Validators>,
    comparison: TagComparison,
) -> Option<ListResult> {
    request.field(name)?;
    let Some(current) = current else { return Some(ListResult::Other) };
    // 13.1.1, 13.1.2: `*`, which stands alone, is any version, as long as there is one.
    if request.single(name) == Some(b"*") {
        return Some(ListResult::Named);
    }
    let lists = request.fields(name);
    let results = lists.map(|list| look_for(list, current.etag.as_bytes(), comparison));
    results.reduce(|all, one| match (all, one) {
        (ListResult::Named, _) | (_, ListResult::Named) => ListResult::Named,
        (ListResult::Other, ListResult::Other) => ListResult::Other,
        _ => ListResult::Unreadable,
    })
}

/// Looks for a tag in a list. What follows a member that is not a tag is not read.
fn look_for(mut list: &[u8], etag: &[u8], comparison: TagComparison) -> ListResult {
    let (is_weak, etag) = split_weak(etag);
    let is_impossible = is_weak && comparison == TagComparison::Strong;
    while let Some((is_weak, tag, rest)) = next_tag(list) {
        let is_comparable = !(is_weak && comparison == TagComparison::Strong);
        if tag == etag && is_comparable && !is_impossible {
            return ListResult::Named;
        }
        list = rest;
    }
    let is_end = list.iter().all(|byte| is_separator(*byte));
    if is_end { ListResult::Other } else { ListResult::Unreadable }
}

/// Returns whether a byte may be between the members of a list (5.6.1).
fn is_separator(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b',')
}

/// Returns the next tag of a list, whether it is weak, and what follows (8.8.3, 5.6.1).
fn next_tag(list: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let start = list.iter().position(|byte| !is_separator(*byte))?;
    let (is_weak, list) = split_weak(&list[start..]);
    let [b'"', inside @ ..] = list else { return None };
    let end = inside.iter().position(|&byte| byte == b'"')?;
    if !inside[..end].iter().all(|&byte| is_etag_char(byte)) {
        return None;
    }
    let (tag, rest) = list.split_at(end + 2);
    let after = rest.trim_ascii_start();
    matches!(after, [] | [b',', ..]).then_some((is_weak, tag, after))
}

/// Splits off the mark of weakness.
fn split_weak(tag: &[u8]) -> (bool, &[u8]) {
    tag.strip_prefix(b"W/").map_or((false, tag), |tag| (true, tag))
}

/// Evaluates `If-Unmodified-Since` (13.1.4). An invalid date is ignored, and so are several, and
/// any if the file's modification time is unknown.
fn is_unmodified_since(request: &Request, current: Validators) -> bool {
    let date = request.single("if-unmodified-since").and_then(parse_date);
    let is_later = |(date, modified)| seconds(modified) > date;
    !date.zip(current.modified).is_some_and(is_later)
}

/// Evaluates `If-Modified-Since` (13.1.3). An invalid date is ignored, and so are several, and any
/// if the file's modification time is unknown.
///
/// A file that an older one has replaced since the date counts as modified, too.
fn is_modified_since(request: &Request, current: Validators) -> bool {
    let date = request.single("if-modified-since").and_then(parse_date);
    date.zip(current.modified).is_none_or(|(date, modified)| {
        let modified = seconds(modified);
        let since = modified.max(current.changed.map_or(modified, seconds));
        date != modified && since > date
    })
}

/// Removes the fraction, which dates of HTTP do not have; a time without an HTTP date is
/// unchanged.
fn seconds(time: SystemTime) -> SystemTime {
    whole_seconds(time).unwrap_or(time)
}
