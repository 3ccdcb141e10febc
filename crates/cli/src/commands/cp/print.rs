//! The summary at the end: what was copied and how, and what was not.

use std::path::Path;

use indicatif::HumanCount;
use serde::Serialize;
use underpass_copy::{BetweenSystems, CopyOptions, CopyOutcome};
use underpass_engine::Integrity;

use super::args::CpArgs;
use crate::args::ShowArgs;
use crate::failure::{Failure, Result};
use crate::output::{self, plain_path};
use crate::receipt::{
    CpuReceipt, EndKind, FaultsReceipt, MechanismReceipt, Receipt, SwitchesReceipt,
};

/// The receipt of a copy.
#[derive(Debug, Serialize)]
pub(crate) struct CopyReceipt {
    /// The receipt that every transfer has.
    #[serde(flatten)]
    pub(crate) receipt: Receipt,
    /// Files that were copied.
    pub(crate) files: u64,
    /// Folders that were walked.
    pub(crate) folders: u64,
    /// Links that were made anew.
    pub(crate) links: u64,
    /// Names that were given to copies that had one already.
    pub(crate) hard_links: u64,
    /// Devices, FIFOs and sockets.
    pub(crate) specials: u64,
    /// Files that were not replaced because of `--no-clobber` or `--update`.
    pub(crate) kept: u64,
    /// Files that an earlier run had copied.
    pub(crate) resumed: u64,
    /// Bytes that an earlier run had copied.
    pub(crate) resumed_bytes: u64,
    /// Entries that `--exclude` left out.
    pub(crate) excluded: u64,
    /// Bytes of holes, which were not copied.
    pub(crate) hole_bytes: u64,
    /// Copies that were compared with their originals.
    pub(crate) verified: u64,
    /// The bytes of these copies.
    pub(crate) verified_bytes: u64,
    /// Copies whose owner is not that of their originals.
    pub(crate) without_owner: u64,
    /// Copies that lack an attribute or an ACL.
    pub(crate) without_attributes: u64,
    /// Files that were written in place because they could not be replaced.
    pub(crate) in_place: u64,
    /// Files that were copied twice because they changed meanwhile.
    pub(crate) copied_again: u64,
    /// Further names of files that became separate copies because they could not be linked.
    pub(crate) links_copied: u64,
    /// How many threads copied.
    pub(crate) jobs: usize,
    /// The copied files by file systems.
    pub(crate) file_systems: Vec<SystemReceipt>,
    /// The number of entries that could not be copied.
    pub(crate) failed: usize,
    /// The reasons, one line each.
    pub(crate) errors: Vec<String>,
    /// Whether it was a dry run.
    pub(crate) dry_run: bool,
}

/// The files copied between two types of file systems.
#[derive(Debug, Serialize)]
pub(crate) struct SystemReceipt {
    /// The file system of the sources.
    pub(crate) from: &'static str,
    /// The file system of the copies.
    pub(crate) to: &'static str,
    /// Files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// The mechanisms that moved them.
    pub(crate) mechanisms: Vec<MechanismReceipt>,
}

impl From<&BetweenSystems> for SystemReceipt {
    fn from(between: &BetweenSystems) -> Self {
        let receipt = Receipt::from(&between.report);
        Self {
            from: between.from,
            to: between.to,
            files: between.files,
            bytes: receipt.bytes,
            mechanisms: receipt.mechanisms,
        }
    }
}

/// Prints what was done, and fails if an entry could not be copied.
pub(super) fn outcome(
    args: &CpArgs,
    options: &CopyOptions,
    mut outcome: CopyOutcome,
    elapsed_s: f64,
) -> Result<()> {
    let show = args.movement.show;
    let receipt = receipt(options, &outcome, elapsed_s);
    if outcome.problem_count == 1 && !options.recursive && receipt.files == 0 {
        // A single error also reports what was done before it.
        if let Some(error) = outcome.problems.pop() {
            let mut failure = Failure::copy(error, show);
            if let Failure::Transfer { receipt: partial, .. } = &mut failure {
                let error = partial.error.take();
                **partial = Receipt { error, ..receipt.receipt };
            }
            return Err(failure);
        }
    }
    let notes = receipt.notes(&outcome);
    for error in outcome.problems {
        output::problem(&Failure::copy(error, show));
    }
    if !show.quiet {
        notes.iter().for_each(|note| output::note(note));
    }
    copied(show, &receipt);
    match outcome.problem_count {
        0 => Ok(()),
        1 => Err(Failure::line("one thing could not be copied: see above")),
        count => Err(Failure::line(format!("{count} things could not be copied: see above"))),
    }
}

/// Prints the receipt of a copy.
fn copied(show: ShowArgs, receipt: &CopyReceipt) {
    output::note_integrity(show, &receipt.receipt);
    if !show.quiet && !show.json {
        let would = if receipt.dry_run { "would copy " } else { "" };
        let counts = receipt.counts();
        let colon = if counts.is_empty() { "" } else { ": " };
        output::progress(&format!("{would}{counts}{colon}{}", output::summary(&receipt.receipt)));
    }
    output::receipt(ShowArgs { json: false, ..show }, &receipt.receipt);
    if show.explain {
        output::progress(&format!("  {:<12} {}", "copied", receipt.counts()));
        for system in &receipt.file_systems {
            let (files, bytes) = (HumanCount(system.files), HumanCount(system.bytes));
            let between = format!("{} to {}", system.from, system.to);
            output::progress(&format!(
                "  {:<12} {between}: {files} files, {bytes} bytes",
                "systems"
            ));
        }
        let lacks = [(receipt.without_owner, "owners"), (receipt.without_attributes, "attributes")];
        for (count, what) in lacks.iter().filter(|(count, _)| *count > 0) {
            output::progress(&format!("  {:<12} {what} of {}", "not kept", HumanCount(*count)));
        }
        if receipt.hole_bytes > 0 {
            output::progress(&format!(
                "  {:<12} {} bytes",
                "holes",
                HumanCount(receipt.hole_bytes)
            ));
        }
    }
    output::tell_json(show, receipt);
}

fn receipt(options: &CopyOptions, outcome: &CopyOutcome, elapsed_s: f64) -> CopyReceipt {
    let totals = &outcome.totals;
    let report = totals.report();
    let usage = totals.usage;
    let receipt = Receipt {
        elapsed_s,
        cpu_s: CpuReceipt { user: usage.user.as_secs_f64(), system: usage.system.as_secs_f64() },
        context_switches: SwitchesReceipt {
            voluntary: usage.voluntary_switches,
            involuntary: usage.involuntary_switches,
        },
        page_faults: FaultsReceipt { minor: usage.minor_faults, major: usage.major_faults },
        ..Receipt::from(&report).between(EndKind::File, EndKind::File)
    };
    let receipt = match options.integrity {
        // Small files are not moved by the engine, but they are checked too.
        level @ (Integrity::Fast | Integrity::Detect) => {
            Receipt { integrity: level.to_string(), ..receipt }
        }
        _ => receipt,
    };
    CopyReceipt {
        receipt,
        files: totals.files,
        folders: totals.folders,
        links: totals.links,
        hard_links: totals.hard_links,
        specials: totals.specials,
        kept: totals.kept,
        resumed: totals.resumed,
        resumed_bytes: totals.resumed_bytes,
        excluded: totals.excluded,
        hole_bytes: totals.hole_bytes,
        verified: totals.verified,
        verified_bytes: totals.verified_bytes,
        without_owner: totals.without_owner,
        without_attributes: totals.without_attributes,
        in_place: totals.in_place,
        copied_again: totals.copied_again,
        links_copied: totals.links_copied,
        jobs: outcome.jobs,
        file_systems: totals.systems.iter().map(SystemReceipt::from).collect(),
        failed: outcome.problem_count,
        errors: outcome.problems.iter().map(ToString::to_string).collect(),
        dry_run: options.dry_run,
    }
}

impl CopyReceipt {
    /// Returns what was done differently than requested, one line each.
    fn notes(&self, outcome: &CopyOutcome) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(path) = &outcome.in_place {
            notes.push(in_place(path, self.in_place));
        }
        if let Some(path) = &outcome.copied_again {
            let path = plain_path(path);
            notes.push(match self.copied_again {
                0 | 1 => format!("{path} changed while it was copied: copied again"),
                count => format!(
                    "{} files, such as {path}, changed while they were copied: copied again",
                    HumanCount(count)
                ),
            });
        }
        if self.links_copied > 0 {
            let names = counted(self.links_copied, "further name", "further names");
            notes.push(format!("{names} of files became copies: there are no hard links there"));
        }
        if self.without_attributes > 0 {
            let copies = counted(self.without_attributes, "copy", "copies");
            notes.push(format!("{copies} lost attributes, which could not be kept there"));
        }
        notes
    }

    /// Returns the counts of the copy in words: `50,000 files, 500 folders, 3 kept`.
    pub(crate) fn counts(&self) -> String {
        let counts = [
            (self.files, "files"),
            (self.folders, "folders"),
            (self.links, "links"),
            (self.hard_links, "further names"),
            (self.specials, "devices, FIFOs and sockets"),
            (self.kept, "left as they were"),
            (self.resumed, "there already"),
            (self.excluded, "excluded"),
            (self.verified, "compared"),
        ];
        let parts: Vec<_> = counts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{} {what}", HumanCount(*count)))
            .collect();
        parts.join(", ")
    }
}

/// Returns the message that files were written in place, of which this is one.
pub(super) fn in_place(path: &Path, count: u64) -> String {
    let path = plain_path(path);
    let subject = match count {
        0 | 1 => format!("{path} was"),
        count => format!("{} files, such as {path}, were", HumanCount(count)),
    };
    format!("{subject} written in place, as it may not be replaced there")
}

/// Returns a number with its noun.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count), if count == 1 { one } else { many })
}
