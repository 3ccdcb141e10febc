//! The checks: each starts what it needs, and reports what it saw.

mod doctor;
mod downloads;
mod ends;
mod handshake;
mod keys;
mod plain;
mod records;
mod requests;
mod stream;
mod uploads;

use serde_json::Value;

use crate::place::Place;
use crate::{Outcome, Result};

/// One check.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its name, for the command line and the output.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) run: fn(&Place) -> Result<Outcome>,
}

const fn check(name: &'static str, run: fn(&Place) -> Result<Outcome>) -> Check {
    Check { name, run }
}

/// All checks, in the order in which they are run. Those that cause errors in the kernel's counters
/// come after the one that checks these.
pub(crate) const CHECKS: &[Check] = &[
    check("plain", plain::run),
    check("doctor", doctor::run_it),
    check("handshake", handshake::every_suite),
    check("resumption", handshake::resumption),
    check("download", downloads::by_another_client),
    check("get", downloads::by_ours),
    check("slow_reader", downloads::slow_reader),
    check("large_file", downloads::large),
    check("put", uploads::by_ours),
    check("upload", uploads::by_another_client),
    check("send_recv", stream::send_and_receive),
    check("small_requests", requests::many_on_one_connection),
    check("close_notify", ends::close_notify),
    check("cut_download", ends::cut_download),
    check("cut_upload", ends::cut_upload),
    check("keys_while_downloading", keys::while_downloading),
    check("keys_while_uploading", keys::while_uploading),
    check("keys_of_a_server", keys::of_a_server),
    check("counters", records::counters),
    check("bad_records", records::bad),
    check("bad_contents", records::bad_contents),
];

/// 1,048,576.
pub(crate) const MIB: u64 = 1 << 20;

/// Returns the mechanisms in the last log line about this request.
fn mechanisms<'l>(lines: &'l [Value], verb: &str, target: &str) -> Result<&'l Value> {
    let line = lines.iter().rfind(|line| line["method"] == verb && line["target"] == target);
    Ok(&line.ok_or_else(|| format!("no {verb} {target} in the log: {lines:?}"))?["mechanisms"])
}

/// Fails unless at least `len` bytes, except the last ones held back for a check of the file, were
/// moved by the mechanism that is right here.
fn moved(place: &Place, moved: &Value, in_kernel: &str, len: u64) -> Result<()> {
    let name = if place.in_kernel() { in_kernel } else { "read_write" };
    if moved[name].as_u64().unwrap_or(0) + 1 >= len {
        return Ok(());
    }
    Err(format!("{len} bytes were to be moved by {name}: {moved}").into())
}

/// Fails unless a client's receipt matches where TLS is expected.
fn fits(place: &Place, receipt: &Value) -> Result<()> {
    let bytes = receipt["user_space_bytes"].as_u64().ok_or("a receipt without user_space_bytes")?;
    let tls = &receipt["tls"];
    if tls["where"] != place.wanted.receipt() {
        return Err(format!("TLS was to be in the {}: {receipt}", place.wanted.name()).into());
    }
    if place.in_kernel() == (bytes == 0) && place.in_kernel() == tls["why"].is_null() {
        return Ok(());
    }
    Err(format!("{bytes} bytes in user space, and {tls}").into())
}
