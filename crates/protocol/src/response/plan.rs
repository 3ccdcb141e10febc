//! Decides the response to a request for an existing file: a pure function, (request, facts) →
//! plan.
//!
//! The facts about the file come from one open descriptor, as the bytes do later. The function reads
//! nothing, not even the clock, so that every row of the standard can be a row of a test.

use std::ops::Range;
use std::time::SystemTime;

use super::conditional::{self, PreconditionResult, Validators};
use super::disposition::push_disposition;
use super::head::{PLAIN_TEXT, push_decimal, push_field, push_number_field, reason};
use super::multipart::{Multipart, push_content_range};
use super::range::{self, RangeAnswer};
use super::validator::{last_modified, push_date};
use crate::request::negotiate::Coding;
use crate::request::{Method, Request};

/// The representation of a file: its own bytes, or the compressed neighbour that replaces it.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// Its length in bytes.
    pub len: u64,
    /// Its entity tag, with quotes; empty if it has none.
    pub etag: &'a str,
    /// The time at which the file was last changed, if that is known.
    pub modified: Option<SystemTime>,
    /// See [`Validators::changed`].
    pub changed: Option<SystemTime>,
    /// Whether another version may have the same time of change, because this one was sent by an
    /// origin within the second of its change (RFC 9110 8.8.2.2).
    pub has_weak_date: bool,
    /// Its media type, that of the plain file if this is a compressed neighbour.
    pub media_type: &'a str,
    /// The coding by which it is compressed.
    pub coding: Option<Coding>,
    /// Whether its bytes are in a coding that the caller names in the response.
    pub is_coded: bool,
    /// Whether another request could get another coding of it, so that every response has `Vary`.
    pub varies: bool,
    /// The name to save it under, if the response suggests one.
    pub file_name: Option<&'a [u8]>,
    /// Whether it is to be saved rather than shown.
    pub is_download: bool,
}

/// The planned response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponsePlan {
    /// The status.
    pub status: u16,
    /// The lines about the representation, each with its CRLF: all of the head but the status
    /// line, `Date`, `Connection`, and what the operator adds to every response.
    pub fields: Vec<u8>,
    /// The body that follows the head.
    pub body: PlannedBody,
    /// The value of `Content-Length`; after HEAD and 304 no body follows nevertheless.
    pub body_len: u64,
}

/// The body that follows the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlannedBody {
    /// Nothing.
    Nothing,
    /// The whole file.
    Whole,
    /// A range of the file, not empty.
    Range(Range<u64>),
    /// Several ranges of the file with headers between them.
    Multipart(Box<Multipart>),
    /// A sentence for people.
    Message(String),
}

/// Decides the response to a GET or HEAD for this file at this moment.
#[must_use]
pub fn plan(request: &Request, file: &Representation, now: SystemTime) -> ResponsePlan {
    if let Some(unmet) = plan_unmet(request, file, now) {
        return unmet;
    }
    let plan = match wanted(request, file, validators(file), now) {
        RangeAnswer::Whole => whole(file, now),
        RangeAnswer::Part(range) => part(file, range, now),
        RangeAnswer::Parts(ranges) => parts(file, &ranges, now),
        RangeAnswer::Unsatisfiable => unsatisfiable(file),
    };
    for_method(request, plan)
}

/// Decides the response to a GET or HEAD whose preconditions do not hold: 304 or 412. `None` if they
/// hold. The length of the file is not used.
#[must_use]
pub fn plan_unmet(
    request: &Request,
    file: &Representation,
    now: SystemTime,
) -> Option<ResponsePlan> {
    match conditional::evaluate(request, Some(validators(file))) {
        PreconditionResult::Holds => None,
        PreconditionResult::NotModified => Some(not_modified(file, now)),
        PreconditionResult::Fails => Some(for_method(request, failed(file))),
    }
}

/// Leaves out the body for HEAD (RFC 9110 9.3.2).
fn for_method(request: &Request, plan: ResponsePlan) -> ResponsePlan {
    match request.method {
        Method::Head => ResponsePlan { body: PlannedBody::Nothing, ..plan },
        _ => plan,
    }
}

/// Decides the response to a client that has the beginning of another version, does not know it,
/// and would continue with this one.
///
/// The whole file (200), as RFC 9110 14.2 suggests, does not help: wget skips as many bytes as it
/// has, and appends the rest. If the new version is shorter, curl and wget treat 416, and wget also
/// 200, as a sign that they have everything. They all report an error. A client that sends
/// `If-Range` expects the whole file.
#[must_use]
pub fn plan_conflict(request: &Request, file: &Representation, now: SystemTime) -> ResponsePlan {
    let current = validators(file);
    match conditional::evaluate(request, Some(current)) {
        PreconditionResult::Fails => failed(file),
        PreconditionResult::NotModified => not_modified(file, now),
        PreconditionResult::Holds if request.has("if-range") => whole(file, now),
        // 15.5.10: the user might be able to resolve it, so the answer says how.
        PreconditionResult::Holds => message(409, Vec::new(), file, REPLACED),
    }
}

fn validators<'a>(file: &Representation<'a>) -> Validators<'a> {
    Validators { etag: file.etag, modified: file.modified, changed: file.changed }
}

/// Returns the requested bytes.
fn wanted(
    request: &Request,
    file: &Representation,
    current: Validators,
    now: SystemTime,
) -> RangeAnswer {
    // A file and its compressed form usually have the same date, so it does not tell them apart.
    let is_ambiguous = file.varies || file.has_weak_date;
    let current = Validators { modified: current.modified.filter(|_| !is_ambiguous), ..current };
    // RFC 9110 14.2: other methods have no ranges. 13.2.2 step 5: If-Range comes last.
    if request.method != Method::Get || !conditional::range_applies(request, current, now) {
        return RangeAnswer::Whole;
    }
    match range::of_request(request, file.len) {
        // 8.4: `Content-Encoding` would describe the multipart body, but only its parts are coded.
        RangeAnswer::Parts(_) if file.coding.is_some() || file.is_coded => RangeAnswer::Whole,
        answer => answer,
    }
}

/// Plans a 200 with the whole file.
fn whole(file: &Representation, now: SystemTime) -> ResponsePlan {
    let mut fields = Vec::with_capacity(FIELDS_CAPACITY);
    push_field(&mut fields, "Content-Type", file.media_type.as_bytes());
    push_number_field(&mut fields, "Content-Length", file.len);
    push_representation(&mut fields, file, now);
    let body = if file.len == 0 { PlannedBody::Nothing } else { PlannedBody::Whole };
    ResponsePlan { status: 200, fields, body, body_len: file.len }
}

/// Plans a 206 with one part (RFC 9110 15.3.7.1).
fn part(file: &Representation, range: Range<u64>, now: SystemTime) -> ResponsePlan {
    let mut fields = Vec::with_capacity(FIELDS_CAPACITY);
    let body_len = range.end - range.start;
    push_field(&mut fields, "Content-Type", file.media_type.as_bytes());
    push_number_field(&mut fields, "Content-Length", body_len);
    push_content_range(&mut fields, &range, file.len);
    push_representation(&mut fields, file, now);
    ResponsePlan { status: 206, fields, body: PlannedBody::Range(range), body_len }
}

/// Plans a 206 with several parts: no `Content-Range` but those of the parts (RFC 9110 15.3.7.2).
fn parts(file: &Representation, ranges: &[Range<u64>], now: SystemTime) -> ResponsePlan {
    let mut fields = Vec::with_capacity(FIELDS_CAPACITY);
    let multipart = Multipart::new(ranges, file.len, file.media_type, file.etag);
    let body_len = multipart.len();
    push_field(&mut fields, "Content-Type", multipart.media_type().as_bytes());
    push_number_field(&mut fields, "Content-Length", body_len);
    push_representation(&mut fields, file, now);
    ResponsePlan {
        status: 206,
        fields,
        body: PlannedBody::Multipart(Box::new(multipart)),
        body_len,
    }
}

/// Plans a 304 with the fields that a cache needs to update what it has (RFC 9110 15.4.5).
fn not_modified(file: &Representation, now: SystemTime) -> ResponsePlan {
    let mut fields = Vec::with_capacity(FIELDS_CAPACITY);
    push_validators(&mut fields, file, now);
    ResponsePlan { status: 304, fields, body: PlannedBody::Nothing, body_len: 0 }
}

/// Plans a 412 (RFC 9110 15.5.13).
fn failed(file: &Representation) -> ResponsePlan {
    message(412, Vec::new(), file, "the file is not the requested version")
}

/// Plans a 416, which names the length of the file (RFC 9110 15.5.17).
fn unsatisfiable(file: &Representation) -> ResponsePlan {
    let mut fields = Vec::with_capacity(FIELDS_CAPACITY);
    fields.extend_from_slice(b"Content-Range: bytes */");
    push_decimal(&mut fields, file.len);
    fields.extend_from_slice(b"\r\n");
    message(416, fields, file, "the file has none of the requested bytes")
}

/// Returns a response that is not the file.
fn message(status: u16, mut fields: Vec<u8>, file: &Representation, detail: &str) -> ResponsePlan {
    let text = format!("{status} {}: {detail}\n", reason(status));
    let body_len = text.len() as u64;
    push_field(&mut fields, "Content-Type", PLAIN_TEXT.as_bytes());
    push_number_field(&mut fields, "Content-Length", body_len);
    push_vary(&mut fields, file);
    ResponsePlan { status, fields, body: PlannedBody::Message(text), body_len }
}

/// Adds the fields that every answer with bytes of the file has.
fn push_representation(fields: &mut Vec<u8>, file: &Representation, now: SystemTime) {
    push_validators(fields, file, now);
    fields.extend_from_slice(b"Accept-Ranges: bytes\r\n"); // RFC 9110 14.3
    if let Some(coding) = file.coding {
        push_field(fields, "Content-Encoding", coding.token().as_bytes());
    }
    push_disposition(fields, file.file_name, file.is_download);
}

/// Adds the fields that distinguish this version from others.
fn push_validators(fields: &mut Vec<u8>, file: &Representation, now: SystemTime) {
    if let Some(modified) = file.modified.and_then(|modified| last_modified(modified, now)) {
        fields.extend_from_slice(b"Last-Modified: ");
        push_date(fields, modified);
        fields.extend_from_slice(b"\r\n");
    }
    if !file.etag.is_empty() {
        push_field(fields, "ETag", file.etag.as_bytes());
    }
    push_vary(fields, file);
}

/// Adds the fields on which the choice of this representation depended (RFC 9110 12.5.5).
fn push_vary(fields: &mut Vec<u8>, file: &Representation) {
    if file.varies {
        fields.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
}

/// The answer to a client that would append to the beginning of another version.
const REPLACED: &str = "the file has changed since your download was interrupted: start over";

/// The length of the lines of a usual response, which are allocated once.
const FIELDS_CAPACITY: usize = 320;
