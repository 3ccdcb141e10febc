//! Prints what `underpass put` reports while it sends.

use indicatif::BinaryBytes;
use underpass_client::upload::UploadEvent;
use underpass_receipt::shown;

/// Returns the line about an event of an upload, if it is to be shown.
pub(crate) fn event(event: &UploadEvent<'_>) -> Option<String> {
    Some(match event {
        UploadEvent::Resumed { at } => {
            format!("the server has {}: resuming there", BinaryBytes(*at))
        }
        UploadEvent::StartedOver { reason } => format!("starting over: {reason}"),
        UploadEvent::Redirected { to } => format!("the server redirects to {}", shown(to)),
        UploadEvent::Again { error, wait, resumes } => {
            let how = if *resumes { "resuming from there" } else { "starting over" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
        UploadEvent::PartsLeft { upload, error } => format!(
            "the store still has parts of the upload {upload}, which could not be removed: {error}"
        ),
        UploadEvent::Progress(_) => return None,
    })
}
