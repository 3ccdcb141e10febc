//! The transfers as JSON. The names of the fields are stable.

use serde::Serialize;
use underpass_engine::printable;

use crate::transfers::View;

/// One transfer.
#[derive(Serialize)]
struct TransferRow<'v> {
    /// The number of the transfer, unique in this process.
    id: u64,
    /// The address of the client.
    peer: &'v str,
    /// The user; null without one.
    user: Option<&'v str>,
    /// The method.
    method: &'v str,
    /// The request target; bytes that are not UTF-8 are replaced.
    target: String,
    /// The status.
    status: u16,
    /// The bytes of the body sent so far.
    bytes: u64,
    /// The length of the body in bytes.
    expected: u64,
    /// The rate in bytes per second over the last seconds.
    rate_bytes_per_s: u64,
    /// The seconds since the request was read.
    elapsed_s: f64,
    /// The seconds to the end at this rate; null if the transfer is stalled.
    remaining_s: Option<u64>,
    /// The mechanism that moved the last bytes.
    mechanism: &'v str,
}

/// Renders all transfers as an array.
pub(super) fn render(views: &[View]) -> String {
    let entries: Vec<_> = views.iter().map(entry).collect();
    printable::json(&serde_json::to_string(&entries).expect("text and numbers always make JSON"))
}

/// Returns the entry of one transfer.
fn entry(view: &View) -> TransferRow<'_> {
    let facts = view.facts();
    TransferRow {
        id: view.id,
        peer: &facts.peer,
        user: facts.user.as_deref(),
        method: &facts.verb,
        target: String::from_utf8_lossy(&facts.target).into_owned(),
        status: facts.status,
        bytes: view.bytes,
        expected: facts.expected,
        rate_bytes_per_s: view.rate,
        elapsed_s: (view.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
        remaining_s: view.remaining(),
        mechanism: view.mechanism,
    }
}
