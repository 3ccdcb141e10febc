//! The arguments of `fill`.

use std::path::PathBuf;

use clap::Args;
use jiff::civil::Time;
use underpass_client::{Url, input};
use underpass_engine::Size;

use crate::args::rate;
use crate::connection::HttpClientArgs;

/// The arguments of `fill`.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    /// The node to fill; http:// may be left out
    #[arg(long, value_name = "URL", value_parser = input::url)]
    pub(super) node: Url,

    /// A list of paths, one per line; - is standard input. A number after a path is its priority:
    /// higher ones are fetched first. Indented lines after a path are headers of its requests,
    /// NAME: VALUE, for a node with --vary-on
    #[arg(long, value_name = "LIST")]
    pub(super) manifest: PathBuf,

    /// Limit what the node fetches to SIZE bytes per second, such as 150M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(super) rate: Option<Size>,

    /// Fetch only between these times of day, such as 02:00-14:00
    #[arg(long, value_name = "FROM-TO", value_parser = window)]
    pub(super) between: Option<DailyWindow>,

    /// Print the receipt as one JSON object on standard output
    #[arg(long)]
    pub(super) json: bool,

    /// Print only errors, and what --json requests
    #[arg(short, long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) http: HttpClientArgs,
}

/// A time of each day, which may go past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DailyWindow {
    pub(super) from: Time,
    pub(super) to: Time,
}

impl DailyWindow {
    /// Returns whether a time of the day is in it.
    pub(super) fn has(self, time: Time) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&time)
        } else {
            time >= self.from || time < self.to
        }
    }
}

fn window(text: &str) -> Result<DailyWindow, String> {
    let time = |text: &str| Time::strptime("%H:%M", text.trim()).ok();
    let both = text.split_once('-').and_then(|(from, to)| Some((time(from)?, time(to)?)));
    match both {
        Some((from, to)) if from != to => Ok(DailyWindow { from, to }),
        _ => Err("write two times of day, such as 02:00-14:00".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::time;

    use super::*;

    #[test]
    fn windows_may_go_past_midnight() {
        let parsed = |text| window(text).ok();
        let day = DailyWindow { from: time(2, 0, 0, 0), to: time(14, 0, 0, 0) };
        let night = DailyWindow { from: time(22, 0, 0, 0), to: time(5, 30, 0, 0) };
        assert_eq!(parsed("02:00-14:00"), Some(day));
        assert_eq!(parsed("22:00 - 5:30"), Some(night));
        for text in ["", "2-3", "24:00-1:00", "1:00-1:60", "1:00-1:00", "1:00"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let inside = |window: DailyWindow| {
            [(1, 59), (2, 0), (13, 59), (14, 0), (22, 0)]
                .map(|(hour, minute)| window.has(time(hour, minute, 0, 0)))
        };
        assert_eq!(inside(day), [false, true, true, false, false]);
        assert_eq!(inside(night), [true, true, false, false, true]);
    }
}
