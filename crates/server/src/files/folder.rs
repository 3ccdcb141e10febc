//! Answers requests for a folder: with its listing, or all of it as one archive.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::archive::lay_out::lay_out;
use crate::archive::layouts::{ChosenNames, FolderLayout, LayoutKey, LayoutUse};
use crate::archive::{self, ArchiveError, ArchiveFormat};
use crate::auth::Right;
use crate::files::file::expected_mechanism;
use crate::files::resume;
use crate::files::root::last_name;
use crate::listing::jobs::{FolderSource, ListTask, ListingHead, ListingRequest};
use crate::listing::make::{ListingPieces, list};
use crate::listing::pack::Packing;
use crate::routing::context::RequestContext;
use crate::routing::response::{self, ArchiveBody, Body, Response};
use crate::server::settings::{Changes, SiteSettings};
use underpass_listing::{BadQuery, CONTENT_SECURITY_POLICY, ChangeRights, Format, ListingQuery};
use underpass_protocol::request::negotiate::{Coding, acceptable, wants_html, wants_json};
use underpass_protocol::request::target::{Query, Target, encode_segment};
use underpass_protocol::request::{Method, Request};
use underpass_protocol::response::plan::{PlannedBody, Representation};

/// Answers a request for a folder.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    folder: OwnedFd,
) -> Response {
    let settings = ctx.settings();
    if target.query.has("archive") {
        return match selection(target.query.all("entry")) {
            Ok(only) => archive(ctx, target, folder, only).await,
            Err(BadEntry) => ctx.error(400, BAD_ENTRY),
        };
    }
    if !settings.listing {
        return ctx.error(403, "this folder is not listed");
    }
    match requested(ctx, target) {
        Ok(what) => listing(ctx, ListTask { folder: FolderSource::Disk(folder), what }).await,
        Err(fault) => ctx.error(400, &fault.to_string()),
    }
}

/// Answers with the archive of the entries that the request body names, each in a field or line
/// `entry=`: the length of a target is limited.
pub(crate) async fn respond_to_names(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    folder: OwnedFd,
    body: Vec<u8>,
) -> Response {
    let (done, sorted) = oneshot::channel();
    let sort = move || {
        let lines = body.split(|byte| b"\r\n".contains(byte));
        let names = lines.flat_map(|raw| Query { raw }.all("entry").collect::<Vec<_>>());
        // The client may have left.
        let _ = done.send(selection(names));
    };
    // Sorting hundreds of thousands of names takes a tenth of a second, too long for a worker.
    let client = ctx.peer.client_net();
    let is_queued = ctx.shared().layouts.queue.submit(client, sort).is_ok();
    match sorted.await {
        Ok(Ok(None)) => ctx.error(400, "the body names no entry: entry=NAME in each line"),
        Ok(Ok(only)) => archive(ctx, target, folder, only).await,
        Ok(Err(BadEntry)) => ctx.error(400, BAD_ENTRY),
        Err(_) if is_queued => ctx.error(500, ""),
        Err(_) => ctx.busy(503, &ArchiveError::Busy.to_string()),
    }
}

/// Returns the listing that the target requests.
///
/// # Errors
///
/// [`BadQuery`], which is answered with 400.
pub(crate) fn requested(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
) -> Result<ListingRequest, BadQuery> {
    let is = |name, value: &[u8]| ctx.request.field(name) == Some(value);
    // Browsers send Sec-Fetch-* only over HTTPS or to localhost, the third field for every page.
    let is_browser = is("sec-fetch-dest", b"document")
        || is("sec-fetch-mode", b"navigate")
        || is("upgrade-insecure-requests", b"1");
    let format = requested_format(&ctx.request, is_browser);
    let query = ListingQuery::read(|key| target.query.get(key), format)?;
    Ok(request(ctx, &target.path, query, is_browser))
}

/// Answers with the listing as a page, as JSON, or as plain names.
pub(crate) async fn listing(ctx: &RequestContext<'_>, task: ListTask) -> Response {
    let packing = task.what.packing;
    let client = ctx.peer.client_net();
    let (head, pieces) = match list(Arc::clone(ctx.site()), client, task).await {
        Ok(listing) => listing,
        Err(error) => return ctx.failed(&error),
    };
    let is_page = head.media_type == Format::Html.media_type();
    let mut response = text(head, pieces, packing);
    let varies =
        "Accept, Accept-Encoding, Sec-Fetch-Dest, Sec-Fetch-Mode, Upgrade-Insecure-Requests";
    response.add_field("Vary", varies);
    if is_page {
        response.add_field("Content-Security-Policy", CONTENT_SECURITY_POLICY);
    }
    response
}

/// Returns whether a folder may be listed. One that is answered with its own page may not.
pub(crate) fn is_listed(settings: &SiteSettings, path: &[u8]) -> bool {
    settings.listing && !is_page(settings, path)
}

/// Returns whether a request for a folder is answered with its `index.html`.
pub(crate) fn is_page(settings: &SiteSettings, path: &[u8]) -> bool {
    settings.renders_index || (settings.renders_spa && path.is_empty())
}

/// Returns the request for a listing.
pub(crate) fn request(
    ctx: &RequestContext<'_>,
    path: &[u8],
    query: ListingQuery,
    is_browser: bool,
) -> ListingRequest {
    ListingRequest {
        site: ctx.site().number,
        path: path.to_vec(),
        query,
        is_browser,
        is_head: ctx.request.method == Method::Head,
        may: may(ctx, path),
        user: ctx.user.clone(),
        is_partial: ctx.is_partial,
        packing: Packing {
            is_gzipped: acceptable(&ctx.request).any(|coding| coding == Coding::Gzip),
            is_chunked: ctx.request.minor_version > 0,
        },
        properties: None,
        readme: None,
    }
}

/// Returns the response with the text of a listing.
pub(crate) fn text(head: ListingHead, pieces: Option<ListingPieces>, packing: Packing) -> Response {
    let Packing { is_gzipped, is_chunked } = packing;
    let is_stream = pieces.is_some();
    let len = pieces.as_ref().filter(|_| !is_chunked).and_then(ListingPieces::len);
    let body = match pieces {
        Some(pieces) => Body::Stream { pieces, is_chunked },
        None => Body::Nothing,
    };
    let mut response = Response::new(200, Vec::new(), body, len);
    response.add_field("Content-Type", head.media_type);
    if is_chunked && is_stream {
        response.add_field("Transfer-Encoding", "chunked");
    }
    if let Some(len) = len {
        response.add_field("Content-Length", &len.to_string());
    }
    if is_gzipped {
        response.add_field("Content-Encoding", Coding::Gzip.token());
    }
    response.add_field("Cache-Control", "no-cache");
    if head.is_incomplete {
        response.add_field("Underpass-Incomplete", "?1");
    }
    if head.is_unsorted {
        response.add_field("Underpass-Unsorted", "?1");
    }
    if let Some(next) = head.next_page {
        response.add_field("Link", &format!("<{next}>; rel=\"next\""));
    }
    response
}

/// Returns the format for a client whose query requests none: browsers, and clients that accept
/// HTML as browsers do, get the page.
fn requested_format(request: &Request, is_browser: bool) -> Format {
    if wants_json(request) {
        Format::Json
    } else if is_browser || wants_html(request) {
        Format::Html
    } else {
        Format::Index
    }
}

/// Returns the changes that the client may make to a folder.
fn may(ctx: &RequestContext<'_>, path: &[u8]) -> ChangeRights {
    let settings = ctx.settings();
    let Changes { upload, delete, .. } = settings.changes;
    let log_out = ctx.user.is_some();
    if ctx.can(path, Right::Write) {
        return ChangeRights { upload, delete, log_in: false, log_out };
    }
    // A browser sends credentials only after a challenge, and gets none where reading is open to
    // all.
    let log_in =
        (upload || delete || ctx.is_partial) && ctx.user.is_none() && settings.access.has_users();
    ChangeRights { log_in, log_out, ..ChangeRights::default() }
}

/// A value of `entry` that no name in a folder can have.
struct BadEntry;

/// Sorts the names in the folder that a request selects; `None` for the whole folder.
fn selection<'q>(
    names: impl Iterator<Item = Cow<'q, [u8]>>,
) -> Result<Option<ChosenNames>, BadEntry> {
    let mut names: Vec<_> = names.collect();
    let is_name = |name: &Cow<'q, [u8]>| {
        !matches!(&**name, b"" | b"." | b"..") && !name.iter().any(|b| b"/\0".contains(b))
    };
    if !names.iter().all(is_name) {
        return Err(BadEntry);
    }
    names.sort_unstable();
    names.dedup();
    Ok((!names.is_empty()).then(|| ChosenNames::of(&names)))
}

/// Refuses an archive of a folder that may not be archived or listed: an archive has all the names
/// that a listing has.
pub(crate) fn refuse_archive(ctx: &RequestContext<'_>, target: &Target<'_>) -> Option<Response> {
    let settings = ctx.settings();
    let has_archive = settings.archive && is_listed(settings, &target.path);
    (!has_archive).then(|| ctx.error(403, "this folder cannot be downloaded as an archive"))
}

/// Answers with the archive of a folder or of some of its entries, or with ranges of it.
async fn archive(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    folder: OwnedFd,
    only: Option<ChosenNames>,
) -> Response {
    if let Some(refusal) = refuse_archive(ctx, target) {
        return refusal;
    }
    let name = target.query.get("archive").unwrap_or_default();
    let Some(format) = ArchiveFormat::of_name(&name) else {
        return ctx.error(400, "folders can be downloaded as ?archive=tar or ?archive=zip only");
    };
    let path = &*target.path;
    let is_everything = path.is_empty() && only.is_none();
    let key = LayoutKey::of(&folder, ctx.site().number, path, ctx.user.as_ref(), format, only);
    match laid_out(ctx, folder, key).await {
        Ok(laid_out) => send_archive(ctx, path, format, is_everything, &laid_out),
        Err(refusal) => refusal,
    }
}

/// Returns the layout of an archive, or the refusal.
async fn laid_out(
    ctx: &RequestContext<'_>,
    folder: OwnedFd,
    key: LayoutKey,
) -> Result<Arc<FolderLayout>, Response> {
    let usage = if ctx.request.has("range") { LayoutUse::Range } else { LayoutUse::Whole };
    if let Some(laid_out) = ctx.shared().layouts.get(&key, usage) {
        return Ok(laid_out);
    }
    let client = ctx.peer.client_net();
    let laid_out = lay_out(Arc::clone(ctx.site()), client, key, folder).await;
    laid_out.map_err(|error| match error.status() {
        503 => ctx.busy(503, &error.to_string()),
        status => ctx.error(status, &error.to_string()),
    })
}

/// Returns the response with an archive, or with ranges of it.
fn send_archive(
    ctx: &RequestContext<'_>,
    path: &[u8],
    format: ArchiveFormat,
    is_everything: bool,
    laid_out: &Arc<FolderLayout>,
) -> Response {
    let layout = &laid_out.layout;
    let name = if path.is_empty() { b"files" } else { last_name(path) };
    let file_name = [name, b".", format.name().as_bytes()].concat();
    // An archive requested by a body is not the one that GET of the same target would continue.
    let is_named = matches!(ctx.request.method, Method::Get | Method::Head);
    let etag = if is_named { layout.etag() } else { String::new() };
    let facts = Representation {
        len: layout.len(),
        etag: &etag,
        // No date shows that an entry is gone, or was replaced by an older one.
        modified: None,
        changed: None,
        has_weak_date: false,
        media_type: format.media_type(),
        coding: None,
        is_coded: false,
        varies: false,
        file_name: Some(&file_name),
        is_download: true,
    };
    let (plan, download) = resume::plan_resumable(ctx, &facts);
    let sent = response::body_part(&plan, layout.len(), &etag, true);
    let body = match plan.body {
        PlannedBody::Nothing => Body::Nothing,
        PlannedBody::Message(text) => Body::Memory(text.into_bytes().into()),
        sends_files => match archive_body(ctx, laid_out, sends_files) {
            Some(body) => Body::Archive(Box::new(body)),
            None => return ctx.busy(503, "too many archives are being sent; try again soon"),
        },
    };
    let mut response = Response::new(plan.status, plan.fields, body, Some(plan.body_len));
    response.download = download;
    response.part = sent.filter(|_| is_everything);
    // Clients that unpack it need not guess whether its only folder is this one.
    response.add_field("Underpass-Top", &encode_segment(last_name(path)));
    if ctx.settings().cache_control.is_none() {
        // With a date alone, caches would treat an archive as fresh after the folder has changed.
        response.add_field("Cache-Control", "no-cache");
    }
    response.add_common(ctx.peer, ctx.settings(), ctx.explains, || expected_mechanism(ctx, false));
    response
}

/// Returns the body with an archive, or with ranges of it; `None` if too many are being sent.
fn archive_body(
    ctx: &RequestContext<'_>,
    laid_out: &Arc<FolderLayout>,
    planned: PlannedBody,
) -> Option<ArchiveBody> {
    let files = ctx.shared().layouts.reserve_files(ctx.peer.client_net())?;
    // A quarter are sent at once, the others are kept until the client has read them.
    let max_files = usize::try_from(files.len()).unwrap_or(usize::MAX);
    let max_sent = (max_files / 4).max(1);
    let part = |range| {
        let (layout, folder) = (Arc::clone(&laid_out.layout), Arc::clone(&laid_out.folder));
        let body = archive::ArchiveRange::new(layout, folder, range);
        let body = body.keeping(Arc::clone(&ctx.shared().remote_files));
        body.opening(max_sent).remembering(Arc::clone(&ctx.shared().checksums))
    };
    let (parts, closing) = match planned {
        PlannedBody::Range(range) => (vec![(Vec::new(), part(range))], Vec::new()),
        PlannedBody::Multipart(multipart) => {
            let parts = multipart.parts.into_iter();
            (parts.map(|(header, range)| (header, part(range))).collect(), multipart.closing)
        }
        _ => (vec![(Vec::new(), part(0..laid_out.layout.len()))], Vec::new()),
    };
    let (laid_out, max_unread) = (Arc::clone(laid_out), max_files - max_sent);
    Some(ArchiveBody { parts, closing, laid_out, max_unread, _files: files })
}

const BAD_ENTRY: &str = "entry must be a name in the folder, without slashes";
