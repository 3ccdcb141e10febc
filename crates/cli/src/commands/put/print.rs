//! The lines that `underpass put` prints.

use indicatif::BinaryBytes;
use underpass_client::upload::{UploadEvent, UploadOutcome};
use underpass_receipt::shown;

use crate::args::ShowArgs;
use crate::output::{counted, error_line, note};

/// Prints how many files the server had already.
pub(super) fn already_there(show: ShowArgs, count: u64, has_sent: bool) {
    if count > 0 && !show.quiet && !show.json {
        let there = counted(count, "file was", "files were");
        let what = if has_sent { "" } else { ", so nothing was sent" };
        error_line(&format!("{there} there already{what}"));
    }
}

/// Prints the outcome of the condition of an upload. A possible loss is reported even if quiet.
pub(super) fn condition(name: &str, done: &UploadOutcome, is_quiet: bool) {
    let at = shown(&done.url);
    if done.was_there && !is_quiet {
        note(&format!("{name}: already there: {at}"));
    }
    if done.may_have_replaced {
        let (status, word) = match done.status {
            201 => (201, "created, not replaced"),
            status => (status, "replaced"),
        };
        note(&format!(
            "{name}: {at} may have been {word}: the server answered {status}, so it may not \
             check the condition of -n or --if-match"
        ));
    }
}

/// Prints an event of an upload. Parts that are left, which cost money, are reported even if quiet.
pub(super) fn event(event: &UploadEvent<'_>, is_quiet: bool) {
    let line = match event {
        UploadEvent::PartsLeft { upload, error } => format!(
            "the store still has parts of the upload {upload}, which could not be removed: {error}"
        ),
        UploadEvent::Progress(_) => return,
        _ if is_quiet => return,
        UploadEvent::Resumed { at } => {
            format!("the server has {}: resuming there", BinaryBytes(*at))
        }
        UploadEvent::StartedOver { reason } => format!("starting over: {reason}"),
        UploadEvent::Redirected { to } => format!("the server redirects to {}", shown(to)),
        UploadEvent::Retrying { error, wait, resumes } => {
            let how = if *resumes { "resuming from there" } else { "starting over" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
    };
    note(&line);
}
