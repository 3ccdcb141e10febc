//! A contender with a step, and the selection that a run measures.

use std::fmt;
use std::slice;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::{Mechanism, Size};

use super::contender::{Contender, as_text};

/// A contender at a step: what one row of a table is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Variant {
    #[serde(rename = "way")]
    pub(crate) contender: Contender,
    pub(crate) step: Step,
}

/// The number of bytes requested in one system call.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Step {
    /// The contender's own default.
    Default,
    Bytes(u64),
    /// The whole file, or as much as the mechanism takes in one call.
    Whole,
}

impl Variant {
    pub(crate) const fn new(contender: Contender, step: Step) -> Self {
        Self { contender, step }
    }

    /// Creates the variant of a contender that chooses its step.
    pub(crate) const fn plain(contender: Contender) -> Self {
        Self::new(contender, Step::Default)
    }

    pub(crate) const fn mechanism(mechanism: Mechanism, step: u64) -> Self {
        Self::new(Contender::Only(mechanism), Step::Bytes(step))
    }

    /// Returns the arguments that make `send`, `recv` and `cp` do it, for a file of `size` bytes.
    pub(crate) fn arguments(self, size: u64) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Contender::Only(mechanism) = self.contender {
            arguments.extend(["--mechanism".to_owned(), mechanism.to_string()]);
        }
        if self.step != Step::Default {
            let bytes = self.step.bytes().unwrap_or(size);
            arguments.extend(["--step".to_owned(), bytes.to_string()]);
        }
        arguments
    }
}

impl Step {
    pub(crate) fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Default | Self::Whole => None,
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Default => f.write_str(self.contender.label()),
            step => write!(f, "{} {step}", self.contender.label()),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Bytes(bytes) => f.write_str(&short_size(*bytes)),
            Self::Whole => f.write_str("whole"),
        }
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("default", _) => Ok(Self::Default),
            ("whole", _) => Ok(Self::Whole),
            (_, Ok(Size(bytes))) if bytes > 0 => Ok(Self::Bytes(bytes)),
            _ => Err("steps are sizes such as 4K or 1M, whole, or default".to_owned()),
        }
    }
}

as_text!(Step);

/// Formats a size as people type it: `7M`, `64K`, `1000`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Returns the contenders that are chosen, each once; none stands for `all`.
pub(crate) fn chosen(choices: &[Option<Contender>], all: &[Contender]) -> Vec<Contender> {
    let contenders = choices.iter().flat_map(|choice| choice.as_ref().map_or(all, slice::from_ref));
    unique(contenders.copied())
}

/// Returns every contender at each step that it can take, each variant once.
pub(crate) fn at_steps(contenders: &[Contender], steps: &[Step]) -> Vec<Variant> {
    unique(contenders.iter().flat_map(|contender| {
        let steps = if contender.has_steps() { steps } else { &[Step::Default] };
        steps.iter().map(|step| Variant::new(*contender, *step))
    }))
}

/// Returns each value once, in the order in which they come first.
pub(crate) fn unique<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}
