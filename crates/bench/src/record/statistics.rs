//! Statistics over many samples: medians, extremes, and ratios within a round. These are pure
//! functions of a record.

use super::{Cell, Contender, Record, Sample, Served, Side, Variant, unique};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// Returns the median and range of the values, or `None` if there are none.
pub(crate) fn summarize(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let median = match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    };
    Some(Summary { median, min, max })
}

impl Record {
    /// Returns the samples of a cell in the order of the rounds.
    pub(crate) fn samples_of(&self, cell: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.cell == cell)
    }

    /// Returns a time of a sample for one response if it is of responses, counted by their bytes.
    pub(crate) fn each(&self, sample: &Sample, seconds: f64) -> f64 {
        let responses = match &sample.served {
            Some(Served::Requests(load) | Served::Scale { load, .. }) => {
                load.bytes as f64 / self.cells[sample.cell].size as f64
            }
            _ => f64::from(self.arguments.responses.unwrap_or(1)),
        };
        seconds / responses
    }

    /// Returns the processor seconds of a side that count.
    pub(crate) fn cpu_s(&self, side: &Side) -> f64 {
        if self.about.by_thread { side.thread_cpu_s() } else { side.cpu_s() }
    }

    /// Summarizes a value of all samples of a cell; none if no sample has it.
    pub(crate) fn summary_by(
        &self,
        cell: usize,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Summary> {
        summarize(self.samples_of(cell).filter_map(value))
    }

    /// Returns the ratio of a value to that of the baseline of the same size, round by round.
    pub(crate) fn ratio_by(
        &self,
        cell: usize,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Summary> {
        self.ratio_between(cell, self.like(&self.cells[cell], self.baseline)?, value)
    }

    /// Returns the ratio of a value of a cell to that of another cell, round by round.
    pub(crate) fn ratio_between(
        &self,
        cell: usize,
        other: usize,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Summary> {
        self.summary_by(cell, |sample| {
            let other = self.samples_of(other).find(|other| other.round == sample.round)?;
            let other = value(other)?;
            (other > 0.0).then_some(value(sample)? / other)
        })
    }

    /// Returns the median of a value of all samples of a cell; none if no sample has it.
    pub(crate) fn median(
        &self,
        cell: usize,
        count: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        self.summary_by(cell, count).map(|summary| summary.median)
    }

    /// Returns the cell of a variant with the other parameters of this cell.
    pub(crate) fn like(&self, cell: &Cell, variant: Variant) -> Option<usize> {
        let is_like = |other: &Cell| other.point() == cell.point() && other.variant == variant;
        self.cells.iter().position(is_like)
    }

    pub(crate) fn cell(&self, size: u64, variant: Variant) -> Option<usize> {
        self.cells.iter().position(|cell| (cell.size, cell.variant) == (size, variant))
    }

    /// Returns every contender other than the baseline, once, in the order of the record.
    pub(crate) fn contenders(&self) -> Vec<Contender> {
        let others = self.cells.iter().filter(|cell| cell.variant != self.baseline);
        unique(others.map(|cell| cell.variant.contender))
    }

    /// Returns every size, once, in the order of the record.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        unique(self.cells.iter().map(|cell| cell.size))
    }

    /// Returns whether some contender was measured at several steps.
    pub(crate) fn has_steps(&self) -> bool {
        let others = || self.cells.iter().filter(|cell| cell.variant != self.baseline);
        let key = |cell: &Cell| (cell.point(), cell.variant.contender);
        others().any(|cell| others().filter(|other| key(other) == key(cell)).count() > 1)
    }

    /// Returns the label of a cell: its variant, the bad clients if there are any, and the
    /// connections if these are varied.
    pub(crate) fn label(&self, cell: usize) -> String {
        let cell = &self.cells[cell];
        let count = cell.connections.map(|count| format!(", {count} connections"));
        format!("{}{}", cell.label(), count.unwrap_or_default())
    }

    /// Returns the cell of a contender at the step that takes the least time, other than the
    /// baseline; a declined one if there is no other.
    pub(crate) fn best(&self, size: u64, contender: Contender) -> Option<usize> {
        let is_candidate = |index: &usize| {
            let cell = &self.cells[*index];
            cell.size == size
                && cell.variant.contender == contender
                && cell.variant != self.baseline
        };
        let time = |index: &usize| {
            let time = self.median(*index, |sample| Some(self.each(sample, sample.wall_s)));
            time.unwrap_or(f64::INFINITY)
        };
        (0..self.cells.len())
            .filter(is_candidate)
            .min_by(|one, other| time(one).total_cmp(&time(other)))
    }

    /// Returns the size up to which the baseline costs less processor time than `contender`; 0 if
    /// it never does. It is the limit that minimizes the cost of all sizes together, with equal
    /// weights.
    pub(crate) fn crossover(&self, contender: Contender) -> u64 {
        let mut gains: Vec<(u64, f64)> = self
            .sizes()
            .into_iter()
            .filter_map(|size| {
                let ratio = self.ratio_by(self.best(size, contender)?, |sample| {
                    Some(self.each(sample, self.cpu_s(&sample.measured)))
                })?;
                (ratio.median > 0.0).then(|| (size, ratio.median.ln()))
            })
            .collect();
        gains.sort_by_key(|(size, _)| *size);
        let cost = |limit: u64| -> f64 {
            gains.iter().filter(|(size, _)| *size > limit).map(|(_, gain)| gain).sum()
        };
        let limits = std::iter::once(0).chain(gains.iter().map(|(size, _)| *size));
        limits.min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or(0)
    }
}
