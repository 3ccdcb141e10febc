//! Responses about properties: `207 Multi-Status` (RFC 4918 13), and the bodies of errors.

use crate::property::{Live, Resource};
use crate::request::{Patch, Propfind};
use crate::xml::{Name, close, escape, open, write_empty};

/// The media type of all these bodies.
pub const MEDIA_TYPE: &str = "application/xml; charset=utf-8";

const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Writes the part before the first resource.
pub fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(DECLARATION);
    out.extend_from_slice(b"<D:multistatus xmlns:D=\"DAV:\">\n");
}

/// Writes the part after the last resource.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"</D:multistatus>\n");
}

/// Writes the requested properties of a resource, whose link is percent-encoded.
pub fn push_properties(link: &str, resource: &Resource<'_>, request: &Propfind, out: &mut Vec<u8>) {
    open(out, "response");
    push_link(link, out);
    match request {
        Propfind::Names => push_names(resource, out),
        Propfind::All(others) => push_all(others, resource, out),
        Propfind::Some(names) => push_values(names, resource, out),
    }
    close(out, "response");
    out.push(b'\n');
}

/// Writes all cheap properties, and those with these names.
fn push_all(others: &[Name], resource: &Resource<'_>, out: &mut Vec<u8>) {
    begin_status(out);
    for live in Live::ALL.into_iter().filter(|live| live.is_of_all()) {
        resource.write(live, out);
    }
    resource.stored.iter().for_each(|property| property.write(out));
    end_status(200, out);
    let is_written = |name: &Name| {
        Live::of(name).is_some_and(Live::is_of_all)
            || resource.stored.iter().any(|property| property.name == *name)
    };
    let others: Vec<_> = others.iter().filter(|name| !is_written(name)).cloned().collect();
    if !others.is_empty() {
        push_values(&others, resource, out);
    }
}

/// Writes the properties with these names, and then the names of the missing ones.
fn push_values(names: &[Name], resource: &Resource<'_>, out: &mut Vec<u8>) {
    let begin = out.len();
    let mut missing = Vec::new();
    begin_status(out);
    for name in names {
        let is_there = match Live::of(name) {
            Some(live) => resource.write(live, out),
            None => {
                let stored = resource.stored.iter().find(|property| property.name == *name);
                stored.into_iter().for_each(|property| property.write(out));
                stored.is_some()
            }
        };
        if !is_there {
            missing.push(name);
        }
    }
    if missing.len() == names.len() && !names.is_empty() {
        out.truncate(begin);
    } else {
        end_status(200, out);
    }
    if !missing.is_empty() {
        begin_status(out);
        missing.into_iter().for_each(|name| write_empty(out, name));
        end_status(404, out);
    }
}

/// Writes the names of all properties of a resource.
fn push_names(resource: &Resource<'_>, out: &mut Vec<u8>) {
    begin_status(out);
    for live in Live::ALL.into_iter().filter(|live| resource.has(*live)) {
        write_empty(out, &Name::dav(live.name()));
    }
    resource.stored.iter().for_each(|property| write_empty(out, &property.name));
    end_status(200, out);
}

/// Returns the response to a `PROPPATCH`: either all properties were changed or none, and `faults`
/// has the statuses of those that could not be, in their order.
#[must_use]
pub fn patched(link: &str, patches: &[Patch], faults: &[Option<u16>]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out);
    open(&mut out, "response");
    push_link(link, &mut out);
    let is_failed = faults.iter().any(Option::is_some);
    // RFC 4918 9.2.1: the others failed because of these.
    let status = |fault: &Option<u16>| fault.unwrap_or(if is_failed { 424 } else { 200 });
    let mut statuses: Vec<_> = faults.iter().map(status).collect();
    statuses.sort_unstable();
    statuses.dedup();
    for wanted in statuses {
        begin_status(&mut out);
        let mut written = Vec::new();
        for (patch, fault) in patches.iter().zip(faults) {
            if status(fault) == wanted && !written.contains(&patch.name()) {
                write_empty(&mut out, patch.name());
                written.push(patch.name());
            }
        }
        end_status(wanted, &mut out);
    }
    close(&mut out, "response");
    end(&mut out);
    out
}

/// Writes that an operation on a resource failed, and why.
pub fn push_failure(link: &str, status: u16, reason: &str, out: &mut Vec<u8>) {
    open(out, "response");
    push_link(link, out);
    push_status(status, out);
    open(out, "responsedescription");
    escape(out, reason);
    close(out, "responsedescription");
    close(out, "response");
    out.push(b'\n');
}

/// Returns the body of an error with the violated rule (RFC 4918 16) and links to resources.
#[must_use]
pub fn error(rule: &str, links: &[&str]) -> Vec<u8> {
    let mut out = DECLARATION.to_vec();
    out.extend_from_slice(format!("<D:error xmlns:D=\"DAV:\"><D:{rule}>").as_bytes());
    links.iter().for_each(|link| push_link(link, &mut out));
    out.extend_from_slice(format!("</D:{rule}></D:error>\n").as_bytes());
    out
}

/// Returns the response to a `LOCK`: the locks of the resource.
#[must_use]
pub fn locked(resource: &Resource<'_>) -> Vec<u8> {
    let mut out = DECLARATION.to_vec();
    out.extend_from_slice(b"<D:prop xmlns:D=\"DAV:\">");
    resource.write(Live::LockDiscovery, &mut out);
    out.extend_from_slice(b"</D:prop>\n");
    out
}

fn push_link(link: &str, out: &mut Vec<u8>) {
    open(out, "href");
    escape(out, link);
    close(out, "href");
}

fn begin_status(out: &mut Vec<u8>) {
    out.extend_from_slice(b"<D:propstat><D:prop>");
}

fn end_status(status: u16, out: &mut Vec<u8>) {
    close(out, "prop");
    push_status(status, out);
    close(out, "propstat");
}

fn push_status(status: u16, out: &mut Vec<u8>) {
    let reason = match status {
        200 => "OK",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        424 => "Failed Dependency",
        507 => "Insufficient Storage",
        _ => "Error",
    };
    open(out, "status");
    out.extend_from_slice(format!("HTTP/1.1 {status} {reason}").as_bytes());
    close(out, "status");
}
