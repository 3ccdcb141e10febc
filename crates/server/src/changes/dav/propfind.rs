//! PROPFIND: the properties of a file, or of a folder and its entries.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_dav::multistatus;
use underpass_dav::request::Propfind;
use underpass_listing::{Describe, Format, ListingQuery};

use crate::auth::access;
use crate::changes::body;
use crate::changes::dav::describe::{Describer, link};
use crate::files::folder;
use crate::files::lookup::{ServedEntry, find_current};
use crate::listing::jobs::{FolderSource, ListTask, ListingHead};
use crate::listing::make::{ListingPieces, list};
use crate::listing::pack::Packing;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use underpass_protocol::request::target::Target;

/// Answers a PROPFIND. The caller must have checked the right to read, or that something below the
/// path may be read.
pub(crate) async fn respond(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let request = match body::read(ctx, &body::XML).await {
        Ok(body) => Propfind::parse(&body),
        Err(refusal) => return refusal,
    };
    let request = match request {
        Ok(request) => Arc::new(request),
        Err(fault) => return ctx.error(400, &fault.to_string()),
    };
    let only = ctx.site().root.only(target);
    let path = only.unwrap_or(&target.path);
    let found = match find_current(ctx, path).await {
        Ok(found) => found,
        Err(_) if ctx.is_partial => return access::denied(ctx),
        Err(errno) => return ctx.refused(errno),
    };
    let folder = match found {
        ServedEntry::Folder(folder) => Some(folder),
        _ if ctx.is_partial => return access::denied(ctx),
        _ if target.is_folder && only.is_none() => return ctx.error(404, ""),
        _ => None,
    };
    let is_folder = folder.is_some();
    let mut response = match (depth(ctx), folder) {
        (None, _) => return ctx.error(400, "Depth must be 0, 1 or infinity"),
        (Some(PropfindDepth::Infinity), Some(_)) => return rule(403, "propfind-finite-depth", &[]),
        (Some(PropfindDepth::One), Some(_)) if !folder::is_listed(ctx.settings(), path) => {
            return ctx.error(403, "this folder is not listed");
        }
        (Some(PropfindDepth::One), Some(folder)) => entries(ctx, path, folder, request).await,
        _ => one(ctx, path, is_folder, request).await,
    };
    if is_folder && !target.is_folder && response.status == 207 {
        // RFC 4918 5.2: a client that left out the slash learns the right link.
        response.add_field("Content-Location", &link(ctx.site(), path, true));
    }
    response
}

/// The `Depth` of a request.
enum PropfindDepth {
    Zero,
    One,
    Infinity,
}

/// Reads the `Depth` of a request (RFC 4918 9.1): without the field, it is infinity. `None` if the
/// value is invalid or repeated.
fn depth(ctx: &RequestContext<'_>) -> Option<PropfindDepth> {
    match ctx.request.single("depth") {
        None if !ctx.request.has("depth") => Some(PropfindDepth::Infinity),
        Some(b"0") => Some(PropfindDepth::Zero),
        Some(b"1") => Some(PropfindDepth::One),
        Some(value) if value.eq_ignore_ascii_case(b"infinity") => Some(PropfindDepth::Infinity),
        _ => None,
    }
}

/// Answers with the properties of one file or folder.
async fn one(
    ctx: &RequestContext<'_>,
    path: &[u8],
    is_folder: bool,
    request: Arc<Propfind>,
) -> Response {
    let (site, path, user) = (Arc::clone(ctx.site()), path.to_vec(), ctx.user.clone());
    let client = ctx.peer.client_net();
    let described = ctx.worker.helpers.run(client, move || {
        let describer = Describer { site: &site, request: &request, user: user.as_deref() };
        let (mut out, mut properties) = (Vec::new(), Vec::new());
        describer.describe(&path, is_folder, &mut properties)?;
        describer.begin(&mut out);
        out.extend_from_slice(&properties);
        describer.end(&mut out);
        io::Result::Ok((!properties.is_empty()).then_some(out))
    });
    let body = match described.await {
        Ok(Ok(Some(body))) => body,
        // It has been removed since.
        Ok(Ok(None)) => return ctx.error(404, ""),
        Ok(Err(error)) => return ctx.failed(&error),
        Err(_) => return ctx.error(500, ""),
    };
    // It waits in memory for a client that may not read it, as a listing does.
    let Some(pieces) = ListingPieces::whole(&ctx.shared().listings, client, body) else {
        return ctx.busy(503, "too many listings wait to be read");
    };
    let head = ListingHead {
        media_type: multistatus::MEDIA_TYPE,
        next_page: None,
        is_incomplete: false,
        is_unsorted: false,
    };
    let mut response = folder::text(head, Some(pieces), Packing::default());
    response.status = 207;
    response
}

/// Answers with the properties of a folder and its entries, as they are read.
async fn entries(
    ctx: &RequestContext<'_>,
    path: &[u8],
    folder: OwnedFd,
    request: Arc<Propfind>,
) -> Response {
    let query = ListingQuery { format: Format::Multistatus, ..ListingQuery::default() };
    let mut what = folder::request(ctx, path, query, false);
    what.properties = Some(request);
    let packing = what.packing;
    let client = ctx.peer.client_net();
    let task = ListTask { folder: FolderSource::Disk(folder), what };
    let (head, pieces) = match list(Arc::clone(ctx.site()), client, task).await {
        Ok((head, Some(pieces))) => (head, pieces),
        Ok((_, None)) => return ctx.error(500, ""),
        Err(error) => return ctx.failed(&error),
    };
    let mut response = folder::text(head, Some(pieces), packing);
    response.status = 207;
    response
}

/// Returns a response whose body is XML.
pub(crate) fn xml(status: u16, body: Vec<u8>) -> Response {
    let mut response = Response::memory(status, multistatus::MEDIA_TYPE, body, false);
    response.add_field("Cache-Control", "no-cache");
    response
}

/// Returns an error that names the broken rule (RFC 4918 16).
pub(super) fn rule(status: u16, rule: &str, links: &[&str]) -> Response {
    xml(status, multistatus::error(rule, links))
}
