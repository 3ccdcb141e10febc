//! Answers requests for changes: checks whether they are allowed, and runs them on a helper.

use std::borrow::Cow;
use std::sync::Arc;

use rustix::fs::fstat;
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use underpass_engine::Version;

use crate::auth::Right;
use crate::changes::answer::{methods, refused};
use crate::changes::body;
use crate::changes::change::{Change, ChangeKind, Changed};
use crate::changes::dav::guard::{ChangingPaths, Conditions};
use crate::changes::dav::lock_paths::LockPaths;
use crate::changes::dav::tags::TagConditions;
use crate::changes::dav::{describe, guard, lock, proppatch};
use crate::changes::refusal::{ChangeRefusal, NAME_HIDDEN, Result};
use crate::files::links;
use crate::files::lookup::{ServedEntry, find_current};
use crate::files::open_files::{is_missing, modified};
use crate::files::root::{is_reserved, join, last_name, split};
use crate::routing::context::RequestContext;
use crate::routing::response::{CLIENT_LEFT, Response};
use crate::server::sites::site::Site;
use crate::uploads;
use underpass_protocol::request::Method;
use underpass_protocol::request::destination::{Depth, Destination};
use underpass_protocol::request::origin::is_foreign;
use underpass_protocol::request::target::Target;
use underpass_protocol::response::conditional::{
    PreconditionResult, Validators, evaluate, is_conditional,
};

/// Answers a request to change the entry at a path, or for the state of an upload to it. The caller
/// must have checked the right to write there; this checks the right to write to link targets.
pub(crate) async fn respond(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    if !ctx.request.method.changes() {
        return match refuse_foreign(ctx) {
            Some(refusal) => refusal,
            None => uploads::respond(ctx, target, TagConditions::default()).await,
        };
    }
    let changes = &ctx.settings().changes;
    let should_continue = target.query.has("upload");
    let is_allowed = match ctx.request.method {
        Method::Put | Method::Patch | Method::Mkcol | Method::Copy => changes.upload,
        Method::Proppatch | Method::Lock | Method::Unlock => changes.upload,
        // Cancelling an upload takes nothing away from other clients.
        Method::Delete if should_continue => changes.upload,
        Method::Delete => changes.delete,
        Method::Move => changes.upload && changes.delete,
        _ => false,
    };
    if !is_allowed {
        return refuse(ctx);
    }
    if let Some(refusal) = refuse_foreign(ctx) {
        return refusal;
    }
    let takes_body = matches!(
        ctx.request.method,
        Method::Put | Method::Patch | Method::Proppatch | Method::Lock
    );
    if !takes_body && let Some(refusal) = body::refuse(ctx, should_continue).await {
        return refusal;
    }
    run(ctx, target, should_continue).await.unwrap_or_else(|refusal| refusal)
}

/// Answers a request that is allowed as such, unless the locks of other clients or the conditions
/// of this one forbid it.
async fn run(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    should_continue: bool,
) -> Result<Response, Response> {
    let method = ctx.request.method;
    let is_upload = match method {
        Method::Put | Method::Patch => true,
        Method::Delete => should_continue,
        _ => false,
    };
    if is_upload && !ctx.request.has("if") && describe::locks(ctx.site()).is_empty() {
        // The thread of the upload follows links, and nothing has to be checked before.
        return Ok(uploads::respond(ctx, target, TagConditions::default()).await);
    }
    // Links themselves are removed and moved, not their targets.
    let is_followed = !matches!(method, Method::Delete | Method::Move);
    let resolved = links::resolve(ctx, &target.path, is_followed).await?;
    let paths = LockPaths::of(&ctx.site().root, &resolved);
    let target = &Target { path: Cow::Owned(resolved.path), ..target.clone() };
    let expected = match method {
        Method::Lock | Method::Unlock | Method::Proppatch => check_conditions(ctx, target).await?,
        _ => None,
    };
    match method {
        Method::Lock => return Ok(lock::respond(ctx, target).await),
        Method::Unlock => return Ok(lock::unlock(ctx, target).await),
        _ => {}
    }
    let conditions = guard::conditions(ctx, target).await?;
    if matches!(method, Method::Put | Method::Patch | Method::Proppatch) {
        guard::check_write(ctx, &conditions.tokens, &target.path).await?;
    }
    match method {
        Method::Proppatch => Ok(proppatch::respond(ctx, target, expected, conditions).await),
        _ if is_upload => Ok(uploads::respond(ctx, target, conditions.tags).await),
        _ => change(ctx, target, paths, conditions).await,
    }
}

/// Refuses a request that a browser sends for a page of another site.
fn refuse_foreign(ctx: &RequestContext<'_>) -> Option<Response> {
    is_foreign(&ctx.request, ctx.peer.is_secure())
        .then(|| ctx.error(403, "a page of another site may not change files here"))
}

/// Returns the response to a method that is unknown or disabled.
pub(crate) fn refuse(ctx: &RequestContext<'_>) -> Response {
    if !Method::is_known(ctx.request.verb) {
        return ctx.error(501, "this method is unknown");
    }
    let changes = &ctx.settings().changes;
    let reason = match ctx.request.verb {
        "POST" => "files are uploaded by PUT, as by curl -T, and not by forms",
        _ => not_allowed_reason(ctx.request.method),
    };
    let mut response = ctx.error(405, reason);
    response.add_field("Allow", methods(changes));
    response
}

/// Returns why a known method is not allowed.
fn not_allowed_reason(method: Method) -> &'static str {
    match method {
        Method::Put
        | Method::Patch
        | Method::Mkcol
        | Method::Copy
        | Method::Proppatch
        | Method::Lock
        | Method::Unlock => "nothing can be written here: serve --allow-upload allows it",
        Method::Delete => "nothing can be deleted here: serve --allow-delete allows it",
        Method::Move => "nothing can be moved here: serve --allow-all allows it",
        _ => "this server does not support this method",
    }
}

/// Has a helper run a DELETE, MKCOL, MOVE or COPY request, and returns the response.
///
/// # Errors
///
/// The refusal, if nothing was changed.
async fn change(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    paths: LockPaths,
    Conditions { tokens, tags }: Conditions<'_>,
) -> Result<Response, Response> {
    let refused = |refusal: ChangeRefusal| refused(ctx, &refusal);
    let mut what = read(ctx).map_err(refused)?;
    // A copy changes nothing at its source.
    let is_copy = matches!(what, ChangeKind::Copy(..));
    let mut changing = if is_copy { Vec::new() } else { vec![paths] };
    if let ChangeKind::Move(to, _) | ChangeKind::Copy(to, _) = &mut what
        && ctx.can(&to.path, Right::Write)
    {
        let resolved = links::resolve(ctx, &to.path, false).await?;
        changing.push(LockPaths::of(&ctx.site().root, &resolved));
        to.path = if !is_copy && resolved.path == *target.path {
            // It may be another spelling, where the file system ignores the case of names.
            let (above, _) = split(&resolved.path);
            join(above, last_name(&to.path))
        } else {
            resolved.path
        };
    }
    if let Some(refusal) = check_rights(ctx, &target.path, &what) {
        return Err(refusal);
    }
    let expected = check_conditions(ctx, target).await?;
    let changing = begin(ctx, &target.path, &what, &tokens, changing).await?;
    let (path, is_folder) = (target.path.to_vec(), target.is_folder);
    let change = Change { what, path, is_folder, user: ctx.user.clone(), expected, tags };
    let site = Arc::clone(ctx.site());
    let slot =
        ctx.peer.while_connected(ctx.shared().changing.acquire(ctx.owner(), ctx.site())).await;
    // A change that has not begun ends with its client.
    let slot = slot.ok_or_else(|| ctx.error(CLIENT_LEFT, ""))?;
    let work = move || {
        let _slot = slot;
        let changed = change.run(&site);
        forget_locks(&site, &change, changed.as_ref().err());
        // The change is made even if the client is gone by now.
        drop(changing);
        changed
    };
    match spawn_blocking(work).await {
        Ok(Ok(changed)) => Ok(made(ctx, &changed)),
        Ok(Err(refusal)) => Err(refused(refusal)),
        Err(_) => Err(ctx.error(500, "")),
    }
}

/// Ends the locks of entries that a change has removed; an incomplete one has its refusal.
fn forget_locks(site: &Site, change: &Change, refusal: Option<&ChangeRefusal>) {
    let is_made = refusal.is_none_or(|refusal| refusal.is_made);
    if !is_made {
        forget_locks_of_missing(site, change);
    }
    let mut table = describe::locks(site);
    if is_made && change.what.leaves() {
        // RFC 4918 9.6, 7.7: locks end with their entry, and do not move.
        table.forget(&site.root.disk_path(&change.path));
    }
    if (is_made || refusal.is_some_and(|refusal| refusal.is_copied))
        && let ChangeKind::Move(to, _) | ChangeKind::Copy(to, _) = &change.what
    {
        // A folder that was replaced is gone, with all that was in it.
        table.forget_below(&site.root.disk_path(&to.path));
    }
}

/// Ends the locks of the entries that an incomplete change has removed.
fn forget_locks_of_missing(site: &Site, change: &Change) {
    if !change.what.leaves() {
        return;
    }
    let locked = describe::locks(site).locked_within(&site.root.disk_path(&change.path));
    for path in locked {
        let found = site.root.served_path(&path).map(|served| site.root.stat(served));
        if let Some(Err(Errno::NOENT | Errno::NOTDIR)) = found {
            describe::locks(site).forget(&path);
        }
    }
}

/// Reads the requested change.
fn read(ctx: &RequestContext<'_>) -> Result<ChangeKind> {
    let request = &ctx.request;
    let prefix = ctx.settings().path_prefix.as_bytes();
    let depth = || Depth::read(request).ok_or_else(|| ChangeRefusal::new(400, BAD_DEPTH));
    let destination = || {
        Destination::read(request, prefix)
            .map_err(|fault| ChangeRefusal::new(fault.status(), fault.to_string()))
    };
    match request.method {
        Method::Delete => Ok(ChangeKind::Delete(depth()?)),
        Method::Move => depth().and_then(|depth| Ok(ChangeKind::Move(destination()?, depth))),
        Method::Copy => depth().and_then(|depth| Ok(ChangeKind::Copy(destination()?, depth))),
        _ => Ok(ChangeKind::MakeFolder),
    }
}

/// Registers a change in the table of locks, unless it meets the lock of another client.
async fn begin(
    ctx: &RequestContext<'_>,
    path: &[u8],
    what: &ChangeKind,
    tokens: &[&str],
    changing: Vec<LockPaths>,
) -> Result<ChangingPaths, Response> {
    let new_path = match what {
        ChangeKind::MakeFolder => Some(path),
        ChangeKind::Copy(to, _) | ChangeKind::Move(to, _) => Some(&*to.path),
        ChangeKind::Delete(_) => None,
    };
    if let Some(new_path) = new_path {
        guard::check_parents(ctx, tokens, new_path).await?;
    }
    let begun = ChangingPaths::begin(ctx, tokens, changing);
    begun.map_err(|lock| guard::locked(ctx, &lock, "lock-token-submitted"))
}

/// Refuses a change that the client may not make at either path, or of which it may not know.
fn check_rights(ctx: &RequestContext<'_>, path: &[u8], what: &ChangeKind) -> Option<Response> {
    let site = ctx.site();
    if site.root.is_file() {
        return Some(ctx.error(403, "only one file is served, and it cannot be changed"));
    }
    let (destination, takes_away) = match what {
        ChangeKind::Delete(_) => (None, true),
        ChangeKind::MakeFolder => (None, false),
        ChangeKind::Move(to, _) => (Some(to), true),
        ChangeKind::Copy(to, _) => (Some(to), false),
    };
    let access = &site.settings.access;
    let user = ctx.user.as_deref();
    if takes_away && !access.can_all(user, path, Right::Write) {
        return Some(ctx.error(403, "it contains entries that you may not change"));
    }
    if site.root.hides(path) || destination.is_some_and(|to| site.root.hides(&to.path)) {
        return Some(ctx.error(403, NAME_HIDDEN));
    }
    let to = destination?;
    if !access.can_all(user, &to.path, Right::Write) {
        return Some(unauthorized(ctx));
    }
    if is_reserved(&to.path) {
        return Some(ctx.error(403, ""));
    }
    if to.path == path {
        return Some(ctx.error(403, "this is the same file or folder"));
    }
    let is_within = |path: &[u8], other: &[u8]| {
        other.is_empty()
            || path.strip_prefix(other).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    };
    if is_within(&to.path, path) || is_within(path, &to.path) {
        return Some(ctx.error(403, "neither of the paths may lie in the other"));
    }
    None
}

/// Refuses a client that may not write to the destination, with a challenge if it has given no
/// password.
fn unauthorized(ctx: &RequestContext<'_>) -> Response {
    if ctx.user.is_some() {
        return ctx.error(403, "you may not write to the Destination");
    }
    ctx.challenge()
}

/// Checks the client's conditions (RFC 9110 13); returns the version of a file for which they hold.
/// They cannot be checked for an existing file that cannot be opened now.
async fn check_conditions(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
) -> Result<Option<Version>, Response> {
    let request = &ctx.request;
    if !is_conditional(request) {
        return Ok(None);
    }
    let (condition, version) = match find_current(ctx, &target.path).await {
        Ok(ServedEntry::File(served)) => {
            let (etag, modified) = (&*served.etag, Some(served.modified));
            let now = Validators { etag, modified, changed: None };
            (evaluate(request, Some(now)), Some(served.version))
        }
        Ok(ServedEntry::Folder(folder) | ServedEntry::Unsized(folder)) => {
            // Folders have no entity tags, but they exist.
            let modified = fstat(&folder).map(|stat| modified(&Version::from_stat(&stat))).ok();
            let now = modified.map(|_| Validators { etag: "", modified, changed: None });
            (evaluate(request, now), None)
        }
        Err(errno) if is_missing(errno) => (evaluate(request, None), None),
        Err(errno) => return Err(ctx.refused(errno)),
    };
    match condition {
        PreconditionResult::Holds => Ok(version),
        _ => Err(ctx.error(412, "the conditions of the request do not hold")),
    }
}

/// Returns the response to a change that was made.
fn made(ctx: &RequestContext<'_>, changed: &Changed) -> Response {
    let mut response = Response::empty(if changed.is_new { 201 } else { 204 });
    if let Some(mechanism) = changed.report.main_mechanism().filter(|_| ctx.explains) {
        response.add_field("Server-Timing", &format!("path;desc=\"{}\"", mechanism.name()));
    }
    response
}

const BAD_DEPTH: &str = "Depth must be 0 or infinity";
