//! What requests cost the thread that they share with others.

use underpass_engine::{Error, Status, Usage};

use super::send::Moving;
use super::settings::Settings;
use crate::access_log::LogFormat;

/// Takes the next turn of a transfer, and adds what it cost if the log tells that: asking takes a
/// microsecond, which nobody who does not want to know should pay.
pub(super) fn advance(
    settings: &Settings,
    transfer: &mut Moving<'_>,
    sum: &mut Usage,
) -> Result<Status, Error> {
    if !settings.log.as_ref().is_some_and(LogFormat::tells_cost) {
        return transfer.advance();
    }
    let before = Usage::of_this_thread();
    let outcome = transfer.advance();
    *sum = *sum + (Usage::of_this_thread() - before);
    outcome
}
