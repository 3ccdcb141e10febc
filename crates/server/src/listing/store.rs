//! Answers requests for folders of an object store.

use std::sync::Arc;

use underpass_cache::{Cache, FolderFailure, FolderLookup, Key};
use underpass_protocol::caching::has_passed;
use underpass_protocol::request::Method;
use underpass_protocol::request::target::{Target, slash_redirect};

use crate::auth::access;
use crate::files::folder;
use crate::listing::jobs::{FolderSource, StoreFolder};
use crate::routing::context::RequestContext;
use crate::routing::origin::{add_cache_fields, client, refused};
use crate::routing::response::Response;

/// Returns whether a request is to be answered with what is in a folder of an object store.
pub(crate) fn is_requested(ctx: &RequestContext<'_>, cache: &Cache, target: &Target<'_>) -> bool {
    let is_read = matches!(ctx.request.method, Method::Get | Method::Head);
    cache.has_stores() && target.is_folder && is_read
}

/// Answers an authorized request for a folder.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Response {
    if target.query.has("archive") {
        return match ctx.is_partial {
            true => access::denied(ctx),
            false => ctx.error(501, "folders of an object store cannot be had as archives"),
        };
    }
    if !ctx.settings().listing {
        return match ctx.is_partial {
            true => access::denied(ctx),
            false => ctx.error(403, "this folder is not listed"),
        };
    }
    if has_passed(&ctx.request, cache.id()) {
        return ctx.error(508, "the origin leads back to this server");
    }
    let Some(key) = cache.key(target) else { return ctx.error(414, "") };
    let Some(FolderLookup { outcome, age, cache }) = look_up(ctx, cache, &key).await else {
        // There is no one to answer.
        return ctx.error(503, "");
    };
    let listing = match outcome {
        Ok(listing) if listing.exists => listing,
        Ok(_) => return add_cache_fields(ctx.error(404, ""), &cache),
        Err(FolderFailure { error, status, retry_after }) => {
            return refused(ctx, status, &error.to_string(), retry_after, &cache);
        }
    };
    let source = FolderSource::Store(Arc::new(StoreFolder(listing)));
    let mut response = folder::listing(ctx, target, source).await;
    response.add_field("Age", &age.as_secs().to_string());
    add_cache_fields(response, &cache)
}

/// Returns the redirect to a folder that was requested without its slash; `None` if there is no such
/// folder.
pub(crate) async fn redirect(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Option<Response> {
    let of_folder = Target { is_folder: true, ..target.clone() };
    if target.is_folder || !ctx.settings().listing || !is_requested(ctx, cache, &of_folder) {
        return None;
    }
    let key = cache.key(&of_folder)?;
    let found = look_up(ctx, cache, &key).await?;
    found.outcome.ok().filter(|listing| listing.exists)?;
    let mut response = ctx.error(301, "");
    response.add_field("Location", &slash_redirect(target.raw_path, target.query.raw));
    Some(add_cache_fields(response, &found.cache))
}

/// Looks for a folder; `None` if the client leaves.
async fn look_up(ctx: &RequestContext<'_>, cache: &Cache, key: &Key) -> Option<FolderLookup> {
    ctx.peer.while_connected(cache.list(key, client(ctx))).await
}
