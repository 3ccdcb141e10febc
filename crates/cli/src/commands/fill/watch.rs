//! Waits for the time of day, and reports what is tried again.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Zoned;
use underpass_client::ClientError;
use underpass_client::backoff::sleep;
use underpass_client::fill::FillObserver;

use super::args::FillArgs;
use crate::output;

/// Waits for the time of day, and reports what is tried again.
pub(super) struct FillWatch<'a> {
    pub(super) args: &'a FillArgs,
    pub(super) cancel: &'a AtomicBool,
}

impl FillObserver for FillWatch<'_> {
    fn wait(&self) -> bool {
        let mut is_reported = self.args.quiet;
        while let Some(window) = self.args.between.filter(|window| !window.has(Zoned::now().time()))
        {
            if !is_reported {
                output::note(&format!("waiting until {}", window.from.strftime("%H:%M")));
                is_reported = true;
            }
            if !sleep(LOOK_AT_CLOCK, &[self.cancel]) {
                return false;
            }
        }
        true
    }

    fn retrying(&self, path: &str, error: &ClientError, wait: Duration) {
        if !self.args.quiet {
            output::note_retry(&format_args!("{path}: {error}"), wait);
        }
    }
}

/// The interval at which the clock is checked outside the time window.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(5);
