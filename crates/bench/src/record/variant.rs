//! A contender with a step, and the selection that a run measures.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::{Mechanism, Size};

use super::contender::Contender;

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

/// The values of `--mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Every mechanism that the scenario is about.
    All,
    One(Contender),
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

    /// Returns its name for people.
    pub(crate) fn label(self) -> String {
        match self.step {
            Step::Default => self.contender.label().to_owned(),
            step => format!("{} {step}", self.contender.label()),
        }
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
            Step::Default => write!(f, "{}", self.contender),
            step => write!(f, "{} {step}", self.contender),
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

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.to_string()
    }
}

impl TryFrom<String> for Step {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "auto" => Ok(Self::One(Contender::Auto)),
            name => match name.parse() {
                Ok(mechanism) => Ok(Self::One(Contender::Only(mechanism))),
                Err(_) => Err("mechanisms are all, auto, reflink, copy_file_range, sendfile, \
                               splice, mmap, read_write"
                    .to_owned()),
            },
        }
    }
}

/// Formats a size as people type it: `7M`, `64K`, `1000`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Returns the contenders that choices stand for, each once.
pub(crate) fn chosen(choices: &[Choice], all: &[Contender]) -> Vec<Contender> {
    let contenders = choices.iter().flat_map(|choice| match choice {
        Choice::All => all,
        Choice::One(contender) => std::slice::from_ref(contender),
    });
    once(contenders.copied())
}

/// Returns every contender at each step that it can take, each variant once.
pub(crate) fn at_steps(contenders: &[Contender], steps: &[Step]) -> Vec<Variant> {
    once(contenders.iter().flat_map(|contender| {
        let steps = if contender.has_steps() { steps } else { &[Step::Default] };
        steps.iter().map(|step| Variant::new(*contender, *step))
    }))
}

/// Returns each value once, in the order in which they come first.
pub(crate) fn once<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENDFILE: Contender = Contender::Only(Mechanism::Sendfile);

    #[test]
    fn each_variant_is_measured_once_whatever_is_asked_for() {
        let all = [Contender::Auto, SENDFILE, Contender::Only(Mechanism::ReadWrite)];
        let steps = [Step::Bytes(4 << 10), Step::Whole];
        let names = |choices: &[Choice]| -> Vec<_> {
            at_steps(&chosen(choices, &all), &steps).iter().map(ToString::to_string).collect()
        };
        let every = ["auto", "sendfile 4K", "sendfile whole", "read_write 4K", "read_write whole"];
        assert_eq!(names(&[Choice::All]), every);
        assert_eq!(names(&[Choice::One(Contender::Auto), Choice::All]), every);
        assert_eq!(names(&[Choice::One(Contender::Auto)]), ["auto"]);
        let reflink = Contender::Only(Mechanism::Reflink);
        assert_eq!(at_steps(&[reflink], &steps), [Variant::plain(reflink)]);
    }

    #[test]
    fn a_variant_becomes_the_arguments_of_the_commands() {
        let variant = Variant::new(SENDFILE, Step::Whole);
        assert_eq!(variant.arguments(7), ["--mechanism", "sendfile", "--step", "7"]);
        assert!(Variant::plain(Contender::Auto).arguments(7).is_empty());
    }

    #[test]
    fn steps_are_read_as_they_are_written_and_other_words_are_refused() {
        for step in [Step::Default, Step::Whole, Step::Bytes(65_536), Step::Bytes(1000)] {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        assert_eq!("1.5M".parse(), Ok(Step::Bytes(3 << 19)));
        for text in ["", "cp", "one_buffer", "teleport", "Sendfile"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
        for text in ["", "0", "-1", "hole", "1.5X"] {
            assert!(text.parse::<Step>().is_err(), "{text}");
        }
    }
}
