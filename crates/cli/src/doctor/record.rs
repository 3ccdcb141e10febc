//! Two ends and what moves bytes between them, as part of the doctor's JSON. Its field names are a
//! promise.

use serde::Serialize;
use underpass_engine::Mechanism;

use super::pair::{Facts, Outcome, Trial};
use crate::receipt::Receipt;

/// What was seen of two ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct PairRecord {
    /// What the source is called.
    from: String,
    /// What the target is called.
    to: String,
    /// What moved the bytes, or the last of them; `null` if nothing did.
    way: Option<&'static str>,
    /// The receipt of that, as a command would print it.
    receipt: Receipt,
    /// Each mechanism, alone.
    mechanisms: Vec<Alone>,
}

/// What came of one mechanism.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Alone {
    name: &'static str,
    /// Whether it moved the bytes, and as they were.
    works: bool,
    /// What the kernel answered, if it declined.
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<String>,
    /// What went wrong, if something else did.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl From<&Facts> for PairRecord {
    fn from(facts: &Facts) -> Self {
        let report = &facts.way.report;
        let receipt = Receipt { error: error(&facts.way), ..Receipt::from(report) };
        Self {
            from: facts.from.clone(),
            to: facts.to.clone(),
            way: report.mechanisms().map(|(mechanism, _)| mechanism.name()).last(),
            receipt,
            mechanisms: facts.alone.iter().map(Alone::from).collect(),
        }
    }
}

impl From<&(Mechanism, Trial)> for Alone {
    fn from((mechanism, trial): &(Mechanism, Trial)) -> Self {
        let errno = match &trial.outcome {
            Outcome::Declined(refusal) => Some(refusal.name().into_owned()),
            _ => None,
        };
        let works = trial.outcome == Outcome::Moved;
        Self { name: mechanism.name(), works, errno, error: error(trial) }
    }
}

/// What went wrong, if it was no refusal.
fn error(trial: &Trial) -> Option<String> {
    match &trial.outcome {
        Outcome::Moved | Outcome::Declined(_) => None,
        Outcome::Differs => Some("other bytes arrived than the file has".to_owned()),
        Outcome::Failed(why) => Some(why.clone()),
    }
}
