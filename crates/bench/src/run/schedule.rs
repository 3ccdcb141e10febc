//! The order of a run: every cell is verified first, then all take turns, A B C, B C A, C A B, so
//! that disturbances of the machine affect all of them alike.

use std::time::Instant;

use super::context::{Context, Start};
use super::files::RunFolder;
use super::process::own_seconds;
use super::survey::{busy_seconds, now};
use super::tracer::CallTracer;
use crate::error::{BenchError, Result};
use crate::record::{
    Arguments, Cell, Contender, Copies, Counted, Description, Environment, MissingContender,
    Record, SCHEMA, Sample, Served, Side, Step, Variant, unique,
};

/// Something that can be measured one cell at a time. Each scenario is in a separate file.
pub(crate) trait Scenario {
    /// Prepares the common parts of the cells of the same size and load.
    fn prepare(&mut self, cell: &Cell) -> Result<()>;

    /// Moves the bytes once and compares them.
    fn verify(&mut self, cell: &Cell) -> Result<Verification>;

    /// Moves the bytes once and returns the cost.
    fn sample(&mut self, cell: &Cell) -> Result<Measured>;

    /// Moves the bytes once while system calls are counted, and returns those of each process.
    fn count(&mut self, _cell: &Cell, _tracer: &CallTracer) -> Result<Vec<Counted>> {
        Ok(Vec::new())
    }

    /// Adds facts to the environment that are known only after the run.
    fn finish(&self, _environment: &mut Environment) {}
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// All arrived; this is its digest.
    Arrived(String),
    /// The kernel declined the mechanism, with this error.
    Declined(String),
    /// Another program moved its own bytes, whose digest is unknown.
    Unknown,
}

impl Verification {
    /// Returns the verdict on bytes that should have the digest `expected`.
    pub(crate) fn compare(
        arrived: String,
        expected: &str,
        what: impl std::fmt::Display,
    ) -> Result<Self> {
        if arrived == expected {
            Ok(Self::Arrived(arrived))
        } else {
            Err(BenchError::differs(what))
        }
    }
}

/// The result of one measurement; see [`Sample`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) wall_s: f64,
    /// The side that is varied.
    pub(crate) measured: Side,
    pub(crate) peer: Option<Side>,
    pub(crate) served: Option<Served>,
    /// Processor seconds of ours that are in neither side, as they were spent before and after.
    pub(crate) besides_cpu_s: f64,
}

impl Measured {
    /// Creates the result for a side, and for the other one if there is one.
    pub(crate) const fn new(wall_s: f64, measured: Side, peer: Option<Side>) -> Self {
        Self { wall_s, measured, peer, served: None, besides_cpu_s: 0.0 }
    }
}

/// A plan of measurements: a record without its results.
#[derive(Debug)]
pub(crate) struct RunPlan<'a> {
    context: &'a Context<'a>,
    pub(crate) arguments: Arguments,
    pub(crate) environment: Environment,
    /// Requested programs that cannot be measured.
    pub(crate) missing: Vec<MissingContender>,
    pub(crate) copies: Option<Copies>,
    /// The tracer that counts system calls, if requested.
    tracer: Option<CallTracer>,
    /// Cells that take turns, one group after the other.
    pub(crate) groups: Vec<Vec<Cell>>,
}

impl<'a> RunPlan<'a> {
    /// Plans to measure these sizes, by contenders that choose their steps.
    pub(crate) fn new(start: Start<'a>, sizes: &[u64], environment: Environment) -> Self {
        let arguments = Arguments {
            sizes: unique(sizes.iter().copied()),
            steps: vec![Step::Default],
            runs: start.run.runs,
            warmup: start.run.warmup,
            ..Arguments::default()
        };
        let (missing, copies, tracer, groups) = (Vec::new(), None, None, Vec::new());
        Self { context: start.context, arguments, environment, missing, copies, tracer, groups }
    }

    /// Plans to count system calls as well, using files in `folder`, unless `no_count` is set.
    pub(crate) fn count_calls_unless(&mut self, no_count: bool, folder: &RunFolder) {
        self.tracer = CallTracer::within(folder).filter(|_| !no_count);
        if self.tracer.is_none() && !no_count {
            self.add_missing(["strace"], "not installed, so no system calls were counted");
        }
    }

    /// Records contenders that are missing, and why.
    pub(crate) fn add_missing(&mut self, names: impl IntoIterator<Item = &'static str>, why: &str) {
        let missing = |name: &str| MissingContender { name: name.to_owned(), why: why.to_owned() };
        self.missing.extend(names.into_iter().map(missing));
    }

    /// Plans to measure these contenders, which choose their steps, at each size of the arguments.
    pub(crate) fn for_contenders(&mut self, contenders: Vec<Contender>) {
        let variants: Vec<_> = contenders.iter().copied().map(Variant::plain).collect();
        self.for_sizes(&variants);
        self.arguments.mechanisms = contenders;
    }

    /// Plans a group for each size of the arguments, with all variants.
    pub(crate) fn for_sizes(&mut self, variants: &[Variant]) {
        let group =
            |size: &u64| variants.iter().map(|variant| Cell::new(*size, *variant)).collect();
        self.groups = self.arguments.sizes.iter().map(group).collect();
    }

    /// Verifies and measures everything; the others are compared with `baseline`.
    pub(crate) fn measure(
        self,
        about: &'static Description,
        scenario: &mut dyn Scenario,
        baseline: Variant,
    ) -> Result<Record> {
        let Self { context, arguments, environment, missing, copies, tracer, groups } = self;
        let mut record = Record {
            schema: SCHEMA,
            scenario: about.name.to_owned(),
            about,
            underpass: env!("CARGO_PKG_VERSION").to_owned(),
            started: now(),
            arguments,
            environment,
            baseline,
            copies,
            cells: Vec::new(),
            samples: Vec::new(),
            counted: Vec::new(),
            missing,
        };
        let rounds = u64::from(1 + record.arguments.warmup + record.arguments.runs);
        let weights: u64 = groups.iter().flatten().map(|cell| record.weight(cell)).sum();
        context.observer.begin(weights.saturating_mul(rounds));
        let outcome = groups.into_iter().try_for_each(|group| {
            measure_group(&mut record, scenario, group, context, tracer.as_ref())
        });
        context.observer.end();
        scenario.finish(&mut record.environment);
        outcome.map(|()| record)
    }
}

impl Record {
    /// Returns the weight of a sample in the progress: with servers all take the same time, and
    /// starting two processes takes as long as moving some MiB.
    fn weight(&self, cell: &Cell) -> u64 {
        match self.arguments.serve {
            Some(_) => 1,
            None => cell.size.saturating_add(16 << 20),
        }
    }
}

/// Verifies the cells of a group, lets them take turns, and counts their calls.
fn measure_group(
    record: &mut Record,
    scenario: &mut dyn Scenario,
    group: Vec<Cell>,
    context: &Context<'_>,
    tracer: Option<&CallTracer>,
) -> Result<()> {
    let first = record.cells.len();
    for cell in group {
        context.observer.measuring(&record.about.size_label(cell.size));
        let cell = verified(&record.cells[first..], cell, scenario, context)?;
        context.observer.advance(record.weight(&cell));
        record.cells.push(cell);
    }
    let (warmup, count) = (record.arguments.warmup, record.cells.len() - first);
    for round in 0..warmup + record.arguments.runs {
        // Each round begins with another variant, so that none always follows the same one and
        // finds the processor's caches in the state that it left.
        for index in (0..count).map(|turn| first + (turn + round as usize) % count) {
            let cell = &record.cells[index];
            context.observer.advance(record.weight(cell));
            if cell.declined.is_some() {
                continue;
            }
            context.interrupted()?;
            if let Some(load) = cell.load {
                context.observer.measuring(&load.name());
            }
            let sample = sampled(index, || scenario.sample(cell))?;
            // The first rounds only warm up the machine.
            if let Some(round) = (round + 1).checked_sub(warmup).filter(|&round| round > 0) {
                record.samples.push(Sample { round, ..sample });
            }
        }
    }
    // After all samples, as counting slows the counted processes.
    let Some(tracer) = tracer else { return Ok(()) };
    for index in first..record.cells.len() {
        context.interrupted()?;
        if record.cells[index].declined.is_none() {
            let tallies = scenario.count(&record.cells[index], tracer)?;
            record.counted.extend(tallies.into_iter().map(|tally| tally.of(index)));
        }
    }
    Ok(())
}

/// Returns a cell with its verification, which all cells that differ only by connections share.
fn verified(
    earlier: &[Cell],
    cell: Cell,
    scenario: &mut dyn Scenario,
    context: &Context<'_>,
) -> Result<Cell> {
    let of_size = |other: &&Cell| (other.size, other.load) == (cell.size, cell.load);
    let same = earlier.iter().filter(of_size).find(|other| other.variant == cell.variant);
    if let Some(Cell { sha256, declined, .. }) = same {
        return Ok(Cell { sha256: sha256.clone(), declined: declined.clone(), ..cell });
    }
    if !earlier.iter().any(|other| of_size(&other)) {
        scenario.prepare(&cell)?;
    }
    context.interrupted()?;
    Ok(match scenario.verify(&cell)? {
        Verification::Arrived(sha256) => Cell { sha256: Some(sha256), ..cell },
        Verification::Declined(errno) => Cell { declined: Some(errno), ..cell },
        Verification::Unknown => cell,
    })
}

/// Takes one sample of a cell, with the processor time of other programs. The round is set later.
fn sampled(index: usize, measure: impl FnOnce() -> Result<Measured>) -> Result<Sample> {
    let (started, busy, own) = (Instant::now(), busy_seconds(), own_seconds());
    let Measured { wall_s, measured, peer, served, besides_cpu_s } = measure()?;
    let watched_s = started.elapsed().as_secs_f64();
    let own = own_seconds() - own;
    let sides = [Some(&measured), peer.as_ref()].into_iter().flatten();
    let ours = own + besides_cpu_s + sides.map(Side::cpu_s).sum::<f64>();
    let other_cpu_s = busy_seconds() - busy - ours;
    Ok(Sample { cell: index, round: 0, wall_s, measured, peer, watched_s, other_cpu_s, served })
}
