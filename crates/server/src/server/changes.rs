//! Requests that change something: whether they may, and who sees to them.

mod change;
mod place;
mod refusal;
mod tree;

use rustix::fs::fstat;
use underpass_engine::Version;

pub(super) use change::{Change, Changed};
pub(super) use refusal::Refusal;
pub(super) use tree::remove;

use super::answer::{Asking, Place};
use super::files::modified;
use super::question::Question;
use super::reach;
use super::response::{Body, Response};
use super::settings::Changes;
use super::uploads::Upload;
use crate::auth::Right;
use crate::conditional::{Condition, Validators, evaluate};
use crate::destination::{Depth, Destination};
use crate::origin::is_foreign;
use crate::request::{BodyLength, Method};
use crate::target::Target;
use change::What;

/// Answers a request to change what is at a path. Who asks has the right to write there.
pub(super) fn answer(
    asking: &mut Asking<'_, '_, '_>,
    target: &Target<'_>,
) -> Result<Response, Question> {
    let changes = &asking.worker.shared.settings.changes;
    let goes_on = target.query.has("upload");
    let is_allowed = match asking.request.method {
        Method::Put | Method::Patch | Method::Mkcol | Method::Copy => changes.upload,
        // An upload that is given up takes nothing away from anybody.
        Method::Delete if goes_on => changes.upload,
        Method::Delete => changes.delete,
        Method::Move => changes.upload && changes.delete,
        _ => false,
    };
    if !is_allowed {
        return Ok(refuse(asking));
    }
    if let Some(refusal) = refuse_foreign(asking) {
        return Ok(refusal);
    }
    if asking.request.has("if") {
        let detail = "conditions of WebDAV's If are not evaluated here: use If-Match";
        return Ok(asking.error(412, detail));
    }
    let takes_body = matches!(asking.request.method, Method::Put | Method::Patch);
    // RFC 4918 8.4: a body that would be ignored must be refused.
    if !takes_body && !matches!(asking.request.body(), Ok(BodyLength::None | BodyLength::Length(0)))
    {
        return Ok(asking.error(415, "this method takes no body"));
    }
    match asking.request.method {
        Method::Delete if goes_on => Ok(Upload::begin(asking, target)),
        Method::Put | Method::Patch => Ok(Upload::begin(asking, target)),
        _ => change(asking, target),
    }
}

/// Answers how far an upload is. The caller must have checked the right to write.
pub(super) fn answer_of_upload(asking: &Asking<'_, '_, '_>, target: &Target<'_>) -> Response {
    refuse_foreign(asking).unwrap_or_else(|| Upload::begin(asking, target))
}

/// Refuses what a browser asks for a page of another site.
fn refuse_foreign(asking: &Asking<'_, '_, '_>) -> Option<Response> {
    is_foreign(asking.request, asking.peer.session().is_some())
        .then(|| asking.error(403, "a page of another site may not change files here"))
}

/// What is said to a method that nobody may use here.
pub(super) fn refuse(asking: &Asking<'_, '_, '_>) -> Response {
    if !Method::is_known(asking.request.verb) {
        return asking.error(501, "this method is not known here");
    }
    let changes = &asking.worker.shared.settings.changes;
    let mut response = asking.error(405, "files here can be read, not written");
    response.add_field("Allow", methods(changes));
    response
}

/// What can be done with files and folders.
pub(super) fn methods(changes: &Changes) -> &'static str {
    match (changes.upload, changes.delete) {
        (false, false) => "GET, HEAD, OPTIONS",
        (true, false) => "GET, HEAD, OPTIONS, PUT, PATCH, MKCOL, COPY",
        (false, true) => "GET, HEAD, OPTIONS, DELETE",
        (true, true) => "GET, HEAD, OPTIONS, PUT, PATCH, DELETE, MKCOL, MOVE, COPY",
    }
}

/// DELETE, MKCOL, MOVE and COPY: a helper makes the change, then this says what came of it.
fn change(asking: &mut Asking<'_, '_, '_>, target: &Target<'_>) -> Result<Response, Question> {
    match asking.known.changed.take() {
        Some(Ok(changed)) => return Ok(made(asking, &changed)),
        Some(Err(refusal)) => return Ok(refused(asking, &refusal)),
        None => {}
    }
    let mut what = match read(asking) {
        Ok(what) => what,
        Err(refusal) => return Ok(refused(asking, &refusal)),
    };
    if let What::Move(to, _) | What::Copy(to, _) = &mut what
        && asking.worker.shared.settings.access.can(asking.user.as_deref(), &to.path, Right::Write)
    {
        match reach::path(asking, &to.path, false)? {
            Ok(path) => to.path = path,
            Err(refusal) => return Ok(refusal),
        }
    }
    if let Some(refusal) = check_rights(asking, &target.path, &what) {
        return Ok(refusal);
    }
    let expected = match check_conditions(asking, target)? {
        Ok(expected) => expected,
        Err(refusal) => return Ok(refused(asking, &refusal)),
    };
    let (path, is_folder) = (target.path.clone(), target.is_folder);
    Err(Question::Change(Box::new(Change { what, path, is_folder, expected })))
}

/// What the request wants to be done.
fn read(asking: &Asking<'_, '_, '_>) -> Result<What, Refusal> {
    let request = asking.request;
    let prefix = asking.worker.shared.settings.path_prefix.as_bytes();
    let depth = || Depth::read(request).ok_or_else(|| Refusal::new(400, BAD_DEPTH));
    let destination = || {
        Destination::read(request, prefix)
            .map_err(|fault| Refusal::new(fault.status(), fault.to_string()))
    };
    match request.method {
        Method::Delete => Ok(What::Delete(depth()?)),
        Method::Move => depth().and_then(|depth| Ok(What::Move(destination()?, depth))),
        Method::Copy => depth().and_then(|depth| Ok(What::Copy(destination()?, depth))),
        _ => Ok(What::MakeFolder),
    }
}

/// Refuses what must not be known or changed by whoever asks, on either path.
fn check_rights(asking: &Asking<'_, '_, '_>, path: &[u8], what: &What) -> Option<Response> {
    let shared = &asking.worker.shared;
    if shared.root.is_file() {
        return Some(asking.error(403, "only one file is served, and it stays as it is"));
    }
    let (destination, takes_away) = match what {
        What::Delete(_) => (None, true),
        What::MakeFolder => (None, false),
        What::Move(to, _) => (Some(to), true),
        What::Copy(to, _) => (Some(to), false),
    };
    let access = &shared.settings.access;
    let user = asking.user.as_deref();
    if takes_away && !access.can_all(user, path, Right::Write) {
        return Some(asking.error(403, "there is something in it that you may not change"));
    }
    if shared.root.hides(path) || destination.is_some_and(|to| shared.root.hides(&to.path)) {
        return Some(asking.error(403, "names like this are hidden here"));
    }
    let to = destination?;
    if !access.can_all(user, &to.path, Right::Write) {
        return Some(unauthorized(asking));
    }
    if super::answer::is_reserved(&to.path) {
        return Some(asking.error(403, ""));
    }
    let is_within = |path: &[u8], other: &[u8]| {
        other.is_empty()
            || path.strip_prefix(other).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    if is_within(&to.path, path) || is_within(path, &to.path) {
        return Some(asking.error(403, "neither of the two may lie in the other"));
    }
    None
}

/// Whoever asks may not write to the destination; perhaps he can say that he is somebody else.
fn unauthorized(asking: &Asking<'_, '_, '_>) -> Response {
    if asking.user.is_some() {
        return asking.error(403, "you may not change what is at the Destination");
    }
    asking.challenge()
}

/// Whether the client's conditions hold (RFC 9110 13), and for which version of a file.
fn check_conditions(
    asking: &mut Asking<'_, '_, '_>,
    target: &Target<'_>,
) -> Result<Result<Option<Version>, Refusal>, Question> {
    let request = asking.request;
    if CONDITIONS.iter().all(|name| request.field(name).is_none()) {
        return Ok(Ok(None));
    }
    let (condition, version) = match asking.find_current(&target.path)? {
        Ok(Place::File(served)) => {
            let now = Validators { etag: &served.etag, modified: served.modified };
            (evaluate(request, Some(now)), Some(served.version))
        }
        Ok(Place::Folder(folder) | Place::Unsized(folder)) => {
            // There are no tags of folders, but they are there.
            let stat = fstat(&folder).map(|stat| modified(&Version::from_stat(&stat)));
            let stat = stat.map(|modified| Validators { etag: "", modified });
            (evaluate(request, stat.ok()), None)
        }
        Err(_) => (evaluate(request, None), None),
    };
    Ok(match condition {
        Condition::Holds => Ok(version),
        _ => Err(Refusal::new(412, "the conditions of the request do not hold")),
    })
}

/// What is said to a change that was made.
fn made(asking: &Asking<'_, '_, '_>, changed: &Changed) -> Response {
    let mut response = Response::empty(if changed.is_new { 201 } else { 204 });
    let most = changed.report.mechanisms().max_by_key(|(_, tally)| tally.bytes);
    if let Some((mechanism, _)) = most.filter(|_| asking.explains) {
        response.add_field("Server-Timing", &format!("path;desc=\"{}\"", mechanism.name()));
    }
    response
}

/// What is said to one that was not.
fn refused(asking: &Asking<'_, '_, '_>, refusal: &Refusal) -> Response {
    let mut response = asking.error(refusal.status, &refusal.detail);
    match refusal.status {
        405 => {
            let changes = &asking.worker.shared.settings.changes;
            response.add_field("Allow", methods(changes));
        }
        503 => response.add_field("Retry-After", "1"),
        _ => {}
    }
    debug_assert!(!matches!(response.body, Body::Nothing));
    response
}

/// The fields that make a request depend on what is there.
const CONDITIONS: [&str; 3] = ["if-match", "if-none-match", "if-unmodified-since"];

const BAD_DEPTH: &str = "Depth is 0 or infinity";
