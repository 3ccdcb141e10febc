//! The lines that `underpass get` prints.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{BinaryBytes, HumanCount};
use serde::Serialize;

use underpass_client::Url;
use underpass_client::download::{DownloadError, DownloadEvent};

use crate::args::ShowArgs;
use crate::failure::{Failure, plain};
use crate::output::printable::one_line;
use crate::output::{
    error_line, note, note_retry, print_json, print_receipt, receipt_line, summary, text,
};
use underpass_receipt::{GetReceipt, Receipt, shown};

/// Prints the summary of a fetched folder, and its receipt: that of the transfer for people, the
/// whole one as JSON.
pub(crate) fn tree(show: ShowArgs, summary: &str, transfer: &Receipt, whole: &impl Serialize) {
    if !show.quiet && !show.json {
        error_line(summary);
    }
    tree_receipt(show, transfer, whole);
}

/// Prints the receipt of a folder, if requested.
pub(crate) fn tree_receipt(show: ShowArgs, transfer: &Receipt, whole: &impl Serialize) {
    print_receipt(ShowArgs { json: false, ..show }, transfer);
    print_json(show, whole);
}

/// Prints the receipt of a fetched file.
pub(crate) fn file(show: ShowArgs, receipt: &GetReceipt) {
    if !show.quiet && !show.json {
        let verified = receipt.digests().find(|digest| digest.matches == Some(true));
        let verified = verified.map(|digest| format!(", {} is right", digest.algorithm));
        let verified = verified.unwrap_or_default();
        error_line(&if receipt.was_here {
            format!("{} is here already{verified}", receipt.file)
        } else {
            format!("{}: {}{verified}", receipt.file, summary(&receipt.receipt))
        });
    }
    file_receipt(show, receipt);
}

/// Prints the digests of a file, and its path.
pub(crate) fn digests(receipt: &GetReceipt) {
    // Other programs need the exact name of the file; a terminal must not interpret it.
    let file = if std::io::stdout().is_terminal() {
        one_line(&receipt.file)
    } else {
        receipt.file.clone()
    };
    for digest in receipt.digests() {
        text(&format!("{}  {file}\n", digest.value));
    }
}

/// Returns the line about a download that is resumed.
pub(crate) fn resuming(have: u64, total: Option<u64>) -> String {
    let of = total.map(|total| format!(" of {}", BinaryBytes(total))).unwrap_or_default();
    format!("resuming at {}{of}", BinaryBytes(have))
}

/// Prints an event of a file that is being fetched. `file` is its name if there are several.
pub(crate) fn event(show: ShowArgs, file: Option<&Path>, event: &DownloadEvent<'_>) {
    if show.quiet {
        return;
    }
    let of_file = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    let note = |line: &str| note(&format!("{of_file}{line}"));
    match event {
        DownloadEvent::Resuming { have, total } => note(&resuming(*have, *total)),
        DownloadEvent::Retrying { error, after } => {
            note_retry(&format_args!("{of_file}{error}"), *after);
        }
        DownloadEvent::SourceDropped { url, error } => {
            let reason = match error {
                DownloadError::Changed => {
                    "it has a different file, or one without a strong ETag to compare"
                }
                error => &error.to_string(),
            };
            note(&format!("{} is left out: {reason}", shown(url)));
        }
        DownloadEvent::SourcesDisagree => note(
            "the parts from several servers do not match the digest: fetching the file from one server at a time",
        ),
        DownloadEvent::OnlyTagsCompared => note(
            "parts of several servers were combined by their ETag alone (give a digest with --digest or --check)",
        ),
        DownloadEvent::NotRemoved { name, error } => {
            let (name, error) = (name.display(), plain(error));
            note(&format!("{name} is not needed any more, but cannot be removed: {error}"));
        }
        DownloadEvent::Folder => note("this may be the page of a folder: -r fetches its files"),
        DownloadEvent::StartingOver { error: DownloadError::Changed } => {
            note("the file on the server has changed: starting over");
        }
        DownloadEvent::StartingOver { error } => note(&format!("{error}: starting over")),
        _ => {}
    }
}

/// Prints the receipt of a URL whose transfer failed before it began; none if the usage was wrong.
pub(crate) fn no_transfer(show: ShowArgs, url: &Url, failure: &Failure) {
    if failure.exit_code() == 1 {
        print_json(show, &GetReceipt::of_no_transfer(&shown(url), failure.to_string()));
    }
}

/// Prints the receipt of a file, if requested.
pub(crate) fn file_receipt(show: ShowArgs, receipt: &GetReceipt) {
    print_receipt(ShowArgs { json: false, ..show }, &receipt.receipt);
    if show.explain {
        let (connections, before) = (receipt.connections, HumanCount(receipt.resumed_at));
        receipt_line(&format!("  {:<12} {connections}", "connections"));
        receipt_line(&format!("  {:<12} {before} bytes were here before", "resumed"));
        for digest in receipt.digests() {
            let (name, value) = (digest.algorithm, &digest.value);
            let read = HumanCount(digest.read_bytes);
            receipt_line(&format!("  {:<12} {name}:{value}, read {read} bytes", "digest"));
        }
    }
    print_json(show, receipt);
}
