//! Values formatted for people.

use underpass_engine::Grouped;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    /// A plain count.
    Count,
    /// A fraction, shown as a percentage.
    Percent,
    Seconds,
    Times,
}

impl Unit {
    /// Formats a value with its unit: `1.23 ms`, `262,144`, `1.50 GiB`, `0.25x`.
    pub(crate) fn show(self, value: f64) -> String {
        if !value.is_finite() || value.abs() >= IMPLAUSIBLE {
            return format!("{value:.1e}");
        }
        match self {
            Self::Count if value.fract() == 0.0 && value >= 0.0 => {
                Grouped(value as u64).to_string()
            }
            Self::Count if value.abs() >= 999.5 => Grouped(value.round() as u64).to_string(),
            Self::Count if value > 0.0 && value < 0.1 => small(value),
            Self::Count => three_digits(value),
            Self::Percent => format!("{:.0} %", value * 100.0),
            Self::Times if value > 0.0 && value < 0.005 => "<0.01x".to_owned(),
            Self::Times => format!("{value:.2}x"),
            Self::Bytes if value == 0.0 => "0 B".to_owned(),
            Self::Seconds if value == 0.0 => "0 s".to_owned(),
            Self::Bytes | Self::Seconds => {
                let (least, name) = part(self.parts(), value);
                format!("{} {name}", three_digits(value / least))
            }
        }
    }

    /// Formats a value for an axis, as short as possible: `1 ms`, `256k`, `1 GiB`.
    pub(crate) fn tick(self, value: f64) -> String {
        let (least, name) = match self {
            Self::Count if value > 0.0 && value < 0.1 => return small(value),
            Self::Percent => (0.01, " %"),
            Self::Times => (1.0, "x"),
            Self::Bytes | Self::Seconds if value == 0.0 => return "0".to_owned(),
            Self::Bytes | Self::Seconds | Self::Count => part(self.parts(), value),
        };
        let number = format!("{:.2}", value / least);
        let number = number.trim_end_matches('0').trim_end_matches('.');
        let gap = if matches!(self, Self::Bytes | Self::Seconds) { " " } else { "" };
        format!("{number}{gap}{name}")
    }

    /// Returns the sizes and names of its parts, the largest first.
    const fn parts(self) -> &'static [(f64, &'static str)] {
        match self {
            Self::Bytes => &BYTES,
            Self::Seconds => &SECONDS,
            _ => &THOUSANDS,
        }
    }
}

/// Formats a value below 0.1 with two significant digits: `0.0012`.
fn small(value: f64) -> String {
    let digits = (1.0 - value.log10().floor()).clamp(2.0, 12.0) as usize;
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the largest part that fits into a value as it will be shown, or the smallest one.
fn part(parts: &[(f64, &'static str)], value: f64) -> (f64, &'static str) {
    let fits = |part: &&(f64, &'static str)| value.abs() >= part.0 * 0.9995;
    *parts.iter().find(fits).unwrap_or(&parts[parts.len() - 1])
}

const SECONDS: [(f64, &str); 4] = [(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
const BYTES: [(f64, &str); 5] = [
    ((1_u64 << 40) as f64, "TiB"),
    ((1_u64 << 30) as f64, "GiB"),
    ((1_u64 << 20) as f64, "MiB"),
    ((1_u64 << 10) as f64, "KiB"),
    (1.0, "B"),
];
/// Multiples of one piece.
const THOUSANDS: [(f64, &str); 4] = [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")];

/// Valid records contain no value as large as this one.
const IMPLAUSIBLE: f64 = 1e18;

/// Formats a value with three significant digits: `1234`, `123`, `12.3`, `1.23`.
pub(crate) fn three_digits(value: f64) -> String {
    match value {
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
