//! The order of a run: every cell is verified first, then all take turns, A B C, B C A, C A B, so that
//! whatever the machine does meanwhile falls on all of them alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::child::own_seconds;
use super::counted::{Counted, Tally};
use super::environment::busy_seconds;
use super::plan::Variant;
use super::record::{Cell, Sample, Side, Thread};
use super::serve::Served;
use super::way::short_size;
use crate::error::{BenchError, Result};

/// Something that can be measured one cell at a time.
pub(crate) trait Course {
    /// Makes what the cells of a size have in common.
    fn prepare(&mut self, size: u64) -> Result<()>;

    /// Moves the bytes once and looks whether they are the right ones.
    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict>;

    /// Moves the bytes once and says what that cost.
    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured>;

    /// Moves the bytes once while the system calls of all processes are counted, and returns those
    /// of each; none if nobody counts.
    fn count(&mut self, _size: u64, _variant: Variant) -> Result<Vec<Tally>> {
        Ok(Vec::new())
    }

    /// How much of the progress a sample is: starting two processes takes as long as some MiB.
    fn weight(&self, size: u64) -> u64 {
        size.saturating_add(16 << 20)
    }
}

/// What a verifying pass found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All arrived; this is its digest.
    Arrived(String),
    /// The kernel does not do it here; this is its answer.
    Declined(String),
    /// A peer moved bytes of its own, of which nobody knows what they should be.
    Unknown,
}

/// What one measurement found; see [`Sample`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Seconds that the work took.
    pub(crate) wall_s: f64,
    /// The side whose mechanism is varied.
    pub(crate) measured: Side,
    /// The other side.
    pub(crate) peer: Option<Side>,
    /// What clients of a server saw.
    pub(crate) served: Option<Served>,
    /// Processor seconds of ours that are in neither side, as they were spent before and after.
    pub(crate) besides_cpu_s: f64,
}

impl Measured {
    /// What a side did, and the other one if there was one.
    pub(crate) const fn new(wall_s: f64, measured: Side, peer: Option<Side>) -> Self {
        Self { wall_s, measured, peer, served: None, besides_cpu_s: 0.0 }
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Results {
    /// What was measured.
    pub(crate) cells: Vec<Cell>,
    /// Every sample that counts.
    pub(crate) samples: Vec<Sample>,
    /// System calls, if they were counted.
    pub(crate) counted: Vec<Counted>,
}

/// What is to be measured, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    /// Sizes, one after the other.
    pub(crate) sizes: Vec<u64>,
    /// Variants, in turns.
    pub(crate) variants: Vec<Variant>,
    /// Rounds that are thrown away.
    pub(crate) warmup: u32,
    /// Rounds that count.
    pub(crate) runs: u32,
}

impl Schedule {
    /// Verifies and measures everything.
    pub(crate) fn run(&self, course: &mut impl Course, cancel: &AtomicBool) -> Result<Results> {
        let bar = self.bar(course);
        let mut results = Results::default();
        let outcome = self.sizes.iter().try_for_each(|size| {
            let Results { cells, samples, counted } = &mut results;
            bar.set_message(short_size(*size));
            course.prepare(*size)?;
            let first = cells.len();
            for variant in &self.variants {
                interrupted(cancel)?;
                cells.push(verified(course, *size, *variant)?);
                bar.inc(course.weight(*size));
            }
            for round in 0..self.warmup + self.runs {
                // Each round begins with another one, so that none always comes behind the same
                // one and finds the processor's caches as that one leaves them.
                let count = cells.len() - first;
                for index in (0..count).map(|turn| first + (turn + round as usize) % count) {
                    let cell = &cells[index];
                    bar.inc(course.weight(*size));
                    if cell.declined.is_some() {
                        continue;
                    }
                    interrupted(cancel)?;
                    let sample = sampled(index, || course.measure(cell.size, cell.variant))?;
                    // The first rounds only warm up the machine.
                    if let Some(round) = (round + 1).checked_sub(self.warmup).filter(|&n| n > 0) {
                        samples.push(Sample { round, ..sample });
                    }
                }
            }
            let are_there = (first..cells.len()).filter(|cell| cells[*cell].declined.is_none());
            counted.extend(self::counted(are_there, cancel, |cell| {
                course.count(*size, cells[cell].variant)
            })?);
            Ok(())
        });
        bar.finish_and_clear();
        outcome.map(|()| results)
    }

    /// A bar on standard error if that is a terminal. Nothing ticks: it is drawn between samples.
    fn bar(&self, course: &impl Course) -> ProgressBar {
        let rounds = u64::from(1 + self.warmup + self.runs);
        let weights: u64 = self.sizes.iter().map(|size| course.weight(*size)).sum();
        progress(weights * rounds * self.variants.len() as u64)
    }
}

/// What was counted of some cells, after all of their samples, as what counts takes time from what
/// is counted.
pub(crate) fn counted(
    cells: impl Iterator<Item = usize>,
    cancel: &AtomicBool,
    mut count: impl FnMut(usize) -> Result<Vec<Tally>>,
) -> Result<Vec<Counted>> {
    let mut counted = Vec::new();
    for cell in cells {
        interrupted(cancel)?;
        counted.extend(count(cell)?.into_iter().map(|tally| tally.of(cell)));
    }
    Ok(counted)
}

/// A bar on standard error if that is a terminal.
pub(crate) fn progress(len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len);
    match ProgressStyle::with_template("{msg:>5} {wide_bar} {percent}% {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Fails if a signal has come.
pub(crate) fn interrupted(cancel: &AtomicBool) -> Result<()> {
    match cancel.load(Ordering::Relaxed) {
        true => Err(BenchError::Interrupted),
        false => Ok(()),
    }
}

fn verified(course: &mut impl Course, size: u64, variant: Variant) -> Result<Cell> {
    let cell = Cell { size, variant, sha256: None, declined: None, connections: None, load: None };
    Ok(match course.verify(size, variant)? {
        Verdict::Arrived(sha256) => Cell { sha256: Some(sha256), ..cell },
        Verdict::Declined(errno) => Cell { declined: Some(errno), ..cell },
        Verdict::Unknown => cell,
    })
}

/// One sample of a cell, with what others did to the machine meanwhile. Its round is not known yet.
pub(crate) fn sampled(index: usize, measure: impl FnOnce() -> Result<Measured>) -> Result<Sample> {
    let (started, busy, own) = (Instant::now(), busy_seconds(), own_seconds());
    let Measured { wall_s, measured, peer, served, besides_cpu_s } = measure()?;
    let watched_s = started.elapsed().as_secs_f64();
    let own = own_seconds() - own;
    let ours = own
        + besides_cpu_s
        + [Some(&measured), peer.as_ref()].into_iter().flatten().map(cpu_of).sum::<f64>();
    let other_cpu_s = busy_seconds() - busy - ours;
    Ok(Sample { cell: index, round: 0, wall_s, measured, peer, watched_s, other_cpu_s, served })
}

/// All that a side spent: as a process, or as a thread of the bench.
fn cpu_of(side: &Side) -> f64 {
    let thread = side.thread.as_ref().map_or(0.0, Thread::cpu_s);
    side.process.map_or(thread, |process| process.cpu_s)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use underpass_engine::Mechanism;

    use super::*;
    use crate::record::Role;
    use crate::way::{Step, Way};

    /// Notes what it is asked to do; declines splice.
    #[derive(Default)]
    struct Diary(Vec<String>);

    impl Course for Diary {
        fn prepare(&mut self, size: u64) -> Result<()> {
            self.0.push(format!("prepare {size}"));
            Ok(())
        }

        fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
            self.0.push(format!("verify {size} {variant}"));
            Ok(match variant.way {
                Way::Only(Mechanism::Splice) => Verdict::Declined("EINVAL".to_owned()),
                _ => Verdict::Arrived("digest".to_owned()),
            })
        }

        fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
            self.0.push(format!("measure {size} {variant}"));
            let measured = Side { role: Role::Sender, elapsed_s: 1.0, thread: None, process: None };
            Ok(Measured::new(1.0, measured, None))
        }
    }

    fn schedule() -> Schedule {
        let only = |mechanism| Variant::new(Way::Only(mechanism), Step::Default);
        let variants = vec![
            only(Mechanism::ReadWrite),
            only(Mechanism::Splice),
            Variant::new(Way::Auto, Step::Default),
        ];
        Schedule { sizes: vec![1, 2], variants, warmup: 1, runs: 2 }
    }

    #[test]
    fn cells_are_verified_first_and_then_take_turns_and_the_declined_ones_sit_out() {
        let mut diary = Diary::default();
        let results = schedule().run(&mut diary, &AtomicBool::new(false)).unwrap();
        let Results { cells, samples, .. } = results;
        let of = |size| {
            let mut lines = vec![
                format!("prepare {size}"),
                format!("verify {size} read_write"),
                format!("verify {size} splice"),
                format!("verify {size} auto"),
            ];
            // Each round begins one further on: at read_write, at splice, at auto.
            for way in ["read_write", "auto", "auto", "read_write", "auto", "read_write"] {
                lines.push(format!("measure {size} {way}"));
            }
            lines
        };
        assert_eq!(diary.0, [of(1), of(2)].concat());
        assert_eq!(cells[1].declined.as_deref(), Some("EINVAL"));
        let order: Vec<_> = samples.iter().map(|sample| (sample.cell, sample.round)).collect();
        assert_eq!(order, [(2, 1), (0, 1), (2, 2), (0, 2), (5, 1), (3, 1), (5, 2), (3, 2)]);
    }

    #[test]
    fn a_signal_ends_the_run_before_the_next_sample() {
        let mut diary = Diary::default();
        let failure = schedule().run(&mut diary, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(failure, BenchError::Interrupted));
        assert_eq!(diary.0, ["prepare 1"]);
    }
}
