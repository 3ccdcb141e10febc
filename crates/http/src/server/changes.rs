//! Requests that change something: whether they may, and who sees to them.

use super::answer::Asking;
use super::question::Question;
use super::response::Response;
use super::settings::Changes;
use super::uploads::Upload;
use crate::origin::is_foreign;
use crate::request::Method;
use crate::target::Target;

/// Answers a request to change what is at a path. Who asks has the right to write there.
pub(super) fn answer(
    asking: &mut Asking<'_, '_, '_>,
    target: &Target<'_>,
) -> Result<Response, Question> {
    let changes = &asking.worker.shared.settings.changes;
    let is_allowed = match asking.request.method {
        Method::Put | Method::Patch | Method::Mkcol | Method::Copy => changes.upload,
        Method::Delete => changes.delete,
        Method::Move => changes.upload && changes.delete,
        _ => false,
    };
    if !is_allowed {
        return Ok(refuse(asking));
    }
    if is_foreign(asking.request) {
        return Ok(asking.error(403, "a page of another site may not change files here"));
    }
    match asking.request.method {
        Method::Put | Method::Patch => Ok(Upload::begin(asking, target)),
        _ => Ok(asking.error(501, "")),
    }
}

/// What is said to a method that nobody may use here.
pub(super) fn refuse(asking: &Asking<'_, '_, '_>) -> Response {
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
