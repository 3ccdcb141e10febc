//! Sizes as users type them, and numbers as users read them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `4096`, `64K`, `1.5M`, `2G`, `1T`, in powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// The text is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASize;

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(NotASize),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        let number = |text: &str| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| is_number).ok_or(NotASize)
        };
        let bytes = number(whole)?.checked_mul(1 << shift).ok_or(NotASize)?;
        if part.is_empty() && digits.len() == whole.len() {
            return Ok(Self(bytes));
        }
        // A byte is indivisible, so more than nine digits gain nothing.
        let scale = u32::try_from(part.len()).ok().filter(|digits| *digits <= 9);
        let scale = 10_u128.pow(scale.ok_or(NotASize)?);
        let part = (u128::from(number(part)?) << shift) / scale;
        let part = u64::try_from(part).ok().filter(|_| shift > 0).ok_or(NotASize)?;
        bytes.checked_add(part).map(Self).ok_or(NotASize)
    }
}

impl fmt::Display for NotASize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sizes are numbers such as 4096, 64K, 1.5M or 2G")
    }
}

impl std::error::Error for NotASize {}

/// The space of a file system that is left free: a size such as `10G`, or a share of it, `5%`.
///
/// # Examples
///
/// ```
/// use underpass_engine::{MinFree, NotMinFree};
///
/// assert_eq!("10G".parse::<MinFree>()?, MinFree::Bytes(10 << 30));
/// assert_eq!("5%".parse::<MinFree>()?.of(4_000), 200);
/// # Ok::<(), NotMinFree>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinFree {
    /// A number of bytes.
    Bytes(u64),
    /// A percentage of the whole file system.
    Percent(u8),
}

impl MinFree {
    /// Returns the bytes that are left free on a file system of `whole` bytes. Inodes are counted in
    /// the same way.
    #[must_use]
    pub const fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => whole / 100 * percent as u64,
        }
    }
}

/// The text is neither a size nor a percentage below 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotMinFree;

impl FromStr for MinFree {
    type Err = NotMinFree;

    fn from_str(text: &str) -> Result<Self, NotMinFree> {
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.parse().ok().filter(|percent| *percent < 100);
                percent.map(Self::Percent).ok_or(NotMinFree)
            }
            None => text.parse().map(|Size(bytes)| Self::Bytes(bytes)).map_err(|_| NotMinFree),
        }
    }
}

impl fmt::Display for NotMinFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a size such as 10G, or a share of the disk from 0% to 99%")
    }
}

impl std::error::Error for NotMinFree {}

/// A number displayed with a comma between groups of three digits: `262,144`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_disk_is_below_100_percent() {
        assert_eq!("0%".parse(), Ok(MinFree::Percent(0)));
        for text in ["100%", "-1%", "%", "5.5%", "5 %", "ten", ""] {
            assert_eq!(text.parse::<MinFree>(), Err(NotMinFree), "{text}");
        }
    }

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 65_536),
            ("1m", 1 << 20),
            ("2GiB", 2 << 30),
            ("1.5M", 3 << 19),
            ("0.001K", 1),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn digits_are_grouped_by_three() {
        let texts = [0, 999, 1_000, 262_144, 1_234_567].map(|number| Grouped(number).to_string());
        assert_eq!(texts, ["0", "999", "1,000", "262,144", "1,234,567"]);
    }

    #[test]
    fn malformed_sizes_are_refused() {
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "1.5",
            "1.5B",
            "1.G",
            ".5G",
            "1.2.3K",
            "1.-5K",
            "1.0000000001G",
            "64Q",
            "1 K",
            "99999999999T",
            "0x10",
        ] {
            assert_eq!(text.parse::<Size>(), Err(NotASize), "{text}");
        }
    }
}
