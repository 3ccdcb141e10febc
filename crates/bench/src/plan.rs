//! What is measured: every way of moving bytes at every size, and what the others are compared
//! with. Pure, so that what a run will do can be tested without running it.

use std::fmt;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

use super::way::{Choice, Step, Way};

/// A way with a step: what one column or line of a table is about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Variant {
    /// How the bytes are moved.
    pub(crate) way: Way,
    /// How many by one call.
    pub(crate) step: Step,
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
}
