//! Follows links below the root for changes: rules and patterns also apply to the target.

use std::sync::Arc;

use rustix::io::Errno;

use crate::auth::Right;
use crate::files::root::FollowedPath;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::sites::site::Site;
use underpass_protocol::request::Method;

/// The path of a change with its links followed.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The requested path, or the one to which links on its way lead.
    pub(crate) path: Vec<u8>,
    /// The path that the link leads to, if the name is that of a link.
    pub(crate) target: Option<Vec<u8>>,
}

/// Why a change is refused.
pub(crate) enum LinkRefusal {
    /// A rule forbids it: the status and the reason.
    Refused(u16, &'static str),
    /// The links cannot be followed now.
    Unknown(Errno),
}

/// Returns the path at which a change is made. A helper waits for the disk.
///
/// # Errors
///
/// Those of [`follow`], as a response.
pub(crate) async fn resolve(
    ctx: &RequestContext<'_>,
    path: &[u8],
    is_followed: bool,
) -> Result<ResolvedPath, Response> {
    let (site, user, method) = (Arc::clone(ctx.site()), ctx.user.clone(), ctx.request.method);
    let path = path.to_vec();
    let following = move || follow(&site, user.as_deref(), method, &path, is_followed);
    let resolving = ctx.worker.helpers.run(ctx.peer.client_net(), following);
    let resolved = ctx.peer.until_left(resolving).await.ok_or_else(|| ctx.left())?;
    let resolved = resolved.map_err(|_| ctx.error(500, ""))?;
    resolved.map_err(|refusal| match refusal {
        LinkRefusal::Refused(status, detail) => ctx.error(status, detail),
        LinkRefusal::Unknown(errno) => ctx.refused(errno),
    })
}

/// Returns the path at which a change is made. It may wait for the disk.
///
/// The caller must have checked the right to write to `path`. This function checks the right to
/// write to the resolved path and, if `is_followed`, the right to read the target of a link at the
/// path itself.
///
/// # Errors
///
/// The refusal, if the change must not be made.
pub(crate) fn follow(
    site: &Site,
    user: Option<&str>,
    method: Method,
    path: &[u8],
    is_followed: bool,
) -> Result<ResolvedPath, LinkRefusal> {
    let root = &site.root;
    let may = |path: &[u8], right| !root.hides(path) && site.settings.access.can(user, path, right);
    let forbidden = LinkRefusal::Refused(403, "this leads to a path where you lack permission");
    let FollowedPath { real, target } = root.follow(path).map_err(LinkRefusal::Unknown)?;
    let is_read = target.as_deref().filter(|_| is_followed);
    if is_read.is_some_and(|target| root.hides_entry(target, false) || !may(target, Right::Read)) {
        return Err(forbidden);
    }
    match real {
        Ok(Some(real)) if !may(&real, Right::Write) => Err(forbidden),
        Ok(Some(path)) => Ok(ResolvedPath { path, target }),
        // Whatever the settings allow for reading, no change is made outside the root.
        Err(Errno::XDEV) if matches!(method, Method::Put | Method::Patch) => {
            Err(LinkRefusal::Refused(409, "a link leads out of the served folder"))
        }
        Err(Errno::XDEV) => Err(forbidden),
        // The change itself will report the error.
        Ok(None) | Err(_) => Ok(ResolvedPath { path: path.to_vec(), target }),
    }
}
