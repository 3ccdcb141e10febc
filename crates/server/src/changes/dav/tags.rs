//! The entity tags that an `If` field expects (RFC 4918 10.4.4), to be checked again at the moment
//! of a change.

use std::sync::Arc;

use rustix::fs::fstat;
use underpass_engine::{Version, is_file};

use crate::auth::Right;
use crate::digest::stored;
use crate::server::sites::site::Site;

/// The conditions on entity tags of those lists whose conditions on locks held when the request was
/// checked. One list has to hold.
#[derive(Debug, Default)]
pub(crate) struct TagConditions {
    /// The lists; there are none if the request depends on no tag.
    pub(crate) lists: Vec<Vec<TagCondition>>,
    /// The user, who must have the right to read the entry with the tag.
    pub(crate) user: Option<Arc<str>>,
}

/// A condition on the entity tag of a file.
#[derive(Debug)]
pub(crate) struct TagCondition {
    /// The path; `None` if it is on another server.
    pub(crate) path: Option<Vec<u8>>,
    /// The expected tag.
    pub(crate) tag: String,
    /// Whether the file must not have it.
    pub(crate) is_not: bool,
}

impl TagConditions {
    /// Returns whether the request depends on no tag.
    pub(crate) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Returns whether the file at a path must have one of the tags.
    pub(crate) fn expect_one_of(&self, path: &[u8]) -> bool {
        let is_expected = |one: &TagCondition| !one.is_not && one.path.as_deref() == Some(path);
        self.lists.iter().flatten().any(is_expected)
    }

    /// Returns whether the conditions hold. The caller must hold the names. It may wait for the
    /// disk.
    pub(crate) fn hold(&self, site: &Site) -> bool {
        let holds = |one: &TagCondition| {
            let tag = one.path.as_deref().and_then(|path| self.tag(site, path));
            (tag.as_deref() == Some(&*one.tag)) != one.is_not
        };
        self.is_empty() || self.lists.iter().any(|list| list.iter().all(holds))
    }

    /// Returns the tag of the file at a path, if the user may read it.
    fn tag(&self, site: &Site, path: &[u8]) -> Option<String> {
        let (file, reached) = site.root.open_unleased(path).ok()?;
        let access = &site.settings.access;
        let mut reached = [Some(path), reached.as_deref()].into_iter().flatten();
        let may_read = reached.all(|path| access.can(self.user.as_deref(), path, Right::Read));
        let stat = fstat(&file).ok().filter(|_| may_read)?;
        let is_file = is_file(&stat);
        is_file.then(|| stored::etag(&file, &Version::from_stat(&stat)))
    }
}
