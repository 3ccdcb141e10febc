//! `bench compare`: two records cell by cell, and which of their differences exceed the noise.

mod interval;
mod render;

use std::path::Path;

use self::interval::{Interval, interval};
use crate::error::{BenchError, Result};
use crate::record::{CALLS, Cell, Metric, Preference, Rank, Record, Sample, summarize};

/// Two records of one scenario, compared cell by cell.
#[derive(Debug)]
pub struct Comparison {
    records: [Record; 2],
    relative: bool,
    percent: f64,
    /// The cells that both records have, in the order of the new one.
    pub(super) lines: Vec<ComparedCell>,
    /// The cells that only the old record has, and those that only the new one has.
    pub(super) alone: [Vec<String>; 2],
    /// The differences other than the program.
    pub(super) caveats: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ComparedCell {
    pub(super) label: String,
    pub(super) metric: &'static Metric,
    /// The medians of the old and of the new record.
    pub(super) medians: [f64; 2],
    /// The new value as a multiple of the old one.
    pub(super) interval: Interval,
    pub(super) verdict: Difference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    Better,
    /// Too few rounds for a verdict.
    Few,
    /// No difference beyond noise, or none that matters.
    Same,
    Worse,
}

impl Comparison {
    /// Loads and compares two records: their values, or with `relative` the ratio of each contender
    /// to the baseline of its own record and round. Differences of up to `percent` do not matter.
    ///
    /// # Errors
    ///
    /// Those of [`Record::load`], and [`BenchError::Unlike`] if they cannot be compared.
    pub fn of(old: &Path, new: &Path, relative: bool, percent: f64) -> Result<Self> {
        let records = [Record::load(old)?, Record::load(new)?];
        let unlike = |why| BenchError::Unlike { old: old.to_owned(), new: new.to_owned(), why };
        let [old, new] = &records;
        if old.scenario != new.scenario {
            let (old, new) = (old.about.command, new.about.command);
            return Err(unlike(format!("one is of bench {old}, the other of bench {new}")));
        }
        let both = |(index, cell): (usize, &Cell)| Some([old.like(cell, cell.variant)?, index]);
        let cells = new.cells.iter().enumerate().filter_map(both);
        let margin = percent / 100.0;
        let lines: Vec<_> =
            cells.flat_map(|cells| lines([old, new], cells, relative, margin)).collect();
        if lines.is_empty() {
            return Err(unlike("they have no cell in common that both have measured".to_owned()));
        }
        let (alone, caveats) = ([without(old, new), without(new, old)], caveats(old, new));
        Ok(Self { records, relative, percent, lines, alone, caveats })
    }

    /// Returns the comparison as a table with a summary.
    #[must_use]
    pub fn table(&self) -> String {
        render::render(self)
    }

    /// Returns the number of compared values.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lines.len()
    }

    /// Returns the number of lines whose verdict is worse.
    #[must_use]
    pub fn worse(&self) -> usize {
        self.with_verdict(Difference::Worse)
    }

    fn with_verdict(&self, verdict: Difference) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }
}

fn without(record: &Record, other: &Record) -> Vec<String> {
    let is_alone = |cell: &Cell| other.like(cell, cell.variant).is_none();
    let alone = record.cells.iter().enumerate().filter(|(_, cell)| is_alone(cell));
    alone.map(|(index, _)| label(record, index)).collect()
}

/// Returns a cell of both records, a line for each metric that both have measured.
fn lines(
    records: [&Record; 2],
    cells: [usize; 2],
    relative: bool,
    margin: f64,
) -> Vec<ComparedCell> {
    let [_, new] = records;
    if relative && new.cells[cells[1]].variant == new.baseline {
        return Vec::new();
    }
    let line = |metric: &'static Metric| {
        let values = |side: usize| values(records[side], cells[side], metric, relative);
        let (old, new) = (values(0), values(1));
        let median = |values: &[f64]| Some(summarize(values.iter().copied())?.median);
        let (medians, interval) = ([median(&old)?, median(&new)?], interval(&old, &new)?);
        let (label, verdict) = (label(records[1], cells[1]), verdict(interval, metric, margin));
        Some(ComparedCell { label, metric, medians, interval, verdict })
    };
    // Calls are counted once, so their spread is unknown.
    let main = new.metrics(Rank::Main);
    // Some scenarios have no main metric.
    let metrics = if main.is_empty() { new.metrics(Rank::Chart) } else { main };
    metrics.into_iter().filter(|metric| metric.name != CALLS.name).filter_map(line).collect()
}

/// Returns the values of a cell, or their ratios to the baseline of the same round.
fn values(record: &Record, cell: usize, metric: &Metric, relative: bool) -> Vec<f64> {
    let value = |sample: &Sample| metric.value(record, sample);
    if !relative {
        return record.samples_of(cell).filter_map(value).collect();
    }
    let Some(base) = record.like(&record.cells[cell], record.baseline) else {
        return Vec::new();
    };
    let of_base = |round: u32| record.samples_of(base).find(|other| other.round == round);
    let ratio = |sample: &Sample| Some(value(sample)? / value(of_base(sample.round)?)?);
    record.samples_of(cell).filter_map(ratio).collect()
}

/// Returns the verdict: values differ only if the whole interval is beyond the margin.
fn verdict(interval: Interval, metric: &Metric, margin: f64) -> Difference {
    let Some((min, max)) = interval.bounds else { return Difference::Few };
    let grows = min > 1.0 + margin;
    let shrinks = max < 1.0 / (1.0 + margin);
    match (grows, shrinks, metric.preference) {
        (true, _, Some(Preference::More)) | (_, true, Some(Preference::Less)) => Difference::Better,
        (true, _, Some(Preference::Less)) | (_, true, Some(Preference::More)) => Difference::Worse,
        _ => Difference::Same,
    }
}

fn label(record: &Record, cell: usize) -> String {
    let size = record.about.size_label(record.cells[cell].size);
    format!("{size} {}", record.label(cell))
}

/// Returns the other differences between the runs, which may explain the result, too.
fn caveats(old: &Record, new: &Record) -> Vec<String> {
    let none = || "none".to_owned();
    let facts = |record: &Record| {
        let (at, arguments) = (&record.environment, &record.arguments);
        [
            ("the kernel", at.kernel.clone()),
            ("the processor", at.cpu.clone()),
            ("the number of cores", at.cores.to_string()),
            ("the memory", at.memory_bytes.to_string()),
            ("the file system of the source", at.source_file_system.clone()),
            ("the file system of the target", at.target_file_system.clone().unwrap_or_else(none)),
            ("the congestion control", at.congestion.clone().unwrap_or_else(none)),
            ("optimization", at.optimized.to_string()),
            ("the page cache, cold", arguments.cold.to_string()),
            ("the baseline", record.baseline.to_string()),
            ("the sink", format!("{:?}", arguments.sink)),
            ("the side", format!("{:?}", arguments.side)),
        ]
    };
    let pairs = facts(old).into_iter().zip(facts(new));
    let differ = pairs.filter(|((_, old), (_, new))| old != new);
    differ
        .map(|((name, old), (_, new))| format!("{name} was another one: {old}, then {new}"))
        .collect()
}
