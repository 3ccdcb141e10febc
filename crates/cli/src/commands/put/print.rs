//! Prints what `underpass put` reports while it sends.

use indicatif::BinaryBytes;
use underpass_client::upload::UploadEvent;

/// Returns the line about an event of an upload, if it is to be shown.
pub(crate) fn event(event: &UploadEvent<'_>) -> Option<String> {
    Some(match event {
        UploadEvent::Resumed { at } => {
            format!("the server has {}: going on there", BinaryBytes(*at))
        }
        UploadEvent::StartedOver { reason } => format!("starting over: {reason}"),
        UploadEvent::Redirected { to } => format!("the server redirects to {to}"),
        UploadEvent::Again { error, wait, resumes } => {
            let how = if *resumes { "going on from there" } else { "sending it once more" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
        UploadEvent::PartsLeft { upload, error } => format!(
            "the store still has parts of the upload {upload}, and was asked in vain to remove them: {error}"
        ),
        UploadEvent::Progress(_) => return None,
    })
}
