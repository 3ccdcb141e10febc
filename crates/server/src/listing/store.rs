//! Answers requests for folders of an object store.

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use underpass_cache::{
    Cache, CacheKey, FolderFailure, FolderListing, FolderLookup, Lookup, ObjectRequest,
};
use underpass_listing::Readme;
use underpass_protocol::caching::has_passed;
use underpass_protocol::request::Method;
use underpass_protocol::request::target::Target;

use crate::auth::{Right, access};
use crate::files::folder;
use crate::files::root::{is_reserved, join};
use crate::listing::jobs::{FolderSource, ListTask, ListingRequest};
use crate::routing::cache_key::key_of;
use crate::routing::context::RequestContext;
use crate::routing::origin::{add_cache_fields, client, refused};
use crate::routing::response::{CLIENT_LEFT, Response};

/// Returns whether a request is to be answered with the entries of a folder in an object store.
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
        return if ctx.is_partial {
            access::denied(ctx)
        } else {
            ctx.error(501, "folders of an object store cannot be downloaded as archives")
        };
    }
    if !ctx.settings().listing {
        return if ctx.is_partial {
            access::denied(ctx)
        } else {
            ctx.error(403, "this folder is not listed")
        };
    }
    if has_passed(&ctx.request, cache.id()) {
        return ctx.error(508, "the origin leads back to this server");
    }
    let Some(key) = cache.key(target) else { return ctx.error(414, "") };
    let Some(FolderLookup { outcome, age, cache: status }) = look_up(ctx, cache, &key).await else {
        return ctx.error(CLIENT_LEFT, "");
    };
    let listing = match outcome {
        Ok(listing) if listing.exists => listing,
        Ok(_) => return add_cache_fields(ctx.error(404, ""), &status),
        Err(FolderFailure { error, status: code, retry_after }) => {
            return refused(ctx, code, &error.to_string(), retry_after, &status);
        }
    };
    let mut response = match folder::requested(ctx, target) {
        Err(fault) => ctx.error(400, &fault.to_string()),
        Ok(what) if what.query.is_walk() => {
            ctx.error(400, "folders of an object store can be neither searched nor measured")
        }
        Ok(mut what) => {
            what.readme = readme(ctx, cache, target, &listing, &what).await.map(Arc::new);
            folder::listing(ctx, ListTask { folder: FolderSource::Store(listing), what }).await
        }
    };
    response.add_field("Age", &age.as_secs().to_string());
    add_cache_fields(response, &status)
}

/// Returns the README of a folder, if the page shows one and it arrives within [`README_TIME`]. If
/// the listing has none, the store is not asked.
async fn readme(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
    listing: &FolderListing,
    what: &ListingRequest,
) -> Option<Readme> {
    if what.is_head || !Readme::is_shown(&what.query) {
        return None;
    }
    let is_served = |name: &[u8]| {
        let path = join(&target.path, name);
        ctx.can(&path, Right::Read)
            && !is_reserved(&path)
            && !ctx.site().root.hides_of_origin(&path, false)
    };
    let files = listing.entries.iter().filter_map(|entry| Some((&*entry.name, entry.size?)));
    let name = Readme::pick(files.filter(|(name, _)| is_served(name)))?;
    let path = Cow::Owned(join(&target.path, name.as_bytes()));
    let file = Target { path, is_folder: false, ..target.clone() };
    let key = key_of(ctx, cache, &file).ok()?;
    let reading = timeout(README_TIME, read(ctx, cache, &key));
    let bytes = ctx.peer.while_connected(reading).await?.ok()??;
    Some(Readme::new(name, &bytes))
}

/// Reads a short object through the cache; `None` if it is longer than a README, or not stored.
async fn read(ctx: &RequestContext<'_>, cache: &Cache, key: &CacheKey) -> Option<Vec<u8>> {
    // Only the beginning: the object may be large by now.
    let range = Some(0..Readme::MAX_LEN);
    let request = ObjectRequest { range, client: client(ctx), ..ObjectRequest::default() };
    let Lookup::Entry(entry) = cache.find(key, &request, sleep).await else { return None };
    let reader = entry.reader();
    let mut at = 0;
    // The length may be that of another version than the one in the listing.
    while at < entry.len().unwrap_or(u64::MAX) {
        let arrived = reader.wait_for(at, Readme::MAX_LEN + 1).await.ok()?;
        if reader.pipe().is_some() || arrived > Readme::MAX_LEN {
            return None;
        }
        if arrived == at {
            break;
        }
        at = arrived;
    }
    let read = move || {
        let file = File::from(reader.file().try_clone().ok()?);
        let mut bytes = vec![0; usize::try_from(at).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    };
    ctx.worker.helpers.run(ctx.peer.client_net(), read).await.ok()?
}

/// Returns the redirect to a folder that was requested without its slash; `None` if there is no
/// such folder.
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
    Some(add_cache_fields(ctx.slash(target), &found.cache))
}

/// Looks for a folder; `None` if the client leaves.
async fn look_up(ctx: &RequestContext<'_>, cache: &Cache, key: &CacheKey) -> Option<FolderLookup> {
    ctx.peer.while_connected(cache.list(key, client(ctx), sleep)).await
}

/// The maximum time that a page waits for the README of its folder.
const README_TIME: Duration = Duration::from_secs(2);
