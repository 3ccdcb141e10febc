//! What many samples say together: medians, extremes, and ratios within a round. Pure functions of
//! a record.

use super::plan::Variant;
use super::record::{Cell, Record, Sample, Scenario, Side, Thread};
use super::serve::Served;
use super::way::Way;

/// Several values as three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The middle one, or the mean of the two in the middle.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Time.
    Wall,
    /// Processor time of the side whose mechanism is varied.
    Cpu,
    /// Processor time of the other side.
    PeerCpu,
}

/// Sums up values; none of none.
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

impl Metric {
    /// The value of one sample, in seconds.
    pub(crate) fn of(self, scenario: Scenario, sample: &Sample) -> f64 {
        match self {
            Self::Wall => sample.wall_s,
            Self::Cpu => cpu(scenario, &sample.measured),
            Self::PeerCpu => sample.peer.as_ref().map_or(0.0, |side| cpu(scenario, side)),
        }
    }
}

/// Processor time of a side: of the thread that moved the bytes, but of the whole process where a
/// peer of which nothing else is known is in the table.
fn cpu(scenario: Scenario, side: &Side) -> f64 {
    match scenario {
        Scenario::Chain | Scenario::Net => side.thread.as_ref().map_or(0.0, Thread::cpu_s),
        // The bench's own threads are no processes.
        Scenario::ArticleChunks | Scenario::ArticleTable | Scenario::Limit => {
            let thread = side.thread.as_ref().map_or(0.0, Thread::cpu_s);
            side.process.map_or(thread, |process| process.cpu_s)
        }
        Scenario::ArticleCopy
        | Scenario::Copy
        | Scenario::Cp
        | Scenario::Get
        | Scenario::Hostile
        | Scenario::Put
        | Scenario::Scale
        | Scenario::Serve
        | Scenario::ServeFairness
        | Scenario::ServeHandshakes
        | Scenario::ServeIdle
        | Scenario::Tree => side.process.map_or(0.0, |process| process.cpu_s),
    }
}

impl Record {
    /// Samples of a cell, by rounds.
    pub(crate) fn samples_of(&self, cell: usize) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.cell == cell)
    }

    /// A metric of a cell in seconds, or in seconds for one response; none if it was not measured.
    pub(crate) fn summary(&self, cell: usize, metric: Metric) -> Option<Summary> {
        self.summary_by(cell, |sample| Some(self.value(metric, sample)))
    }

    /// A metric of a sample, for one response if it is of responses.
    pub(crate) fn value(&self, metric: Metric, sample: &Sample) -> f64 {
        let parts = match &sample.served {
            Some(Served::Requests(load) | Served::Scale { load, .. }) => {
                load.bytes as f64 / self.cells[sample.cell].size as f64
            }
            _ => f64::from(self.arguments.responses.unwrap_or(1)),
        };
        metric.of(self.scenario, sample) / parts
    }

    /// Some value of each sample of a cell; none if no sample has it.
    pub(crate) fn summary_by(
        &self,
        cell: usize,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Summary> {
        summarize(self.samples_of(cell).filter_map(value))
    }

    /// How a metric of a cell stands to that of the baseline of the same size, round by round.
    pub(crate) fn ratio(&self, cell: usize, metric: Metric) -> Option<Summary> {
        self.ratio_by(cell, |sample| Some(self.value(metric, sample)))
    }

    /// How some value of each sample of a cell stands to that of the baseline, likewise.
    pub(crate) fn ratio_by(
        &self,
        cell: usize,
        value: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<Summary> {
        self.ratio_between(cell, self.like(&self.cells[cell], self.baseline)?, value)
    }

    /// How some value of each sample of a cell stands to that of another cell, round by round.
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

    /// Something else that was counted, in the middle of all samples of a cell.
    pub(crate) fn median(
        &self,
        cell: usize,
        count: impl Fn(&Sample) -> Option<f64>,
    ) -> Option<f64> {
        self.summary_by(cell, count).map(|summary| summary.median)
    }

    /// The cell of a variant that is like another one in everything else.
    pub(crate) fn like(&self, cell: &Cell, variant: Variant) -> Option<usize> {
        let is_like = |other: &Cell| {
            let point = |cell: &Cell| (cell.size, cell.connections, cell.load);
            point(other) == point(cell) && other.variant == variant
        };
        self.cells.iter().position(is_like)
    }

    /// The cell of a size and a variant.
    pub(crate) fn cell(&self, size: u64, variant: Variant) -> Option<usize> {
        self.cells.iter().position(|cell| (cell.size, cell.variant) == (size, variant))
    }

    /// Every way besides the baseline, once, in the order of the record.
    pub(crate) fn ways(&self) -> Vec<Way> {
        let mut ways = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.variant != self.baseline) {
            if !ways.contains(&cell.variant.way) {
                ways.push(cell.variant.way);
            }
        }
        ways
    }

    /// Every size, once, in the order of the record.
    pub(crate) fn sizes(&self) -> Vec<u64> {
        let mut sizes = Vec::new();
        for cell in &self.cells {
            if !sizes.contains(&cell.size) {
                sizes.push(cell.size);
            }
        }
        sizes
    }

    /// The cell of a way at the step that takes the least time, besides the baseline; a declined
    /// one if there is no other.
    pub(crate) fn best(&self, size: u64, way: Way) -> Option<usize> {
        let is_candidate = |index: &usize| {
            let cell = &self.cells[*index];
            cell.size == size && cell.variant.way == way && cell.variant != self.baseline
        };
        let time = |index: &usize| {
            self.summary(*index, Metric::Wall).map_or(f64::INFINITY, |summary| summary.median)
        };
        (0..self.cells.len())
            .filter(is_candidate)
            .min_by(|one, other| time(one).total_cmp(&time(other)))
    }

    /// Up to which size the baseline costs less processor time than `way`; 0 if at no size. That
    /// limit is taken under which all sizes together, each with the same weight, cost least.
    pub(crate) fn crossover(&self, way: Way) -> u64 {
        let mut gains: Vec<(u64, f64)> = self
            .sizes()
            .into_iter()
            .filter_map(|size| {
                let ratio = self.ratio(self.best(size, way)?, Metric::Cpu)?;
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::fixture::{chain_record, net_record};

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_two() {
        assert_eq!(summarize([]), None);
        let one = Summary { median: 3.0, min: 3.0, max: 3.0 };
        assert_eq!(summarize([3.0]), Some(one));
        let odd = Summary { median: 2.0, min: 1.0, max: 9.0 };
        assert_eq!(summarize([9.0, 1.0, 2.0]), Some(odd));
        let even = Summary { median: 2.5, min: 1.0, max: 9.0 };
        assert_eq!(summarize([9.0, 3.0, 1.0, 2.0]), Some(even));
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        // The second round was twice as slow for both: no ratio shows it.
        let record = net_record();
        let sendfile = record.best(1 << 20, Way::Only(underpass_engine::Mechanism::Sendfile));
        let ratio = record.ratio(sendfile.unwrap(), Metric::Wall).unwrap();
        assert_eq!((ratio.min, ratio.max), (0.25, 0.25));
        let wall = record.summary(sendfile.unwrap(), Metric::Wall).unwrap();
        assert_eq!((wall.min, wall.max), (0.025, 0.05));
    }

    #[test]
    fn the_best_step_is_the_fastest_and_never_the_baseline_or_a_declined_one() {
        let record = net_record();
        let best = |way| {
            let cell = record.best(1 << 20, Way::Only(way)).unwrap();
            record.cells[cell].variant.to_string()
        };
        assert_eq!(best(underpass_engine::Mechanism::Sendfile), "sendfile 64K");
        assert_eq!(best(underpass_engine::Mechanism::ReadWrite), "read_write 64K");
        assert_eq!(best(underpass_engine::Mechanism::Splice), "splice 4K");
    }

    #[test]
    fn the_crossover_is_where_the_other_way_becomes_cheaper_in_spite_of_an_outlier() {
        let way = Way::Only(underpass_engine::Mechanism::Sendfile);
        let sizes = [1, 2, 4, 8, 16];
        let crossover = |ratios: [f64; 5]| chain_record(&sizes, &ratios).crossover(way);
        assert_eq!(crossover([1.5, 1.4, 1.1, 0.9, 0.5]), 4);
        assert_eq!(crossover([1.5, 0.98, 1.3, 0.9, 0.5]), 4);
        assert_eq!(crossover([0.9, 0.9, 0.9, 0.9, 0.5]), 0);
        assert_eq!(crossover([2.0, 2.0, 2.0, 2.0, 2.0]), 16);
    }
}
