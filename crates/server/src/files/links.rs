//! Where links beneath the root lead a change to: rules and patterns hold for that path as well.

use std::sync::Arc;

use rustix::io::Errno;
use tokio::task::spawn_blocking;

use crate::auth::Right;
use crate::files::root::Root;
use crate::request::Method;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;

/// What links make of a path.
struct Resolved {
    /// The path at which the change would be made, if links on the way lead elsewhere.
    real: Result<Option<Vec<u8>>, Errno>,
    /// The path that a link at the path itself leads to.
    target: Option<Vec<u8>>,
    /// Whether that is hidden.
    hides_target: bool,
}

impl Resolved {
    /// Follows the links of a path. May wait for the disk.
    fn new(root: &Root, path: &[u8]) -> Self {
        let target = root.link_target(path);
        let hides_target = target.as_deref().is_some_and(|target| root.hides_entry(target, false));
        Self { real: root.real_path(path), target, hides_target }
    }
}

/// Returns the path at which a change is made: `path`, or where links on the way to it lead.
///
/// The caller must have checked the right to write to `path`. This checks the right to write where
/// links lead, and to read what a link at the path itself leads to if that `is_followed`.
///
/// # Errors
///
/// The refusal, if the change must not be made.
pub(crate) async fn resolve(
    ctx: &RequestContext<'_>,
    path: &[u8],
    is_followed: bool,
) -> Result<Vec<u8>, Response> {
    let (shared, helper_path) = (Arc::clone(ctx.shared()), path.to_vec());
    let resolving = spawn_blocking(move || Resolved::new(&shared.root, &helper_path));
    let resolved = resolving.await.map_err(|_| ctx.error(500, ""))?;
    let may = |path: &[u8], right| !ctx.shared().root.hides(path) && ctx.can(path, right);
    let forbidden = || ctx.error(403, "a link leads from there to where you may not do this");
    let target = resolved.target.as_deref().filter(|_| is_followed);
    if target.is_some_and(|target| resolved.hides_target || !may(target, Right::Read)) {
        return Err(forbidden());
    }
    match resolved.real {
        Ok(Some(real)) if !may(&real, Right::Write) => Err(forbidden()),
        Ok(Some(real)) => Ok(real),
        // Whatever the settings say of reading, nothing is changed outside.
        Err(Errno::XDEV) if matches!(ctx.request.method, Method::Put | Method::Patch) => {
            Err(ctx.error(409, "a link leads out of what is served"))
        }
        Err(Errno::XDEV) => Err(forbidden()),
        // What is wrong is told by what makes the change.
        Ok(None) | Err(_) => Ok(path.to_vec()),
    }
}
