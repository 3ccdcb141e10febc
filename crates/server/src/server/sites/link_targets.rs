//! The targets of links, as far as a client may see them: listings and archives leave out all other
//! links.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::fstat;
use rustix::io::Errno;
use underpass_listing::{Attributes, Resolve, leads_nowhere};

use crate::auth::Right;
use crate::files::root::{Place, split};
use crate::server::sites::site::Site;

/// Follows links as far as requests of a client do.
pub(crate) struct LinkTargets<'a> {
    pub(crate) site: &'a Site,
    pub(crate) user: Option<&'a str>,
}

impl LinkTargets<'_> {
    /// Returns whether a link, at this path below the root, may be passed on as a link: it leads to
    /// an entry that the client may see, or to nothing at a path that it may know. Targets outside
    /// of the root are revealed only where links out of it are followed.
    ///
    /// # Errors
    ///
    /// Those of openat2(2) that say nothing about the target, such as `EMFILE`.
    pub(crate) fn may_tell(&self, path: &[u8], link: &[u8]) -> Result<bool, Errno> {
        let leaves = self.site.settings.allows_symlinks_outside;
        let is_absolute = link.starts_with(b"/");
        if is_absolute && !leaves {
            return Ok(false);
        }
        let seen = match self.site.root.open_placed(path) {
            Err(Errno::NOENT) if !is_absolute => return self.may_name_missing(path, link),
            found => found.and_then(|(target, place)| self.seen(&target, &place)),
        };
        known(seen.map(|(attributes, is_inside)| (is_inside || leaves) && attributes.is_served()))
    }

    /// Returns whether the client may know the path of a link's missing target, which is never the
    /// case outside the root.
    fn may_name_missing(&self, path: &[u8], link: &[u8]) -> Result<bool, Errno> {
        let root = &self.site.root;
        let folder = root.open_path(split(path).0).and_then(|folder| root.reached(folder));
        let may_know = |path: &[u8]| {
            self.site.settings.access.can(self.user, path, Right::Read)
                && !root.hides_entry(path, true)
        };
        known(folder.and_then(|folder| {
            let Some(named) = folder.and_then(|folder| joined(&folder, link)) else {
                return Ok(false);
            };
            let real = root.real_path(&named)?;
            Ok(may_know(&named) && real.is_none_or(|real| may_know(&real)))
        }))
    }

    /// Returns the attributes of an open target, and whether it is below the root.
    fn seen(&self, target: &OwnedFd, place: &Place) -> Result<(Attributes, bool), Errno> {
        let root = &self.site.root;
        let attributes = Attributes::from(&fstat(target)?);
        let is_shown = match place {
            Place::Inside(reached) => {
                self.site.settings.access.can(self.user, reached, Right::Read)
                    && !root.hides_entry(reached, attributes.is_folder())
            }
            Place::Outside(path) => !root.is_own(path),
        };
        if is_shown {
            Ok((attributes, matches!(place, Place::Inside(_))))
        } else {
            Err(Errno::NOENT)
        }
    }
}

/// Returns the result of a lookup, which is false if it fails because the target does not exist, or
/// may not be accessed.
fn known(found: Result<bool, Errno>) -> Result<bool, Errno> {
    match found {
        Err(errno) if leads_nowhere(errno) => Ok(false),
        found => found,
    }
}

/// Returns the path to which a relative link in a folder leads; `None` if that is outside of the
/// root.
fn joined(folder: &[u8], link: &[u8]) -> Option<Vec<u8>> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in [folder, link].into_iter().flat_map(|path| path.split(|byte| *byte == b'/')) {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()?),
            name => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

impl Resolve for LinkTargets<'_> {
    fn resolve(&self, path: &[u8]) -> io::Result<Attributes> {
        let (target, place) = self.site.root.open_placed(path)?;
        Ok(self.seen(&target, &place)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_joined_to_their_folder_and_stay_below_the_root() {
        for (folder, link, expected) in [
            ("a/b", "c", Some("a/b/c")),
            ("a/b", "../c/./d//", Some("a/c/d")),
            ("", "c", Some("c")),
            ("a", "..", Some("")),
            ("a", "../..", None),
            ("", "../a", None),
        ] {
            let joined = joined(folder.as_bytes(), link.as_bytes());
            assert_eq!(joined.as_deref(), expected.map(str::as_bytes), "{folder} {link}");
        }
    }
}
