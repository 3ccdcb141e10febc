//! One result of an examination.

use serde::Serialize;

/// One result of an examination: what was seen, what it means, what to do about it. The texts may
/// contain file names verbatim: escape them before printing them on a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of what was examined, which stays the same in later versions.
    pub name: &'static str,
    /// Whether it is as good as it can be.
    pub state: FindingState,
    /// The observation.
    pub finding: String,
    /// The consequence for a transfer.
    pub consequence: String,
    /// The remedy; absent if nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// It cannot be better.
    Best,
    /// It works, but a faster mechanism is unavailable, or something about it could be better.
    Limited,
    /// It is unavailable: transfers that need it copy their bytes through user space, or fail.
    Closed,
    /// It is unavailable or not used, and the requested transfer does not suffer.
    Unneeded,
}

impl Finding {
    /// Begins a finding about something that cannot be better.
    pub(super) fn best(name: &'static str) -> Self {
        Self::new(name, FindingState::Best)
    }

    /// Begins a finding about something that could be better.
    pub(super) fn limited(name: &'static str) -> Self {
        Self::new(name, FindingState::Limited)
    }

    /// Begins a finding about something that keeps the fastest mechanism from being used.
    pub(super) fn closed(name: &'static str) -> Self {
        Self::new(name, FindingState::Closed)
    }

    /// Begins a finding about something that nothing requested needs.
    pub(super) fn unneeded(name: &'static str) -> Self {
        Self::new(name, FindingState::Unneeded)
    }

    fn new(name: &'static str, state: FindingState) -> Self {
        Self { name, state, finding: String::new(), consequence: String::new(), remedy: None }
    }

    /// Says what was seen.
    pub(super) fn finding(self, finding: impl Into<String>) -> Self {
        Self { finding: finding.into(), ..self }
    }

    /// Says what that means for a transfer.
    pub(super) fn consequence(self, consequence: impl Into<String>) -> Self {
        Self { consequence: consequence.into(), ..self }
    }

    /// Says what to do about it.
    pub(super) fn remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }
}

impl FindingState {
    /// Returns the name that the JSON uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Limited => "limited",
            Self::Closed => "closed",
            Self::Unneeded => "unneeded",
        }
    }
}

/// Returns the number of findings that are [`FindingState::Closed`].
pub(super) fn count_closed(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.state == FindingState::Closed).count()
}

/// Returns the findings in the form of the snapshots.
#[cfg(test)]
pub(super) fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { name, state, finding, consequence, remedy } in findings {
        text += &format!("{:<8} {name}: {finding}\n{:<8} {consequence}\n", state.name(), "");
        if let Some(remedy) = remedy {
            text += &format!("{:<8} -> {remedy}\n", "");
        }
    }
    text
}
