//! The ratio of two runs with bounds: a rank sum test, which assumes nothing about the
//! distribution of the values.

use crate::record::summarize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interval {
    /// The middle of the ratios of each new value to each old one (Hodges and Lehmann).
    pub(crate) middle: f64,
    /// The lower and the upper bound; none if there are too few values.
    pub(crate) bounds: Option<(f64, f64)>,
}

/// Returns the ratio of the new values to the old ones; `None` if one is missing or not above 0.
pub(crate) fn interval(old: &[f64], new: &[f64]) -> Option<Interval> {
    let (old, new) = (&old[..old.len().min(MAX_VALUES)], &new[..new.len().min(MAX_VALUES)]);
    let is_sound = |value: &f64| value.is_finite() && *value > 0.0;
    if old.is_empty() || new.is_empty() || !old.iter().chain(new).all(is_sound) {
        return None;
    }
    let mut ratios: Vec<f64> =
        new.iter().flat_map(|new| old.iter().map(move |old| new / old)).collect();
    ratios.sort_by(f64::total_cmp);
    let middle = summarize(ratios.iter().copied())?.median;
    let cut = cut(old.len(), new.len());
    let bounds = (cut > 0).then(|| (ratios[cut - 1], ratios[ratios.len() - cut]));
    Some(Interval { middle, bounds })
}

/// Returns the place of the bounds among the sorted ratios, from either end, so that they hold
/// with at least 95 % confidence; 0 if no bounds do.
fn cut(old: usize, new: usize) -> usize {
    let counts = rank_sums(old, new);
    let all: f64 = counts.iter().sum();
    let mut below = 0.0;
    counts
        .iter()
        .take_while(|count| {
            below += **count / all;
            below <= (1.0 - CONFIDENCE) / 2.0 + 1e-12
        })
        .count()
}

/// Counts the orders of two groups with each number of inversions, which gives the distribution of
/// the Mann-Whitney statistic if both groups are alike. The index is the number of inversions.
fn rank_sums(old: usize, new: usize) -> Vec<f64> {
    // The Gaussian binomial coefficient: factors (1 - q^(old + i)) / (1 - q^i).
    let max = old * new;
    let mut counts = vec![0.0; max + 1];
    counts[0] = 1.0;
    for factor in 1..=new {
        for index in (old + factor..=max).rev() {
            counts[index] -= counts[index - old - factor];
        }
        for index in factor..=max {
            counts[index] += counts[index - factor];
        }
    }
    counts
}

pub(crate) const CONFIDENCE: f64 = 0.95;

/// The maximum number of values of each run that are used: more add only work.
const MAX_VALUES: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistic_is_spread_as_the_tables_say() {
        assert_eq!(rank_sums(2, 2), [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert_eq!(rank_sums(5, 5).iter().sum::<f64>(), 252.0);
        assert_eq!(rank_sums(5, 5)[..5], [1.0, 1.0, 2.0, 3.0, 5.0]);
        let many = rank_sums(MAX_VALUES, MAX_VALUES);
        assert!(many.iter().all(|count| *count >= 1.0 - 1e-6), "counts of orders");
    }

    #[test]
    fn bounds_are_where_tables_of_confidence_put_them() {
        // R: wilcox.test(conf.int = TRUE) with 5 and 5 values takes the 3rd from either end.
        for (old, new, place) in
            [(3, 3, 0), (3, 5, 1), (4, 4, 1), (5, 5, 3), (6, 6, 6), (10, 10, 24)]
        {
            assert_eq!(cut(old, new), place, "{old} and {new}");
        }
    }

    #[test]
    fn a_run_does_not_differ_from_itself_and_differs_from_one_twice_as_slow() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95];
        let same = interval(&values, &values).unwrap_or(Interval { middle: 0.0, bounds: None });
        assert!(same.bounds.is_some_and(|(min, max)| min < 1.0 && max > 1.0), "{same:?}");
        let twice = values.map(|value| value * 2.0);
        let slower = interval(&values, &twice).and_then(|interval| interval.bounds);
        assert!(slower.is_some_and(|(min, max)| min > 1.5 && max < 2.5), "{slower:?}");
    }

    #[test]
    fn too_few_values_have_no_bounds_and_unsound_ones_no_ratio() {
        let few = interval(&[1.0, 1.0, 1.0], &[2.0, 2.0, 2.0]);
        assert_eq!(few, Some(Interval { middle: 2.0, bounds: None }));
        for unsound in [&[][..], &[0.0], &[-1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(interval(unsound, &[1.0]), None, "{unsound:?}");
            assert_eq!(interval(&[1.0], unsound), None, "{unsound:?}");
        }
    }
}
