//! Axes: the position of a value, and the ticks.

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AxisScale {
    /// A linear scale that starts at 0.
    Linear { high: f64 },
    /// A logarithmic scale.
    Log {
        /// The value at the start; 0 lies before it, if there is one.
        low: f64,
        high: f64,
        /// Whether some value is 0, which then gets a separate place.
        zero: bool,
        /// The base whose powers are round numbers.
        base: Base,
    },
}

/// The base whose powers are round numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// 10, with 2 and 5 in between.
    Ten,
    /// 2, as bytes are counted.
    Two,
}

impl AxisScale {
    /// Creates a scale that begins at 0.
    pub(crate) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let high = if max > 0.0 { max } else { 1.0 };
        let unit = step(high);
        Self::Linear { high: (high / unit - 1e-9).ceil() * unit }
    }

    /// Creates a logarithmic scale if values differ by more than `factor`, otherwise a linear one.
    pub(crate) fn fit(values: &[f64], factor: f64, base: Base) -> Self {
        let positive = || values.iter().copied().filter(|value| *value > 0.0 && value.is_finite());
        let (min, max) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
        if max <= 0.0 || max / min < factor {
            return Self::linear(values.iter().copied());
        }
        let zero = values.iter().any(|value| *value <= 0.0);
        let (low, high) = match base {
            Base::Ten => (round_down(min), round_up(max)),
            Base::Two => (min.log2().floor().exp2(), max.log2().ceil().exp2()),
        };
        Self::Log { low, high, zero, base }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(crate) fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { high } => value / high,
            Self::Log { .. } if value <= 0.0 => 0.0,
            Self::Log { low, high, zero, .. } => {
                let place = (value / low).ln() / (high / low).ln();
                if zero { ZERO_SHARE + place.max(0.0) * (1.0 - ZERO_SHARE) } else { place }
            }
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 1.0) }
    }

    /// Returns whether lengths are meaningless, so that no bar may be drawn.
    pub(crate) const fn is_log(self) -> bool {
        matches!(self, Self::Log { .. })
    }

    pub(crate) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { high } => {
                let unit = step(high);
                let count = (high / unit).round() as u32;
                (0..=count).map(|number| f64::from(number) * unit).collect()
            }
            Self::Log { low, high, zero, base } => {
                let mut ticks = if zero { vec![0.0] } else { Vec::new() };
                ticks.extend(match base {
                    Base::Ten => decades(low, high),
                    Base::Two => doublings(low, high),
                });
                ticks
            }
        }
    }
}

/// Returns round values between two, as many as can be read.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let within = |value: &f64| *value >= low * 0.999 && *value <= high * 1.001;
    let of = |digits: &'static [f64]| {
        let values = (first..=last)
            .flat_map(move |ten| digits.iter().map(move |digit| digit * 10_f64.powi(ten)));
        values.filter(within).collect::<Vec<_>>()
    };
    let (fine, coarse) = (of(&[1.0, 2.0, 5.0]), of(&[1.0]));
    match (fine.len(), coarse.len()) {
        (..=8, _) => fine,
        (_, ..=7) => coarse,
        (_, count) => coarse.into_iter().step_by(count.div_ceil(6)).collect(),
    }
}

/// Powers of 2 between two, as many as can be read.
fn doublings(low: f64, high: f64) -> Vec<f64> {
    let (first, last) = (low.log2().round() as i32, high.log2().round() as i32);
    let distance = (last - first).unsigned_abs().div_ceil(6).max(1);
    let powers = (first..=last).step_by(distance as usize);
    powers.map(|power| f64::from(power).exp2()).collect()
}

/// Returns the distance of the ticks of a scale from 0 to `high`, so that there are about four.
fn step(high: f64) -> f64 {
    let ten = 10_f64.powf((high / 4.0).log10().floor());
    let digits = [1.0, 2.0, 2.5, 5.0, 10.0];
    let fits = |digit: &&f64| high / (**digit * ten) <= 5.0 + 1e-9;
    digits.iter().find(fits).map_or(10.0 * ten, |digit| digit * ten)
}

/// Returns the next of 1, 2 and 5 and their tens downwards.
fn round_down(value: f64) -> f64 {
    let ten = 10_f64.powf(value.log10().floor());
    let digit = [5.0, 2.0, 1.0].into_iter().find(|digit| digit * ten <= value * 1.000_001);
    digit.unwrap_or(0.5) * ten
}

/// Returns the next of 1, 2 and 5 and their tens upwards.
fn round_up(value: f64) -> f64 {
    let ten = 10_f64.powf(value.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * ten >= value * 0.999_999);
    digit.unwrap_or(10.0) * ten
}

/// The part of a logarithmic axis that is before its first tick, where 0 is.
const ZERO_SHARE: f64 = 0.12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_logarithmic_only_if_values_differ_much() {
        assert_eq!(AxisScale::fit(&[1.0, 3.0], 10.0, Base::Ten), AxisScale::Linear { high: 3.0 });
        let log = AxisScale::fit(&[0.003, 0.9], 10.0, Base::Ten);
        assert_eq!(log, AxisScale::Log { low: 0.002, high: 1.0, zero: false, base: Base::Ten });
        assert_eq!((log.place(0.002), log.place(1.0)), (0.0, 1.0));
        assert!(AxisScale::fit(&[], 10.0, Base::Two) == AxisScale::Linear { high: 1.0 });
    }

    #[test]
    fn zero_has_a_position_on_a_logarithmic_scale() {
        let log = AxisScale::fit(&[0.0, 1.0, 1000.0], 10.0, Base::Ten);
        assert_eq!(log.place(0.0), 0.0);
        assert!(log.place(1.0) > 0.1);
        assert_eq!(log.ticks()[0], 0.0);
    }

    #[test]
    fn ticks_are_few_round_and_within() {
        assert_eq!(AxisScale::linear([0.93].into_iter()).ticks().len(), 6);
        assert_eq!(
            AxisScale::Log { low: 0.002, high: 0.05, zero: false, base: Base::Ten }.ticks().len(),
            5
        );
        let wide = AxisScale::Log { low: 1e-9, high: 1e9, zero: true, base: Base::Ten }.ticks();
        assert!((5..=9).contains(&wide.len()), "{wide:?}");
    }

    #[test]
    fn bytes_have_round_numbers_of_their_own() {
        let scale = AxisScale::fit(&[3.0, 300.0], 10.0, Base::Two);
        assert_eq!(scale.ticks(), [2.0, 8.0, 32.0, 128.0, 512.0]);
    }

    #[test]
    fn undrawable_values_are_placed_at_an_end_of_the_axis() {
        for scale in [
            AxisScale::Linear { high: 1.0 },
            AxisScale::Log { low: 1.0, high: 10.0, zero: false, base: Base::Ten },
        ] {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e300] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{value}");
            }
        }
    }
}
