//! Picks the handler of a request by the user, the method, and the entry at the path.

use std::pin::pin;

use crate::auth::{Right, access};
use crate::changes::answer::methods;
use crate::changes::body;
use crate::changes::dav::propfind;
use crate::changes::respond as changes;
use crate::files::file;
use crate::files::folder;
use crate::files::lookup::{ServedEntry, find, find_current};
use crate::files::open_files::is_missing;
use crate::files::root::{is_reserved, join};
use crate::listing::store;
use crate::routing::context::RequestContext;
use crate::routing::endpoints;
use crate::routing::https_redirect;
use crate::routing::operate;
use crate::routing::origin;
use crate::routing::response::Response;
use crate::server::sites::local::Misdirected;
use crate::uploads;
use underpass_cache::Cache;
use underpass_listing::ICON;
use underpass_protocol::request::Method;
use underpass_protocol::request::target::{Target, TargetError};
use underpass_protocol::upload::PARTIAL_UPLOAD;

/// Answers a request at once if it is for a file that is open already, here or in the cache, and
/// nothing has to wait; `None` if [`respond`] has to answer it.
///
/// This is the path of the most frequent requests: it neither allocates a future nor opens
/// anything.
pub(crate) fn respond_at_once(ctx: &mut RequestContext<'_>) -> Option<Response> {
    let is_read = matches!(ctx.request.method, Method::Get | Method::Head);
    if !is_read
        || https_redirect::applies(ctx)
        || https_redirect::challenge(ctx).is_some()
        || ctx.selection.misdirected.is_some()
    {
        return None;
    }
    let target = Target::parse(ctx.request.target, ctx.settings().path_prefix.as_bytes()).ok()?;
    let cache = ctx.settings().cache.as_ref();
    // For a cache, the path of a folder is like any other.
    let is_file = !target.is_folder || cache.is_some();
    let is_plain = target.query.raw.is_empty() && is_file && !is_reserved(&target.path);
    if !is_plain || is_redirected(ctx, &target) || !access::is_known(ctx, &target) {
        return None;
    }
    if let Some(cache) = cache {
        return if is_hidden(ctx, &target, target.is_folder) {
            None
        } else {
            origin::respond_at_once(ctx, cache, &target).map(|response| counted(cache, response))
        };
    }
    let path = ctx.site().root.only(&target).unwrap_or(&target.path);
    file::respond_at_once(ctx, &target, path)
}

/// Answers a request, and waits as long as that takes.
pub(crate) async fn respond(ctx: &mut RequestContext<'_>) -> Response {
    let before = https_redirect::challenge(ctx).or_else(|| https_redirect::response(ctx));
    if let Some(response) = before.or_else(|| misdirected(ctx)) {
        return response;
    }
    let settings = ctx.settings();
    // For another site's page, a browser sends a preflight request before any credentials.
    let is_preflight = settings.cors && ctx.request.has("origin");
    if ctx.request.method == Method::Options && (ctx.request.target == b"*" || is_preflight) {
        return options(ctx, false);
    }
    let target = match Target::parse(ctx.request.target, settings.path_prefix.as_bytes()) {
        Ok(target) => target,
        Err(error @ TargetError::Malformed(_)) => {
            return ctx.error(error.status(), &error.to_string());
        }
        Err(error) => return ctx.error(error.status(), ""),
    };
    ctx.explains |= target.query.has("explain");
    if let Some(endpoint) = endpoints::find(settings, &target).filter(|it| it.is_open()) {
        return endpoint.respond(ctx, &target).unlogged();
    }
    if ctx.request.method == Method::Options {
        // Browsers send this without credentials, before they send a request with them to another
        // site.
        return options(ctx, takes_names(&target));
    }
    if let Some(response) = redirected(ctx, &target) {
        return response;
    }
    if let Some(refusal) = access::check(ctx, &target).await {
        return refusal;
    }
    let work = pin!(route(ctx, &target));
    // A change is made or refused, whether its client waits for that or not.
    if ctx.request.method.changes() {
        return work.await;
    }
    ctx.peer.until_left(work).await.unwrap_or_else(|| ctx.left())
}

/// Refuses a request that is for no site, or for another one than its connection (RFC 9110
/// 15.5.20). Only the health check answers under every name.
fn misdirected(ctx: &RequestContext<'_>) -> Option<Response> {
    let detail = match ctx.selection.misdirected? {
        _ if endpoints::is_health(ctx.settings(), &ctx.request) => return None,
        Misdirected::Unknown => "no site has this host name",
        Misdirected::OtherSite => "this connection belongs to another site: use a new one",
    };
    Some(ctx.error(421, detail))
}

/// Returns whether a path is redirected.
fn is_redirected(ctx: &RequestContext<'_>, target: &Target<'_>) -> bool {
    !ctx.settings().redirects.is_empty() && ctx.site().redirect(target).is_some()
}

/// Redirects a path, if the settings of the site say so. Endpoints have their own answers.
fn redirected(ctx: &RequestContext<'_>, target: &Target<'_>) -> Option<Response> {
    let (status, location) = ctx.site().redirect(target).filter(|_| !is_reserved(&target.path))?;
    let mut response = ctx.error(status, "");
    response.add_field("Location", &location);
    Some(response)
}

/// Answers an authorized request.
async fn route(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let is_reserved = is_reserved(&target.path);
    if let Some(cache) = &ctx.settings().cache {
        if !is_reserved {
            return of_origin(ctx, cache, target).await;
        }
        if ctx.request.verb == "POST" {
            return operate::respond(ctx, cache, target).await;
        }
    }
    if ctx.request.method == Method::Propfind && !is_reserved {
        return propfind::respond(ctx, target).await;
    }
    if ctx.is_partial {
        return partial(ctx, target).await;
    }
    let method = ctx.request.method;
    if ctx.request.verb == "POST" && takes_names(target) {
        return archive_of_names(ctx, target).await;
    }
    if method == Method::Other {
        return changes::refuse(ctx);
    }
    if is_reserved {
        return match endpoints::find(ctx.settings(), target) {
            _ if method.changes() => ctx.error(403, ""),
            Some(endpoint) => endpoint.respond(ctx, target),
            None => ctx.error(404, ""),
        };
    }
    if !method.changes() && !access::is_upload_query(ctx, target) {
        return path(ctx, target).await;
    }
    changes::respond(ctx, target).await
}

/// Answers with an object of an origin, and counts the response.
async fn of_origin(ctx: &RequestContext<'_>, cache: &Cache, target: &Target<'_>) -> Response {
    counted(cache, respond_of_origin(ctx, cache, target).await)
}

/// Counts a response by what the cache had.
fn counted(cache: &Cache, response: Response) -> Response {
    if let Some(facts) = &response.cache {
        cache.count_response(&facts.status);
    }
    response
}

async fn respond_of_origin(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Response {
    if is_hidden(ctx, target, target.is_folder) {
        return ctx.error(404, "");
    }
    if store::is_requested(ctx, cache, target) {
        return store::respond(ctx, cache, target).await;
    }
    let response = origin::respond(ctx, cache, target).await;
    let may_be_folder = response.status == 404 || ctx.is_partial;
    let redirect = if may_be_folder && !is_hidden(ctx, target, true) {
        store::redirect(ctx, cache, target).await
    } else {
        None
    };
    redirect.unwrap_or(response)
}

/// Returns whether a path of an origin is not served.
fn is_hidden(ctx: &RequestContext<'_>, target: &Target<'_>, is_folder: bool) -> bool {
    !ctx.settings().hide.is_empty() && ctx.site().root.hides_of_origin(&target.path, is_folder)
}

/// Answers with the file or folder at the path, if there is one.
async fn path(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    if let Some(name) = ctx.site().root.only(target) {
        return match find(ctx, name).await {
            Ok(ServedEntry::File(served)) => file::respond(ctx, target, name, served).await,
            Ok(_) => ctx.error(404, ""),
            Err(errno) => ctx.refused(errno),
        };
    }
    // Sending a file checks that it is current; a file in the place of a folder is not sent.
    let found = if target.is_folder {
        find_current(ctx, &target.path).await
    } else {
        find(ctx, &target.path).await
    };
    match found {
        Ok(ServedEntry::File(_) | ServedEntry::Unsized(_)) if target.is_folder => {
            missing(ctx, target).await
        }
        Ok(ServedEntry::File(served)) => file::respond(ctx, target, &target.path, served).await,
        Ok(ServedEntry::Unsized(_)) if target.query.has("hash") => {
            ctx.error(404, "this file is generated when it is read, and has no digest")
        }
        Ok(ServedEntry::Unsized(opened)) => file::respond_unsized(ctx, &target.path, opened).await,
        Ok(ServedEntry::Folder(_)) if !target.is_folder => ctx.slash(target),
        Ok(ServedEntry::Folder(_))
            if folder::is_page(ctx.settings(), &target.path) && !target.query.has("archive") =>
        {
            index(ctx, target).await
        }
        Ok(ServedEntry::Folder(opened)) => folder::respond(ctx, target, opened).await,
        Err(errno) if is_missing(errno) => missing(ctx, target).await,
        Err(errno) => ctx.refused(errno),
    }
}

/// Returns whether a POST may send the names of entries to be archived.
fn takes_names(target: &Target<'_>) -> bool {
    target.query.has("archive") && target.is_folder
}

/// Answers a POST with the archive of the entries that its body names. It only reads, so it needs
/// the rights of a GET, and pages of other sites may send it as they may link here.
async fn archive_of_names(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let folder = match find_current(ctx, &target.path).await {
        Ok(ServedEntry::Folder(folder)) => folder,
        Ok(_) => return ctx.error(404, ""),
        Err(errno) => return ctx.refused(errno),
    };
    if let Some(refusal) = folder::refuse_archive(ctx, target) {
        return refusal;
    }
    match body::read(ctx, &body::NAMES).await {
        Ok(body) => folder::respond_to_names(ctx, target, folder, body).await,
        Err(refusal) => refusal,
    }
}

/// Answers for a path at which the client may see only the names that lead to something it may
/// read: with a listing of these, or as if the client had no rights at all.
async fn partial(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let is_read = matches!(ctx.request.method, Method::Get | Method::Head);
    let is_folder = !ctx.site().root.is_file() && !is_reserved(&target.path);
    let is_listed = is_read && is_folder && folder::is_listed(ctx.settings(), &target.path);
    if !is_listed || target.query.has("archive") {
        return access::denied(ctx);
    }
    match find_current(ctx, &target.path).await {
        Ok(ServedEntry::Folder(_)) if !target.is_folder => ctx.slash(target),
        Ok(ServedEntry::Folder(opened)) => folder::respond(ctx, target, opened).await,
        _ => access::denied(ctx),
    }
}

/// Answers with the `index.html` of a folder.
async fn index(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let index = join(&target.path, INDEX);
    match find(ctx, &index).await {
        Ok(ServedEntry::File(served)) => file::respond(ctx, target, &index, served).await,
        Err(errno) if !is_missing(errno) => ctx.refused(errno),
        _ => ctx.error(404, ""),
    }
}

/// Answers for a missing path: with the application's page if there is one, otherwise with 404.
async fn missing(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    if ctx.settings().renders_spa && ctx.can(INDEX, Right::Read) {
        match find(ctx, INDEX).await {
            Ok(ServedEntry::File(served)) => {
                return file::respond(ctx, target, INDEX, served).await;
            }
            Err(errno) if !is_missing(errno) => return ctx.refused(errno),
            _ => {}
        }
    }
    if is_icon(ctx, target) {
        let is_head = ctx.request.method == Method::Head;
        let mut response = Response::memory(200, ICON_TYPE, ICON.as_bytes().to_vec(), is_head);
        response.add_field("Cache-Control", "max-age=86400");
        return response;
    }
    ctx.error(404, "")
}

/// Returns whether the request is the one that browsers send unasked to each site whose pages name
/// no icon. Sites with a start page have their own icon or none.
fn is_icon(ctx: &RequestContext<'_>, target: &Target<'_>) -> bool {
    *target.path == *b"favicon.ico" && ctx.settings().listing && !ctx.settings().renders_index
}

/// Answers OPTIONS.
fn options(ctx: &RequestContext<'_>, takes_names: bool) -> Response {
    let mut response = Response::empty(204);
    let changes = &ctx.settings().changes;
    if ctx.settings().cache.is_some() {
        response.add_field("Allow", operate::methods(ctx));
    } else {
        let more = if takes_names { ", POST" } else { "" };
        response.add_field("Allow", &[methods(changes), more].concat());
        // Class 2 stands for locks, which only clients that can write need.
        response.add_field("DAV", if changes.upload { "1, 2" } else { "1" });
        // Clients of Windows prefer another protocol otherwise.
        response.add_field("MS-Author-Via", "DAV");
    }
    if changes.upload {
        // draft-ietf-httpbis-resumable-upload 4.1.4: this shows clients that uploads can be
        // resumed.
        response.add_field("Accept-Patch", PARTIAL_UPLOAD);
        response.add_field("Upload-Limit", &uploads::limits(changes).to_string());
    }
    if ctx.settings().cors {
        response.add_field("Access-Control-Allow-Methods", CORS_METHODS);
        response.add_field("Access-Control-Allow-Headers", "Authorization, *");
        response.add_field("Access-Control-Max-Age", "86400");
    }
    response
}

/// The methods that scripts of other sites may use. None of them changes files, because a page
/// could otherwise change them on behalf of any visitor.
const CORS_METHODS: &str = "GET, HEAD, OPTIONS";

const INDEX: &[u8] = b"index.html";

const ICON_TYPE: &str = "image/svg+xml";
