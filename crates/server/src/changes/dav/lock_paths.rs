//! The paths at which locks are looked up: that of a file, and that of the target of a link. They
//! are absolute, as several sites can serve the same folder.

use std::sync::Arc;

use rustix::io::Errno;

use crate::files::links::ResolvedPath;
use crate::files::root::{FollowedPath, Root};
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::sites::site::Site;

/// The paths at which a lock of a file or folder may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockPaths {
    /// The path of the name itself, without links on the way.
    pub(crate) own: Vec<u8>,
    /// The path of the target, if the name is that of a link.
    pub(crate) target: Option<Vec<u8>>,
}

impl LockPaths {
    /// Follows the links of a path.
    ///
    /// # Errors
    ///
    /// The response, if the system cannot follow them now.
    pub(crate) async fn find(ctx: &RequestContext<'_>, path: &[u8]) -> Result<Self, Response> {
        let (site, helper_path) = (Arc::clone(ctx.site()), path.to_vec());
        let follow = move || Self::follow(&site.root, helper_path);
        let found = ctx.worker.helpers.run(ctx.peer.client_net(), follow).await;
        found.map_err(|_| ctx.error(500, ""))?.map_err(|errno| ctx.refused(errno))
    }

    /// Follows the links of a path. It may wait for the disk.
    fn follow(root: &Root, path: Vec<u8>) -> Result<Self, Errno> {
        let FollowedPath { real, target } = root.follow(&path)?;
        let path = real.ok().flatten().unwrap_or(path);
        Ok(Self::of(root, &ResolvedPath { path, target }))
    }

    /// Returns the paths of a resolved one.
    pub(crate) fn of(root: &Root, resolved: &ResolvedPath) -> Self {
        let own = root.disk_path(&resolved.path);
        let target = resolved.target.as_deref().map(|target| root.disk_path(target));
        Self { target: target.filter(|target| *target != own), own }
    }

    /// Returns the paths, that of the name itself first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        [Some(&*self.own), self.target.as_deref()].into_iter().flatten()
    }

    /// Returns those paths that the site serves, relative to its root.
    pub(crate) fn served<'p>(&'p self, site: &'p Site) -> impl Iterator<Item = &'p [u8]> {
        self.iter().filter_map(|path| site.root.served_path(path))
    }

    /// Returns the path that the name leads to.
    pub(crate) fn reached(&self) -> &[u8] {
        self.target.as_deref().unwrap_or(&self.own)
    }
}
