//! Where links beneath the root lead a change to: rules and patterns hold for that path as well.

use rustix::io::Errno;

use super::answer::Asking;
use super::question::Question;
use super::response::Response;
use super::root::Root;
use crate::auth::Right;
use crate::request::Method;
use crate::target::Target;

/// What links make of a path.
#[derive(Debug)]
pub(super) struct Reached {
    /// The path that was asked for.
    path: Vec<u8>,
    /// Where the change would be made, if links on the way lead elsewhere.
    real: Result<Option<Vec<u8>>, Errno>,
    /// Where a link at the path itself leads.
    target: Option<Vec<u8>>,
    /// Whether that is hidden.
    hides_target: bool,
}

impl Reached {
    /// Follows the links of a path. May wait for the disk.
    pub(super) fn find(root: &Root, path: Vec<u8>) -> Self {
        let target = root.link_target(&path);
        let hides_target = target.as_deref().is_some_and(|target| root.hides_entry(target, false));
        Self { real: root.real_path(&path), target, hides_target, path }
    }
}

/// The target of a change with the path at which it is made, or why it may not be.
pub(super) fn target<'t>(
    asking: &mut Asking<'_, '_, '_>,
    target: Target<'t>,
) -> Result<Result<Target<'t>, Response>, Question> {
    // Links themselves are removed and moved, not what they lead to.
    let is_followed = !matches!(asking.request.method, Method::Delete | Method::Move);
    let path = path(asking, &target.path, is_followed)?;
    Ok(path.map(|path| Target { path, ..target }))
}

/// The path at which a change is made: `asked`, or where links on the way to it lead. The caller has
/// checked the right to write to `asked`; this checks the right to write where links lead, and to read
/// what a link at the path itself leads to if that `is_followed`.
pub(super) fn path(
    asking: &mut Asking<'_, '_, '_>,
    asked: &[u8],
    is_followed: bool,
) -> Result<Result<Vec<u8>, Response>, Question> {
    let Some(reached) = asking.known.reached.iter().find(|reached| reached.path == asked) else {
        return Err(Question::Reach(asked.to_vec()));
    };
    let shared = &asking.worker.shared;
    let (access, user) = (&shared.settings.access, asking.user.as_deref());
    let may = |path: &[u8], right| !shared.root.hides(path) && access.can(user, path, right);
    let forbidden = || asking.error(403, "a link leads from there to where you may not do this");
    let target = reached.target.as_deref().filter(|_| is_followed);
    if target.is_some_and(|target| reached.hides_target || !may(target, Right::Read)) {
        return Ok(Err(forbidden()));
    }
    Ok(match &reached.real {
        Ok(Some(real)) if !may(real, Right::Write) => Err(forbidden()),
        Ok(Some(real)) => Ok(real.clone()),
        // Whatever the settings say of reading, nothing is changed outside.
        Err(Errno::XDEV) if matches!(asking.request.method, Method::Put | Method::Patch) => {
            Err(asking.error(409, "a link leads out of what is served"))
        }
        Err(Errno::XDEV) => Err(forbidden()),
        // What is wrong is told by who makes the change.
        Ok(None) | Err(_) => Ok(asked.to_vec()),
    })
}
