//! What is measured: every way of moving bytes at every size, and what the others are compared
//! with. Pure, so that what a run will do can be tested without running it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

use crate::size::Size;

/// A way of moving bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Way {
    /// Whatever `underpass` chooses by itself.
    Auto,
    /// This mechanism alone, required.
    Only(Mechanism),
    /// The peer: the `cp` of this system.
    Cp,
    /// Header and file from one buffer.
    OneBuffer,
}

/// How many bytes are asked for in one system call.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Step {
    /// What the way takes by itself.
    Default,
    /// So many.
    Bytes(u64),
    /// The whole file, or as much as the mechanism takes in one call.
    Whole,
}

/// A way with a step: what one column or line of a table is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Variant {
    /// How the bytes are moved.
    pub(crate) way: Way,
    /// How many by one call.
    pub(crate) step: Step,
}

/// What can be typed after `--mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Every way that makes sense for the scenario.
    All,
    /// One way.
    One(Way),
}

impl Variant {
    /// A way at a step.
    pub(crate) const fn new(way: Way, step: Step) -> Self {
        Self { way, step }
    }

    /// A mechanism at a step of so many bytes: what the others are compared with.
    pub(crate) const fn baseline(mechanism: Mechanism, step: u64) -> Self {
        Self::new(Way::Only(mechanism), Step::Bytes(step))
    }

    /// The arguments that make `send`, `recv` and `cp` do it, for a file of `size` bytes.
    pub(crate) fn arguments(self, size: u64) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Way::Only(mechanism) = self.way {
            arguments.extend(["--mechanism".to_owned(), mechanism.to_string()]);
        }
        let step = match self.step {
            Step::Default => None,
            Step::Bytes(bytes) => Some(bytes),
            Step::Whole => Some(size),
        };
        if let Some(bytes) = step {
            arguments.extend(["--step".to_owned(), bytes.to_string()]);
        }
        arguments
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Default => write!(f, "{}", self.way),
            step => write!(f, "{} {step}", self.way),
        }
    }
}

/// The ways that choices stand for, each one once.
pub(crate) fn ways(choices: &[Choice], all: &[Way]) -> Vec<Way> {
    let mut ways = Vec::new();
    for choice in choices {
        let chosen = match choice {
            Choice::All => all,
            Choice::One(way) => std::slice::from_ref(way),
        };
        for way in chosen {
            if !ways.contains(way) {
                ways.push(*way);
            }
        }
    }
    ways
}

/// Every variant to be measured, the baseline first; each one once.
pub(crate) fn variants(ways: &[Way], steps: &[Step], baseline: Variant) -> Vec<Variant> {
    let mut variants = vec![baseline];
    for way in ways {
        let own = [Step::Default];
        for step in if way.has_steps() { steps } else { &own } {
            let variant = Variant::new(*way, *step);
            if !variants.contains(&variant) {
                variants.push(variant);
            }
        }
    }
    variants
}

impl Way {
    /// Whether a step can be chosen: a clone is one call, and the others choose themselves.
    const fn has_steps(self) -> bool {
        matches!(self, Self::Only(mechanism) if !matches!(mechanism, Mechanism::Reflink))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(mechanism) => f.write_str(mechanism.name()),
            Self::Cp => f.write_str("cp"),
            Self::OneBuffer => f.write_str("one_buffer"),
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

/// A size as people type it: `7M`, `64K`, `1000`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A word that is no way, choice or step; holds what could have been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown(&'static str);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unknown {}

impl FromStr for Choice {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        const WORDS: &str = "mechanisms are all, auto, reflink, copy_file_range, sendfile, splice, mmap, read_write";
        match text {
            "all" => Ok(Self::All),
            "auto" => Ok(Self::One(Way::Auto)),
            name => {
                let mechanism = name.parse().map_err(|_| Unknown(WORDS))?;
                Ok(Self::One(Way::Only(mechanism)))
            }
        }
    }
}

impl FromStr for Way {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "auto" => Ok(Self::Auto),
            "cp" => Ok(Self::Cp),
            "one_buffer" => Ok(Self::OneBuffer),
            name => name.parse().map(Self::Only).map_err(|_| Unknown("no such way")),
        }
    }
}

impl FromStr for Step {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "default" => Ok(Self::Default),
            "whole" => Ok(Self::Whole),
            size => match size.parse() {
                Ok(Size(bytes)) if bytes > 0 => Ok(Self::Bytes(bytes)),
                _ => Err(Unknown("steps are sizes such as 4K or 1M, whole, or default")),
            },
        }
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.to_string()
    }
}

impl TryFrom<String> for Way {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.to_string()
    }
}

impl TryFrom<String> for Step {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASELINE: Variant = Variant::baseline(Mechanism::ReadWrite, 4 << 10);
    const SENDFILE: Way = Way::Only(Mechanism::Sendfile);

    #[test]
    fn the_baseline_is_measured_first_and_once_whatever_is_asked_for() {
        let all = [Way::Auto, SENDFILE, Way::Only(Mechanism::ReadWrite)];
        let steps = [Step::Bytes(4 << 10), Step::Whole];
        let names = |choices: &[Choice]| -> Vec<_> {
            let variants = variants(&ways(choices, &all), &steps, BASELINE);
            variants.iter().map(ToString::to_string).collect()
        };
        let every = ["read_write 4K", "auto", "sendfile 4K", "sendfile whole", "read_write whole"];
        assert_eq!(names(&[Choice::All]), every);
        assert_eq!(names(&[Choice::One(Way::Auto), Choice::All]), every);
        assert_eq!(names(&[Choice::One(Way::Auto)]), ["read_write 4K", "auto"]);
    }

    #[test]
    fn a_clone_has_no_steps() {
        let reflink = Way::Only(Mechanism::Reflink);
        let found = variants(&[reflink], &[Step::Bytes(1), Step::Whole], BASELINE);
        assert_eq!(found[1..], [Variant::new(reflink, Step::Default)]);
    }

    #[test]
    fn a_variant_becomes_the_arguments_of_the_commands() {
        let variant = Variant::new(SENDFILE, Step::Whole);
        assert_eq!(variant.arguments(7), ["--mechanism", "sendfile", "--step", "7"]);
        assert!(Variant::new(Way::Auto, Step::Default).arguments(7).is_empty());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for step in [Step::Default, Step::Whole, Step::Bytes(65_536), Step::Bytes(1000)] {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        for way in [Way::Auto, Way::Cp, Way::OneBuffer, SENDFILE] {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
    }

    #[test]
    fn what_is_no_choice_or_step_is_refused() {
        for text in ["", "cp", "one_buffer", "teleport", "Sendfile"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
        for text in ["", "0", "-1", "hole", "1.5M"] {
            assert!(text.parse::<Step>().is_err(), "{text}");
        }
    }
}
