//! What requests cost the thread that they share with others.

use underpass_engine::{Error, Status, Usage};

use crate::connection::send::Moving;
use crate::observe::access_log::LogFormat;
use crate::server::settings::Settings;

/// Takes the next turn of a transfer, and adds what it cost if the log tells that: asking takes a
/// microsecond, which nobody who does not want to know should pay.
pub(crate) fn advance(
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
