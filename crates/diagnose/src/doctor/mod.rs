//! Examines a machine. A finding says what was seen, what it means, and what to do about it.
//!
//! Each part of the machine has a module that gathers facts by trying, and a pure function from
//! those to findings, so that every finding can be tested on any machine.

mod ends;
mod error;
mod finding;
mod host;
mod origin;
mod pair;

use std::path::Path;

pub use ends::target::TrialTarget;
pub use error::{DoctorError, UnsuitableEnd};
pub use finding::{Finding, FindingState};
pub use origin::{examine_disk, examine_origin};
pub use pair::{PairTrials, Trial, TrialOutcome};

use ends::sample::TrialFile;
use host::{card, ktls, machine};
use pair::{file_system, sharing, storage, verdict};

/// The result of an examination.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// The trials between the two ends.
    pub pair: PairTrials,
    /// All findings, in the order in which they are shown.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns the number of findings that are [`FindingState::Closed`].
    #[must_use]
    pub fn closed(&self) -> usize {
        finding::count_closed(&self.findings)
    }
}

/// Examines two ends: `from`, a file or a folder of such files, by default the current folder,
/// and `to`. It removes everything that it writes.
///
/// # Errors
///
/// [`DoctorError`] if one of them cannot be used for trials.
pub fn examine(from: Option<&Path>, to: &TrialTarget) -> Result<Diagnosis, DoctorError> {
    let sample = TrialFile::open(from)?;
    let is_stream = to.is_stream();
    let pair = PairTrials::gather(&sample, to)?;
    let mut findings = verdict::findings(&pair);
    findings.extend(file_system::findings(&file_system::FileSystems::gather(&sample, to)));
    findings.extend(storage::findings(&storage::StorageInfo::gather(&sample, to)));
    if is_stream {
        findings.push(sharing::finding(&sharing::gather(&sample)));
    }
    let host = match to {
        TrialTarget::Host(host) => Some(host.as_str()),
        _ => None,
    };
    if host.is_some() || *to == TrialTarget::Any {
        findings.extend(card::findings(&card::NetworkInfo::gather(host)?));
        findings.extend(ktls::findings(&ktls::TlsInfo::gather()));
    }
    findings.extend(machine::findings(&machine::HostInfo::gather(is_stream)));
    Ok(Diagnosis { pair, findings })
}
