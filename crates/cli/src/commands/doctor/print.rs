//! Prints the doctor's findings as lines for people, or as JSON with stable field names.

use serde::Serialize;
use underpass_diagnose::doctor::{
    Diagnosis, Finding, FindingState, PairTrials, Trial, TrialOutcome,
};
use underpass_engine::Mechanism;

use crate::output;
use crate::output::printable::one_line;
use underpass_receipt::Receipt;

/// Returns the findings, two or three lines each, with names escaped.
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { name, state, finding, consequence, remedy } in findings {
        let (state, finding) = (state.name(), one_line(finding));
        text += &format!("{state:<8} {name}: {finding}\n{:<8} {}\n", "", one_line(consequence));
        if let Some(remedy) = remedy {
            text += &format!("{:<8} -> {}\n", "", one_line(remedy));
        }
    }
    text
}

/// Returns the whole diagnosis as one JSON object.
pub(super) fn json(diagnosis: &Diagnosis) -> String {
    output::json(&DiagnosisRecord {
        open: diagnosis.closed() == 0,
        pair: PairRecord::from(&diagnosis.pair),
        findings: &diagnosis.findings,
    })
}

/// Returns the findings about an origin as one JSON object.
pub(super) fn origin_json(findings: &[Finding]) -> String {
    let open = findings.iter().all(|finding| finding.state != FindingState::Closed);
    output::json(&OriginRecord { open, findings })
}

#[derive(Serialize)]
struct OriginRecord<'d> {
    /// Whether no finding is closed.
    open: bool,
    findings: &'d [Finding],
}

#[derive(Serialize)]
struct DiagnosisRecord<'d> {
    /// Whether no finding is closed.
    open: bool,
    pair: PairRecord,
    findings: &'d [Finding],
}

/// The trials between two ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PairRecord {
    /// The name of the source.
    from: String,
    /// The name of the target.
    to: String,
    /// The mechanism that moved the bytes, or the last of them; `null` if none did.
    way: Option<&'static str>,
    /// The receipt of this trial, as a command would print it.
    receipt: Receipt,
    /// Each mechanism, alone.
    mechanisms: Vec<SingleTrial>,
}

/// The trial of one mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct SingleTrial {
    name: &'static str,
    /// Whether it moved the bytes unchanged.
    works: bool,
    /// The kernel's error, if it declined.
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<String>,
    /// The error, if it failed otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<&PairTrials> for PairRecord {
    fn from(trials: &PairTrials) -> Self {
        let report = &trials.way.report;
        let receipt = Receipt { error: error(&trials.way), ..Receipt::from(report) };
        Self {
            from: trials.from.clone(),
            to: trials.to.clone(),
            way: report.mechanisms().map(|(mechanism, _)| mechanism.name()).last(),
            receipt,
            mechanisms: trials.alone.iter().map(SingleTrial::from).collect(),
        }
    }
}

impl From<&(Mechanism, Trial)> for SingleTrial {
    fn from((mechanism, trial): &(Mechanism, Trial)) -> Self {
        let errno = match &trial.outcome {
            TrialOutcome::Declined(refusal) => Some(refusal.name().into_owned()),
            _ => None,
        };
        let works = trial.outcome == TrialOutcome::Moved;
        Self { name: mechanism.name(), works, errno, error: error(trial) }
    }
}

/// Returns the error of a trial, unless the kernel declined.
fn error(trial: &Trial) -> Option<String> {
    match &trial.outcome {
        TrialOutcome::Moved | TrialOutcome::Declined(_) => None,
        TrialOutcome::Differs => Some("the bytes that arrived differ from the file".to_owned()),
        TrialOutcome::Failed(why) => Some(why.clone()),
    }
}
