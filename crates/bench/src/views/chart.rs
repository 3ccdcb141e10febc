//! Charts as values, made from a record alone, before they are drawn.

use super::axis::{AxisScale, Base};
use crate::record::{Contender, Metric, Rank, Record, Sample, Summary, Unit, short_size, unique};

#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Its name in file names and anchors.
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) unit: Unit,
    pub(crate) form: ChartKind,
    /// Its rows, in the order of the record.
    pub(crate) rows: Vec<ChartRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChartKind {
    /// A bar for each row.
    Bars,
    /// A line over all sizes for each label.
    Lines,
}

#[derive(Clone, Debug)]
pub(crate) struct ChartRow {
    /// The size of the file, or the number of connections.
    pub(crate) at: u64,
    /// `at` as text.
    pub(crate) place: String,
    pub(crate) label: String,
    /// The number of its colour and shape: 0 is the baseline's.
    pub(crate) style: usize,
    /// The value; none if it was not measured.
    pub(crate) summary: Option<Summary>,
    /// The ratio to the baseline, round by round; none of the baseline itself.
    pub(crate) ratio: Option<Summary>,
    /// The answer with which the kernel declined.
    pub(crate) declined: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    scale: AxisScale,
    /// The value of 1 on the scale: bytes are counted by powers of 1024.
    one: f64,
    unit: Unit,
}

/// Returns every chart of a record: over several sizes, and at one size for all variants.
pub(crate) fn charts(record: &Record) -> Vec<Chart> {
    let metrics = record.metrics(Rank::Chart);
    let sizes = record.sizes();
    let mut charts = Vec::new();
    if record.cells.iter().any(|cell| cell.connections.is_some()) {
        charts.extend(metrics.iter().flat_map(|metric| by_points(record, metric)));
    } else if sizes.len() > MAX_ADJACENT_SIZES {
        charts.extend(metrics.iter().map(|metric| over_sizes(record, metric)));
        if let Some(size) = sizes.iter().copied().max().filter(|_| record.has_steps()) {
            charts.extend(metrics.iter().map(|metric| at_sizes(record, metric, &[size])));
        }
    } else {
        charts.extend(metrics.iter().map(|metric| at_sizes(record, metric, &sizes)));
    }
    charts
}

/// Returns every contender at its best step, at every size.
fn over_sizes(record: &Record, metric: &Metric) -> Chart {
    let mut rows = Vec::new();
    for size in record.sizes() {
        let baseline = record.cell(size, record.baseline);
        rows.extend(baseline.map(|cell| row(record, metric, cell)));
        for contender in record.contenders() {
            let best = record.best(size, contender);
            let label = contender.label().to_owned();
            rows.extend(best.map(|cell| ChartRow { label, ..row(record, metric, cell) }));
        }
    }
    let step = if record.has_steps() {
        "; each contender at the step that took the least time"
    } else {
        ""
    };
    let note = format!("by the size of the file; {}{step}", metric.advice());
    Chart { note, ..Chart::new(record, metric, ChartKind::Lines, rows) }
}

/// Returns a metric by the number of connections, and by the size.
pub(crate) fn by_points(record: &Record, metric: &Metric) -> [Chart; 2] {
    [true, false].map(|by_connections| over_points(record, metric, by_connections))
}

/// Returns every contender by the number of connections at the size that has most of them, or by
/// the size at the number of connections that has most sizes.
fn over_points(record: &Record, metric: &Metric, by_connections: bool) -> Chart {
    let points = record.cells.iter().map(|cell| {
        let connections = u64::from(cell.connections.unwrap_or(1));
        if by_connections { (connections, cell.size) } else { (cell.size, connections) }
    });
    let points: Vec<_> = points.collect();
    let fixed = || points.iter().map(|(_, fixed)| *fixed);
    let count = |value: u64| fixed().filter(|fixed| *fixed == value).count();
    let held = fixed().max_by_key(|value| (count(*value), *value)).unwrap_or(0);
    let cells = points.iter().enumerate().filter(|(_, (_, fixed))| *fixed == held);
    let text = |at: u64| if by_connections { Unit::Count.show(at as f64) } else { short_size(at) };
    let row = |(cell, (at, _)): (usize, &(u64, u64))| ChartRow {
        at: *at,
        place: text(*at),
        ..row(record, metric, cell)
    };
    let rows = cells.map(row).collect();
    let (suffix, note) = if by_connections {
        ("connections", format!("by connections, each with a file of {}", short_size(held)))
    } else {
        ("sizes", format!("by the size of the file, {held} connections"))
    };
    let name = format!("{}-{suffix}", metric.name);
    let note = format!("{note}; {}", metric.advice());
    Chart { name, note, ..Chart::new(record, metric, ChartKind::Lines, rows) }
}

/// Returns every variant, at these sizes.
pub(crate) fn at_sizes(record: &Record, metric: &Metric, sizes: &[u64]) -> Chart {
    let cells = record.cells.iter().enumerate().filter(|(_, cell)| sizes.contains(&cell.size));
    let rows = cells.map(|(cell, _)| row(record, metric, cell)).collect();
    let at: Vec<_> = sizes.iter().map(|size| record.about.size_label(*size)).collect();
    // Several sizes are named by the headings of their bars.
    let at = match at.len() {
        1..=MAX_ADJACENT_SIZES => format!(", {}", at.join(" and ")),
        _ => String::new(),
    };
    let (name, note) = if record.sizes().len() > MAX_ADJACENT_SIZES && record.has_steps() {
        (format!("{}-steps", metric.name), "every step; ")
    } else {
        (metric.name.to_owned(), "")
    };
    let (title, note) =
        (format!("{}{at}", metric.heading(record)), format!("{note}{}", metric.advice()));
    Chart { name, title, note, ..Chart::new(record, metric, ChartKind::Bars, rows) }
}

fn row(record: &Record, metric: &Metric, index: usize) -> ChartRow {
    let cell = &record.cells[index];
    let value = |sample: &Sample| metric.value(record, sample);
    let is_baseline = cell.variant == record.baseline;
    ChartRow {
        at: cell.size,
        place: record.about.size_label(cell.size),
        label: cell.label(),
        style: if is_baseline { 0 } else { style(record, cell.variant.contender) },
        summary: record.summary_by(index, value),
        ratio: record.ratio_by(index, value).filter(|_| !is_baseline),
        declined: cell.declined.clone(),
    }
}

/// Returns the number of a contender's colour, which is the same everywhere for `underpass`.
fn style(record: &Record, contender: Contender) -> usize {
    let is_first =
        |contender: &Contender| matches!(contender, Contender::Auto | Contender::Underpass);
    if is_first(&contender) {
        return 1;
    }
    let is_measured = |contender: &Contender| {
        let mut cells = record.cells.iter().filter(|cell| cell.variant.contender == *contender);
        cells.any(|cell| cell.declined.is_none())
    };
    let others = record.contenders().into_iter();
    let others = others.filter(|other| !is_first(other) && is_measured(other));
    2 + others.take_while(|other| *other != contender).count()
}

impl Chart {
    /// Creates a chart by sizes, which may need another note.
    fn new(record: &Record, metric: &Metric, form: ChartKind, rows: Vec<ChartRow>) -> Self {
        Self {
            name: metric.name.to_owned(),
            title: metric.heading(record),
            note: metric.advice().to_owned(),
            unit: metric.unit,
            form,
            rows,
        }
    }

    pub(crate) fn axis(&self) -> Axis {
        let summaries = || self.rows.iter().filter_map(|row| row.summary);
        let max = summaries().map(|summary| summary.max).fold(0.0, f64::max);
        let one = match self.unit {
            Unit::Bytes => 1024_f64.powf((max.max(1.0).log2() / 10.0).floor()),
            _ => 1.0,
        };
        let values: Vec<f64> =
            summaries().flat_map(|summary| [summary.min / one, summary.max / one]).collect();
        // Counts differ by thousands where times differ by tens.
        let base = if self.unit == Unit::Bytes { Base::Two } else { Base::Ten };
        let scale = match (self.form, self.unit) {
            (_, Unit::Times) => AxisScale::linear(values.into_iter()),
            (ChartKind::Bars, _) => AxisScale::fit(&values, BAR_FACTOR, base),
            (ChartKind::Lines, _) => AxisScale::fit(&values, LINE_FACTOR, base),
        };
        Axis { scale, one, unit: self.unit }
    }

    /// Returns each label once with its style, in the order of the rows.
    pub(crate) fn labels(&self) -> Vec<(&str, usize)> {
        unique(self.rows.iter().map(|row| (row.label.as_str(), row.style)))
    }

    /// Returns each size or number of connections once, with its text, in ascending order.
    pub(crate) fn places(&self) -> Vec<(u64, &str)> {
        let mut places = unique(self.rows.iter().map(|row| (row.at, row.place.as_str())));
        places.sort_unstable();
        places
    }

    /// Returns a description for screen readers: each label with its value at the largest place.
    pub(crate) fn sentence(&self) -> String {
        let Some((at, place)) = self.places().into_iter().max() else {
            return "Nothing was measured.".to_owned();
        };
        let values = self.rows.iter().filter(|row| row.at == at).map(|row| {
            let value = match (row.summary, &row.declined) {
                (Some(summary), _) => self.unit.show(summary.median),
                (None, Some(_)) => "declined".to_owned(),
                (None, None) => "–".to_owned(),
            };
            match row.ratio {
                Some(ratio) => {
                    format!("{} {value} ({})", row.label, Unit::Times.show(ratio.median))
                }
                None => format!("{} {value}", row.label),
            }
        });
        let values: Vec<_> = values.collect();
        format!("At {place}: {}.", values.join(", "))
    }
}

impl Axis {
    /// Returns the place of a value, from 0 to 1.
    pub(crate) fn place(self, value: f64) -> f64 {
        self.scale.place(value / self.one)
    }

    /// Returns the places of the ticks, from 0 to 1, and their texts.
    pub(crate) fn ticks(self) -> Vec<(f64, String)> {
        let ticks = self.scale.ticks().into_iter();
        ticks.map(|tick| (self.scale.place(tick), self.unit.tick(tick * self.one))).collect()
    }

    pub(crate) const fn is_log(self) -> bool {
        self.scale.is_log()
    }
}

/// The maximum number of sizes that are shown as adjacent bars.
const MAX_ADJACENT_SIZES: usize = 2;

/// The ratio of values from which on they need a logarithmic axis.
const LINE_FACTOR: f64 = 10.0;
/// The ratio for bars, whose lengths mean nothing on a logarithmic axis.
const BAR_FACTOR: f64 = 100.0;
