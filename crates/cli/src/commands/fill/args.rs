//! What can be typed after `fill`.

use std::path::PathBuf;

use clap::Args;
use underpass_client::{Url, input};
use underpass_engine::Size;

use crate::args::rate;
use crate::connection::HttpClientArgs;

/// What can be typed after `fill`.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    /// The node to fill; http:// may be left out
    #[arg(long, value_name = "URL", value_parser = input::url)]
    pub(super) node: Url,

    /// A list of paths, one on each line, - for standard input; a number after a path is its
    /// priority: higher ones are fetched first. Indented lines below it are fields of requests for
    /// it, NAME: VALUE, if the node tells versions apart by them
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

/// A time of each day: minutes since midnight. It may go past midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DailyWindow {
    pub(super) from: u16,
    pub(super) to: u16,
}

impl DailyWindow {
    /// Returns whether a minute of the day is in it.
    pub(super) fn has(self, minute: u16) -> bool {
        match self.from < self.to {
            true => (self.from..self.to).contains(&minute),
            false => minute >= self.from || minute < self.to,
        }
    }
}

fn window(text: &str) -> Result<DailyWindow, String> {
    let minutes = |text: &str| {
        let (hours, minutes) = text.trim().split_once(':')?;
        let number = |text: &str, max| text.parse::<u16>().ok().filter(|number| *number < max);
        Some(number(hours, 24)? * 60 + number(minutes, 60)?)
    };
    let both = text.split_once('-').and_then(|(from, to)| Some((minutes(from)?, minutes(to)?)));
    match both {
        Some((from, to)) if from != to => Ok(DailyWindow { from, to }),
        _ => Err("write two times of day, such as 02:00-14:00".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_may_go_past_midnight() {
        let parsed = |text| window(text).ok();
        let day = DailyWindow { from: 120, to: 840 };
        let night = DailyWindow { from: 1320, to: 330 };
        assert_eq!(parsed("02:00-14:00"), Some(day));
        assert_eq!(parsed("22:00 - 5:30"), Some(night));
        for text in ["", "2-3", "24:00-1:00", "1:00-1:60", "1:00-1:00", "1:00"] {
            assert_eq!(parsed(text), None, "{text}");
        }
        let inside =
            |window: DailyWindow| [119, 120, 839, 840, 1320].map(|minute| window.has(minute));
        assert_eq!(inside(day), [false, true, true, false, false]);
        assert_eq!(inside(night), [true, true, false, false, true]);
    }
}
