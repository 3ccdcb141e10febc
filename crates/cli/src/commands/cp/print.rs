//! The summary at the end: the copied entries, the mechanisms, and the entries that were not
//! copied.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::HumanCount;
use underpass_copy::{CopyOptions, CopyOutcome, CopyTotals};
use underpass_engine::Report;
use underpass_receipt::{CopyReceipt, EndKind, Receipt};

use super::args::CpArgs;
use crate::args::ShowArgs;
use crate::failure::{Failure, Result};
use crate::output::{self, counted, plain_path};

/// Prints the summary, and fails if an entry could not be copied.
pub(super) fn outcome(
    args: &CpArgs,
    options: &CopyOptions,
    mut outcome: CopyOutcome,
    elapsed_s: f64,
) -> Result<()> {
    let show = args.movement.show;
    let receipt = CopyReceipt::new(options, &outcome, elapsed_s);
    if outcome.problem_count == 1 && !options.recursive && receipt.totals.files == 0 {
        // A single error also reports the work done before it.
        if let Some(error) = outcome.problems.pop() {
            return Err(failure(Failure::copy(error, show), show, receipt));
        }
    }
    let notes = notes(&outcome);
    for error in outcome.problems {
        output::problem(&Failure::copy(error, show));
    }
    if !show.quiet {
        notes.iter().for_each(|note| output::note(note));
    }
    copied(show, &receipt);
    match outcome.problem_count {
        0 => Ok(()),
        1 => Err(Failure::line("1 problem (see above)")),
        count => Err(Failure::line(format!("{count} problems (see above)"))),
    }
}

/// Prints the JSON of a failed copy, and returns its failure, which prints the rest of its receipt.
fn failure(mut failure: Failure, show: ShowArgs, receipt: CopyReceipt) -> Failure {
    output::print_json(show, &receipt);
    if let Failure::Transfer { receipt: of_transfer, show, .. } = &mut failure {
        **of_transfer = receipt.receipt;
        show.json = false;
    }
    failure
}

/// Returns the failure of a copy that did not begin, after printing its JSON. Wrong usage has none.
pub(super) fn not_begun(failed: Failure, show: ShowArgs, elapsed_s: f64) -> Failure {
    if matches!(failed, Failure::Usage(_)) {
        return failed;
    }
    let receipt = Receipt::from(&Report::default()).between(EndKind::File, EndKind::File);
    let receipt = Receipt { error: Some(failed.to_string()), elapsed_s, ..receipt };
    failure(failed, show, CopyReceipt::of_stream(receipt))
}

/// Returns the failure of a stream between ends of these kinds, after printing its JSON.
pub(super) fn stream_failure(failed: Failure, show: ShowArgs, ends: (EndKind, EndKind)) -> Failure {
    let Failure::Transfer { receipt, .. } = &failed else { return failed };
    let receipt = CopyReceipt::of_stream((**receipt).clone().between(ends.0, ends.1));
    failure(failed, show, receipt)
}

/// Returns the failure of a stream whose bytes were moved, after printing its JSON.
pub(super) fn not_ended(failed: Failure, show: ShowArgs, receipt: Receipt) -> Failure {
    let receipt = Receipt { error: Some(failed.to_string()), ..receipt };
    failure(failed, show, CopyReceipt::of_stream(receipt))
}

/// The reason why no stream was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotMoved {
    /// It is a dry run.
    DryRun,
    /// The options keep the existing file.
    Kept,
}

/// Prints the receipt of a stream that was not moved, which is no failure.
pub(super) fn not_moved(show: ShowArgs, why: NotMoved) {
    let receipt = Receipt::from(&Report::default()).between(EndKind::File, EndKind::File);
    let mut receipt = CopyReceipt::of_stream(receipt);
    receipt.dry_run = why == NotMoved::DryRun;
    receipt.totals.files = u64::from(receipt.dry_run);
    receipt.totals.kept = u64::from(!receipt.dry_run);
    copied(show, &receipt);
}

/// Prints the receipt of a copy.
pub(super) fn copied(show: ShowArgs, receipt: &CopyReceipt) {
    let totals = &receipt.totals;
    output::note_integrity(show, &receipt.receipt);
    let is_shown = show.progress || receipt.dry_run || std::io::stderr().is_terminal();
    if is_shown && !show.quiet && !show.json {
        let (counts, summary) = (counts(totals), output::summary(&receipt.receipt));
        let line = match (receipt.dry_run, counts.is_empty()) {
            (true, true) => "would copy nothing".to_owned(),
            // No bytes have moved.
            (true, false) => format!("would copy {counts}"),
            (false, true) => summary,
            (false, false) => format!("{counts}: {summary}"),
        };
        output::error_line(&line);
    }
    output::print_receipt(ShowArgs { json: false, ..show }, &receipt.receipt);
    if show.explain {
        output::receipt_line(&format!("  {:<12} {}", "copied", counts(totals)));
        for system in &receipt.file_systems {
            let files = counted(system.files, "file", "files");
            let bytes = counted(system.bytes, "byte", "bytes");
            let between = format!("{} to {}", system.from, system.to);
            output::receipt_line(&format!("  {:<12} {between}: {files}, {bytes}", "systems"));
        }
        let lacks = [(totals.without_owner, "owners"), (totals.without_attributes, "attributes")];
        for (count, what) in lacks.iter().filter(|(count, _)| *count > 0) {
            output::receipt_line(&format!("  {:<12} {what} of {}", "not kept", HumanCount(*count)));
        }
        if totals.hole_bytes > 0 {
            output::receipt_line(&format!(
                "  {:<12} {} bytes",
                "holes",
                HumanCount(totals.hole_bytes)
            ));
        }
    }
    output::print_json(show, receipt);
}

/// Returns a line for each request that was carried out differently.
fn notes(outcome: &CopyOutcome) -> Vec<String> {
    let totals = &outcome.totals;
    let mut notes = Vec::new();
    if let Some(path) = &outcome.in_place {
        notes.push(in_place(path, totals.in_place));
    }
    if let Some(path) = &outcome.copied_again {
        let path = plain_path(path);
        notes.push(match totals.copied_again {
            0 | 1 => format!("{path} changed while it was copied: copied again"),
            count => format!(
                "{} files, such as {path}, changed while they were copied: copied again",
                HumanCount(count)
            ),
        });
    }
    if totals.links_copied > 0 {
        let names = counted(totals.links_copied, "further name", "further names");
        notes.push(format!(
            "{names} of files became copies: the target file system has no hard links, or no more \
             for one file"
        ));
    }
    if totals.without_attributes > 0 {
        let copies = counted(totals.without_attributes, "copy", "copies");
        notes.push(format!(
            "attributes of {copies} were not kept: the file system does not take them, or only \
             from root"
        ));
    }
    notes
}

/// Returns the counts of the copy in words: `50,000 files, 500 folders, 3 kept`.
fn counts(totals: &CopyTotals) -> String {
    let counts = [
        (totals.files, "file", "files"),
        (totals.folders, "folder", "folders"),
        (totals.links, "link", "links"),
        (totals.hard_links, "further name", "further names"),
        (totals.specials, "device, FIFO or socket", "devices, FIFOs and sockets"),
        (totals.kept, "left as it was", "left as they were"),
        (totals.resumed, "there already", "there already"),
        (totals.excluded, "excluded", "excluded"),
        (totals.deleted, "deleted", "deleted"),
        (totals.verified, "compared", "compared"),
    ];
    let parts: Vec<_> = counts
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| counted(*count, one, many))
        .collect();
    parts.join(", ")
}

/// Returns the message that files were written in place, of which this is one.
pub(super) fn in_place(path: &Path, count: u64) -> String {
    let path = plain_path(path);
    let subject = match count {
        0 | 1 => format!("{path} was"),
        count => format!("{} files, such as {path}, were", HumanCount(count)),
    };
    format!("{subject} written in place, because it cannot be replaced")
}
