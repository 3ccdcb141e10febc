//! Prints what `underpass put` reports while it sends.

use indicatif::BinaryBytes;
use underpass_client::upload::Event;

/// Returns the line about an event of an upload, if it is to be shown.
pub(crate) fn event(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Resumed { at } => format!("the server has {}: going on there", BinaryBytes(*at)),
        Event::StartedOver { reason } => format!("starting over: {reason}"),
        Event::Redirected { to } => format!("the server redirects to {to}"),
        Event::Again { error, wait, resumes } => {
            let how = if *resumes { "going on from there" } else { "sending it once more" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
        Event::PartsLeft { upload, error } => format!(
            "the store still has parts of the upload {upload}, and was asked in vain to remove them: {error}"
        ),
        Event::Progress(_) => return None,
    })
}
