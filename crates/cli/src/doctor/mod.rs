//! What a machine allows, told as findings: what was seen, what it means, what to do about it.
//!
//! Each part of the machine has a module that gathers facts by trying, and a pure function from
//! facts to findings, so that every finding can be tested without the machine that it is about.

pub(crate) mod ktls;
mod place;

use std::fmt;

use serde::Serialize;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at, by a name that stays.
    pub(crate) name: &'static str,
    /// Whether it is as good as it can be.
    pub(crate) state: State,
    /// What was seen.
    pub(crate) finding: String,
    /// What that means for a transfer.
    pub(crate) consequence: String,
    /// What to do about it; absent if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// As good as it can be.
    Best,
    /// The best way is open, but something about it could be better.
    Limited,
    /// The best way is closed, and another is taken.
    Closed,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Limited => "limited",
            Self::Closed => "closed",
        }
    }
}

/// All that was found; as JSON, one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Diagnosis {
    /// Whether every best way is open.
    open: bool,
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// From the findings of all parts, in the order in which they are told.
    pub(crate) fn new(findings: Vec<Finding>) -> Self {
        let open = findings.iter().all(|finding| finding.state != State::Closed);
        Self { open, findings }
    }

    /// How many ways are closed.
    pub(crate) fn closed(&self) -> usize {
        self.findings.iter().filter(|finding| finding.state == State::Closed).count()
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { name, state, finding, consequence, remedy } in &self.findings {
            writeln!(f, "{:<8} {name}: {finding}", state.name())?;
            writeln!(f, "{:<8} {consequence}", "")?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:<8} -> {remedy}", "")?;
            }
        }
        Ok(())
    }
}
