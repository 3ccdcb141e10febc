//! The values of options.

use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use underpass_engine::Size;
use underpass_server::server::MinFree;

use crate::args::seconds;

/// `on` or `off`; `true`, `yes` and `1`, and their opposites, mean the same.
pub(super) fn on_or_off() -> impl TypedValueParser<Value = bool> {
    let on = PossibleValue::new("on").aliases(["true", "yes", "y", "t", "1"]);
    let off = PossibleValue::new("off").aliases(["false", "no", "n", "f", "0"]);
    let is_on = on.clone();
    PossibleValuesParser::new([on, off]).map(move |text| is_on.matches(&text, true))
}

/// A rate at which something moves.
pub(super) fn rate(text: &str) -> Result<Size, String> {
    match text.parse() {
        Ok(Size(0)) => Err("at a rate of 0 nothing would ever arrive".to_owned()),
        Ok(size) => Ok(size),
        Err(error) => Err(error.to_string()),
    }
}

/// A number of bytes, or hundredths of the file system.
pub(super) fn min_free(text: &str) -> Result<MinFree, String> {
    let fail = || "write a size such as 10G, or a share of the disk from 0% to 99%".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent = percent.parse().ok().filter(|percent| *percent < 100);
            percent.map(MinFree::Percent).ok_or_else(fail)
        }
        None => text.parse().map(|Size(bytes)| MinFree::Bytes(bytes)).map_err(|_| fail()),
    }
}

/// A time such as `90`, `60s`, `5m`, `2h` or `1d`.
pub(in super::super) fn time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        _ => 0,
    };
    let seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    match seconds {
        Some(seconds) if scale > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err("write seconds, or a number with s, m, h or d".to_owned()),
    }
}

/// Seconds, of which there may be none.
pub(super) fn seconds_or_none(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { seconds(text) }
}
