//! The transfers as JSON. The names of the fields are a promise.

use serde::Serialize;

use crate::observe::transfers::View;

/// One transfer.
#[derive(Serialize)]
struct Entry<'v> {
    /// A number that no other transfer of this process has.
    id: u64,
    /// The address of the client.
    peer: &'v str,
    /// The user; null if nobody in particular.
    user: Option<&'v str>,
    /// The method.
    method: &'v str,
    /// The request target; bytes that are not UTF-8 are replaced.
    target: String,
    /// The status.
    status: u16,
    /// Bytes of the body sent so far.
    bytes: u64,
    /// Bytes of the body promised.
    expected: u64,
    /// Bytes a second over the last seconds.
    rate_bytes_per_s: u64,
    /// Seconds since the request was read.
    elapsed_s: f64,
    /// Seconds until it will be over at this rate; null if it stands still.
    remaining_s: Option<u64>,
    /// What moved the last bytes.
    mechanism: &'v str,
}

/// All transfers as an array.
pub(super) fn render(views: &[View]) -> String {
    let entries: Vec<_> = views.iter().map(entry).collect();
    serde_json::to_string(&entries).expect("text and numbers always make JSON")
}

/// One transfer.
fn entry(view: &View) -> Entry<'_> {
    let facts = view.facts();
    Entry {
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
