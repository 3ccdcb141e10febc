//! The mechanisms that are tried for two ends, in order: decisions without side effects.

use underpass_sys::Kind;

use crate::mechanisms::mechanism::Mechanism;

/// The choice of mechanisms, and how strict it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The cheapest mechanism that the kernel offers for the two ends.
    #[default]
    Auto,
    /// This mechanism first, then as with [`Policy::Auto`].
    Prefer(Mechanism),
    /// This mechanism only: if it declines, the transfer fails. Benchmarks and tests use it, so
    /// that a fallback is never measured or tested by mistake.
    Require(Mechanism),
}

impl Policy {
    /// Returns whether the kernel may encrypt: not if everything has to be copied through user
    /// space.
    #[must_use]
    pub fn allows_kernel_tls(self) -> bool {
        self != Self::Require(Mechanism::ReadWrite)
    }
}

/// The mechanisms still to be tried for one segment, cheapest first.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    /// The mechanism that the policy tries before the others.
    first: Option<Mechanism>,
    /// The mechanism to skip in the list because it was already tried first.
    skipped: Option<Mechanism>,
    ladder: &'static [Mechanism],
}

impl Candidates {
    /// Creates the candidates for moving bytes from `source` to `sink`.
    pub(crate) fn new(policy: Policy, source: Kind, sink: Kind, sink_appends: bool) -> Self {
        let ladder = ladder(source, sink, sink_appends);
        let (first, ladder) = match policy {
            Policy::Auto => (None, ladder),
            Policy::Prefer(mechanism) => (Some(mechanism), ladder),
            Policy::Require(mechanism) => (Some(mechanism), [].as_slice()),
        };
        Self { first, skipped: first, ladder }
    }
}

impl Iterator for Candidates {
    type Item = Mechanism;

    fn next(&mut self) -> Option<Mechanism> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        while let Some((next, rest)) = self.ladder.split_first() {
            self.ladder = rest;
            if Some(*next) != self.skipped {
                return Some(*next);
            }
        }
        None
    }
}

/// Returns the order for two kinds of ends, from the operations that the kernel implements.
///
/// The reasons, measured on Linux 6.18: splice needs a pipe at one end and sendfile a source with
/// pages or `splice_read`; none of them writes to a sink opened with `O_APPEND`.
fn ladder(source: Kind, sink: Kind, sink_appends: bool) -> &'static [Mechanism] {
    use Mechanism::{CopyFileRange, Mmap, ReadWrite, Reflink, Sendfile, Splice};
    match (source, sink) {
        _ if sink_appends => &[ReadWrite],
        (Kind::Pipe | Kind::Socket, _) => &[Splice, ReadWrite],
        (_, Kind::Pipe) => &[Splice, Sendfile, ReadWrite],
        (Kind::Regular, Kind::Regular) => &[Reflink, CopyFileRange, Sendfile, ReadWrite],
        (Kind::Regular, Kind::Socket) => &[Sendfile, Splice, Mmap, ReadWrite],
        (_, Kind::Socket | Kind::CharDevice) => &[Sendfile, Splice, ReadWrite],
        // Splice would add a pipe between two ends that are not pipes, and moves no byte that
        // sendfile could not: measured 3 to 5 times slower from file to file.
        (_, Kind::Regular | Kind::Block | Kind::Virtual) => &[Sendfile, ReadWrite],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preferred_mechanism_comes_first_and_once() {
        use Mechanism::{Mmap, ReadWrite, Sendfile, Splice};
        let policy = Policy::Prefer(Mmap);
        let order: Vec<_> = Candidates::new(policy, Kind::Regular, Kind::Socket, false).collect();
        assert_eq!(order, [Mmap, Sendfile, Splice, ReadWrite]);
    }

    #[test]
    fn a_required_mechanism_stands_alone() {
        let policy = Policy::Require(Mechanism::Splice);
        let order: Vec<_> = Candidates::new(policy, Kind::Regular, Kind::Regular, false).collect();
        assert_eq!(order, [Mechanism::Splice]);
    }

    #[test]
    fn every_ladder_ends_with_the_mechanism_that_never_declines() {
        let kinds =
            [Kind::Block, Kind::CharDevice, Kind::Pipe, Kind::Regular, Kind::Socket, Kind::Virtual];
        for source in kinds {
            for sink in kinds {
                for appends in [false, true] {
                    let last = Candidates::new(Policy::Auto, source, sink, appends).last();
                    assert_eq!(last, Some(Mechanism::ReadWrite), "{source:?} to {sink:?}");
                }
            }
        }
    }
}
