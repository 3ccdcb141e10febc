//! The responses to refused changes, and the methods that are allowed.

use std::collections::HashSet;

use underpass_dav::multistatus;

use crate::changes::dav::describe;
use crate::changes::dav::propfind::xml;
use crate::changes::refusal::ChangeRefusal;
use crate::routing::context::RequestContext;
use crate::routing::response::{Body, RETRY_SOON, Response};
use crate::server::settings::Changes;

/// Returns the methods for files and folders.
pub(crate) fn methods(changes: &Changes) -> &'static str {
    match (changes.upload, changes.delete) {
        (false, false) => "GET, HEAD, OPTIONS, PROPFIND",
        (true, false) => {
            "GET, HEAD, OPTIONS, PROPFIND, PUT, PATCH, MKCOL, COPY, PROPPATCH, LOCK, UNLOCK"
        }
        (false, true) => "GET, HEAD, OPTIONS, PROPFIND, DELETE",
        (true, true) => {
            "GET, HEAD, OPTIONS, PROPFIND, PUT, PATCH, DELETE, MKCOL, MOVE, COPY, PROPPATCH, LOCK, \
             UNLOCK"
        }
    }
}

/// Returns the methods for folders, to which no bytes can be written.
pub(crate) fn methods_of_folder(changes: &Changes) -> String {
    methods(changes).replace(", PUT, PATCH", "")
}

/// Returns the response to a change that was refused.
pub(crate) fn refused(ctx: &RequestContext<'_>, refusal: &ChangeRefusal) -> Response {
    if !refusal.failed.is_empty() {
        let mut out = Vec::new();
        multistatus::begin(&mut out);
        let mut named = HashSet::new();
        for entry in &refusal.failed {
            let (path, is_folder) = entry.visible_path();
            if !named.insert(path) {
                continue;
            }
            let link = describe::link(ctx.site(), path, is_folder);
            multistatus::push_failure(&link, entry.status, &entry.detail, &mut out);
        }
        multistatus::end(&mut out);
        return xml(207, out);
    }
    let mut response = ctx.error(refusal.status, &refusal.detail);
    match refusal.status {
        405 => {
            let changes = &ctx.settings().changes;
            response.add_field("Allow", methods(changes));
        }
        503 => response.add_field("Retry-After", RETRY_SOON),
        _ => {}
    }
    debug_assert!(!matches!(response.body, Body::Nothing));
    response
}
