//! Latencies by the million in a few pages: a count for each of 64 parts of each power of two, so
//! that whatever is read from it is at most 1.6 % too large, and never larger than the largest.

use std::time::Duration;

use super::record::Latency;

/// How often which latency was seen.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    /// One without any.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; place(u64::MAX) + 1], total: 0, max: 0 }
    }

    /// Adds a latency.
    pub(crate) fn add(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[place(nanoseconds)] += 1;
        self.total += 1;
        self.max = self.max.max(nanoseconds);
    }

    /// How many there are.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// What the record tells of them; none of none.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        Some(Latency {
            p50_s: seconds(self.quantile(0.5)?),
            p99_s: seconds(self.quantile(0.99)?),
            max_s: seconds(self.max),
        })
    }

    /// The nanoseconds that a part of all latencies does not exceed; none of none.
    fn quantile(&self, part: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = ((self.total as f64 * part).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        reached.map(|place| largest(place).min(self.max))
    }
}

/// The count to which a value belongs.
const fn place(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let power = value.ilog2() - PARTS.ilog2();
    (power as u64 * PARTS + (value >> power)) as usize
}

/// The largest value that belongs to a count.
const fn largest(place: usize) -> u64 {
    let place = place as u64;
    if place < PARTS {
        return place;
    }
    let power = place / PARTS - 1;
    let part = PARTS + place % PARTS;
    (part << power) + ((1 << power) - 1)
}

/// Parts of a power of two.
const PARTS: u64 = 64;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_one_place_and_the_places_are_in_order() {
        let powers = (0..64).map(|shift| 1_u64 << shift);
        let around = |value: u64| [value - 1, value, value.saturating_add(1), value + value / 3];
        let mut values: Vec<u64> = powers.flat_map(around).chain([u64::MAX]).collect();
        values.sort_unstable();
        for pair in values.windows(2) {
            assert!(place(pair[0]) <= place(pair[1]), "{pair:?}");
        }
        for value in values {
            let limit = largest(place(value));
            assert!(limit >= value && limit - value <= value / PARTS, "{value} {limit}");
            assert_eq!(place(limit), place(value));
            assert!(limit == u64::MAX || place(limit + 1) == place(value) + 1, "{value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values_and_at_most_a_64th_too_large() {
        let mut state = 7_u64;
        let mut values: Vec<u64> = Vec::new();
        let mut histogram = Histogram::new();
        for _ in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            values.push((state >> 33) % 50_000_000);
            histogram.add(Duration::from_nanos(values[values.len() - 1]));
        }
        values.sort_unstable();
        for (part, index) in [(0.0, 0), (0.5, 4999), (0.99, 9899), (0.999, 9989), (1.0, 9999)] {
            let (exact, found) = (values[index], histogram.quantile(part).unwrap());
            assert!(found >= exact && found - exact <= exact / PARTS, "{part}: {exact} {found}");
        }
        assert_eq!(histogram.total(), 10_000);
    }

    #[test]
    fn no_latencies_have_no_quantile_and_one_is_all_of_them() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.latency(), None);
        histogram.add(Duration::from_millis(3));
        let latency = histogram.latency().unwrap();
        assert_eq!((latency.p50_s, latency.p99_s, latency.max_s), (0.003, 0.003, 0.003));
    }
}
