//! The receipt of copied files and folders.

use serde::Serialize;
use underpass_copy::{BetweenSystems, CopyError, CopyOptions, CopyOutcome, CopyTotals};
use underpass_engine::{EndKind, Integrity};

use crate::transfer::{MechanismReceipt, Receipt};

/// The receipt of a copy.
#[derive(Debug, Default, Serialize)]
pub struct CopyReceipt {
    /// The fields of every transfer's receipt.
    #[serde(flatten)]
    pub receipt: Receipt,
    /// The counts.
    #[serde(flatten)]
    pub totals: CopyTotals,
    /// The number of threads that copied.
    pub jobs: usize,
    /// The copied files by pairs of file systems.
    pub file_systems: Vec<SystemReceipt>,
    /// The number of entries that could not be copied.
    pub failed: usize,
    /// The reasons, one line each.
    pub errors: Vec<String>,
    /// Whether it was a dry run.
    pub dry_run: bool,
}

/// The files copied from one type of file system to another.
#[derive(Debug, Serialize)]
pub struct SystemReceipt {
    /// The file system of the sources.
    pub from: &'static str,
    /// The file system of the copies.
    pub to: &'static str,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The mechanisms that moved them.
    pub mechanisms: Vec<MechanismReceipt>,
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

impl CopyReceipt {
    /// Creates the receipt of a copy that took this many seconds.
    #[must_use]
    pub fn new(options: &CopyOptions, outcome: &CopyOutcome, elapsed_s: f64) -> Self {
        let totals = &outcome.totals;
        let report = totals.report();
        let from = match totals.source_kinds[..] {
            [] => Some(EndKind::File),
            [kind] => Some(kind.into()),
            _ => None,
        };
        let (error, to) = (error(outcome), Some(EndKind::File));
        let receipt = Receipt::from(&report).spent(totals.usage);
        let receipt = Receipt { error, from, to, elapsed_s, ..receipt };
        let receipt = match options.integrity {
            // The engine does not move small files, but they are checked too.
            level @ (Integrity::Fast | Integrity::Detect) => {
                Receipt { integrity: level.to_string(), ..receipt }
            }
            _ => receipt,
        };
        Self {
            receipt,
            totals: totals.clone(),
            jobs: outcome.jobs,
            file_systems: totals.systems.iter().map(SystemReceipt::from).collect(),
            failed: outcome.problem_count,
            errors: outcome.problems.iter().map(ToString::to_string).collect(),
            dry_run: options.dry_run,
        }
    }

    /// Creates the receipt of one stream of bytes, even of one that failed.
    #[must_use]
    pub fn of_stream(receipt: Receipt) -> Self {
        let errors: Vec<_> = receipt.error.iter().cloned().collect();
        let failed = errors.len();
        let mut totals = CopyTotals::default();
        totals.files = u64::from(failed == 0);
        Self { receipt, totals, jobs: 1, failed, errors, ..Self::default() }
    }
}

/// Returns why a copy failed: the only reason, or the number of reasons.
fn error(outcome: &CopyOutcome) -> Option<String> {
    // That the remaining copies were not started is not a reason.
    let has_ended = matches!(outcome.problems.as_slice(), [_, CopyError::Ended]);
    match (outcome.problem_count - usize::from(has_ended), outcome.problems.first()) {
        (0, _) => None,
        (1, Some(CopyError::Transfer { source, .. })) => Some(source.to_string()),
        (1, Some(error)) => Some(error.to_string()),
        (count, _) => Some(format!("{count} problems")),
    }
}
