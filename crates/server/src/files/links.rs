//! Follows links below the root for changes: rules and patterns hold for the target path as well.

use std::sync::Arc;

use rustix::io::Errno;

use crate::auth::Right;
use crate::files::root::Root;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use underpass_protocol::request::Method;

/// A path with its links resolved.
struct ResolvedPath {
    /// The path at which the change would be made, if links on the way lead elsewhere.
    real: Result<Option<Vec<u8>>, Errno>,
    /// The target of a link at the path itself.
    target: Option<Vec<u8>>,
    /// Whether that target is hidden.
    hides_target: bool,
}

impl ResolvedPath {
    /// Follows the links of a path. It may wait for the disk.
    fn new(root: &Root, path: &[u8]) -> Self {
        let target = root.link_target(path);
        let hides_target = target.as_deref().is_some_and(|target| root.hides_entry(target, false));
        Self { real: root.real_path(path), target, hides_target }
    }
}

/// Returns the path at which a change is made: `path`, or the path to which links on the way lead.
///
/// The caller must have checked the right to write to `path`. This function checks the right to
/// write to the resolved path and, if `is_followed`, the right to read the target of a link at the
/// path itself.
///
/// # Errors
///
/// The refusal, if the change must not be made.
pub(crate) async fn resolve(
    ctx: &RequestContext<'_>,
    path: &[u8],
    is_followed: bool,
) -> Result<Vec<u8>, Response> {
    let (site, helper_path) = (Arc::clone(ctx.site()), path.to_vec());
    let resolve = move || ResolvedPath::new(&site.root, &helper_path);
    let resolved = ctx.worker.helpers.run(ctx.peer.client_net(), resolve).await;
    let resolved = resolved.map_err(|_| ctx.error(500, ""))?;
    let may = |path: &[u8], right| !ctx.site().root.hides(path) && ctx.can(path, right);
    let forbidden = || ctx.error(403, "this leads to a path where you lack permission");
    let target = resolved.target.as_deref().filter(|_| is_followed);
    if target.is_some_and(|target| resolved.hides_target || !may(target, Right::Read)) {
        return Err(forbidden());
    }
    match resolved.real {
        Ok(Some(real)) if !may(&real, Right::Write) => Err(forbidden()),
        Ok(Some(real)) => Ok(real),
        // Whatever the settings allow for reading, nothing is changed outside the root.
        Err(Errno::XDEV) if matches!(ctx.request.method, Method::Put | Method::Patch) => {
            Err(ctx.error(409, "a link leads out of the served folder"))
        }
        Err(Errno::XDEV) => Err(forbidden()),
        // The change itself will report the error.
        Ok(None) | Err(_) => Ok(path.to_vec()),
    }
}
