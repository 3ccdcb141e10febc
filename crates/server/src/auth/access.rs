//! Authenticates a request and checks it against the rules.

use crate::auth::{AccessDecision, Right};
use crate::files::root::is_reserved;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use underpass_protocol::request::Method;
use underpass_protocol::request::origin::is_foreign;
use underpass_protocol::request::target::Target;
use underpass_protocol::upload::UploadId;

/// Authenticates the user, which may wait for a password check; returns the refusal if the request
/// is not allowed.
pub(crate) async fn check(ctx: &mut RequestContext<'_>, target: &Target<'_>) -> Option<Response> {
    let access = &ctx.settings().access;
    if access.is_empty() {
        return refuse_host(ctx);
    }
    let asks_to_log_out = access.has_users() && target.query.has("logout");
    if asks_to_log_out && !is_foreign(&ctx.request, ctx.peer.is_secure()) {
        // The challenge makes a browser forget its cached name and password.
        return Some(ctx.challenged("you are logged out"));
    }
    let passwords = &ctx.shared().passwords;
    let verdict = match verdict(ctx, target) {
        AccessDecision::Verify(pending) => passwords.check(pending, ctx.peer).await,
        AccessDecision::Wrong => passwords.refuse(ctx.peer).await,
        verdict => verdict,
    };
    match verdict {
        AccessDecision::Allowed { user: None } | AccessDecision::Partial { user: None }
            if access.has_users() && target.query.has("login") =>
        {
            Some(ctx.challenge())
        }
        AccessDecision::Allowed { user } => admit(ctx, user),
        AccessDecision::Partial { user } => {
            ctx.is_partial = true;
            admit(ctx, user)
        }
        AccessDecision::Busy => Some(ctx.busy(429, "too many passwords are being checked")),
        AccessDecision::Forbidden => Some(forbidden(ctx, target)),
        AccessDecision::Wrong => Some(ctx.challenged("the name or the password is wrong")),
        AccessDecision::Challenge | AccessDecision::Verify(_) => Some(ctx.challenge()),
    }
}

/// Refuses a path to which the user has no right. A browser keeps sending its cached password until
/// it is challenged, so `?login` asks for a challenge.
fn forbidden(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    if target.query.has("login") && !is_foreign(&ctx.request, ctx.peer.is_secure()) {
        return ctx.challenge();
    }
    let link = ctx.request.method == Method::Get && ctx.settings().access.has_users();
    ctx.error_with_link(403, "", link.then_some(("?login", "Log in as another user")))
}

/// Authenticates the user if that is possible without waiting; returns whether the request is
/// allowed.
pub(crate) fn is_known(ctx: &mut RequestContext<'_>, target: &Target<'_>) -> bool {
    if ctx.settings().access.is_empty() {
        return refuse_host(ctx).is_none();
    }
    match verdict(ctx, target) {
        AccessDecision::Allowed { user } => admit(ctx, user).is_none(),
        _ => false,
    }
}

fn verdict(ctx: &RequestContext<'_>, target: &Target<'_>) -> AccessDecision {
    let access = &ctx.settings().access;
    if is_reserved(&target.path) && !access.has_users() {
        // Rules without a user are about files. Endpoints have their own checks.
        return AccessDecision::Allowed { user: None };
    }
    let changes = ctx.request.method.changes() || is_upload_query(ctx, target);
    let right = if changes { Right::Write } else { Right::Read };
    let (field, client) = (ctx.request.field("authorization"), ctx.peer.client_net());
    access.check(field, client, &target.path, right)
}

/// Notes the user, and checks the host of a request without a password.
fn admit(ctx: &mut RequestContext<'_>, user: Option<std::sync::Arc<str>>) -> Option<Response> {
    ctx.user = user;
    if ctx.user.is_none() { refuse_host(ctx) } else { None }
}

/// Returns whether the request asks for the state of an upload rather than a file, which needs the
/// right to write.
pub(crate) fn is_upload_query(ctx: &RequestContext<'_>, target: &Target<'_>) -> bool {
    if !ctx.settings().changes.upload {
        return false;
    }
    let id = target.query.get("upload");
    match ctx.request.method {
        Method::Head => id.is_some() || target.query.has("partial"),
        Method::Get => id.is_some_and(|id| UploadId::parse(&id).is_some()),
        _ => false,
    }
}

/// Refuses a path that the client may not read, with a challenge if it has given no password.
pub(crate) fn denied(ctx: &RequestContext<'_>) -> Response {
    if ctx.user.is_none() && ctx.settings().access.has_users() {
        return ctx.challenge();
    }
    ctx.error(403, "")
}

/// Refuses a request without a password that names another host; `None` if it is allowed.
///
/// Browsers cannot reach Unix sockets, and over TLS the certificate identifies the server.
fn refuse_host(ctx: &RequestContext<'_>) -> Option<Response> {
    let peer = ctx.peer;
    // A browser always sends a host.
    let authority = ctx.request.authority().filter(|authority| !authority.is_empty())?;
    if peer.is_unix() || peer.session().is_some() {
        return None;
    }
    let hosts = ctx.site().hosts.as_ref().filter(|_| !ctx.selection.is_named)?;
    if ctx.selection.site.allows_host(hosts, authority) {
        return None;
    }
    let mut name = hosts.unknown_name(authority, || peer.is_to_loopback())?;
    if name.chars().count() > MAX_NAME {
        name = name.chars().take(MAX_NAME).chain(['\u{2026}']).collect();
    }
    let detail = format!(
        "{name:?} is not a name of this server; to accept it, start the server with --allow-host {name}"
    );
    Some(ctx.error(421, &detail))
}

/// The maximum number of characters of a host name that a message quotes.
const MAX_NAME: usize = 100;
