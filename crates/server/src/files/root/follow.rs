//! Follows the links of paths, and finds the spelling with which folders list their entries.

use std::borrow::Cow;

use rustix::fs::{AtFlags, FileType, OFlags, ResolveFlags, statat};
use rustix::io::Errno;
use underpass_engine::atomic_file;
use underpass_listing::leads_nowhere;

use super::{Root, join, open_at, open_folder_by, split};

/// A path with its links followed.
#[derive(Debug)]
pub(crate) struct FollowedPath {
    /// The [`Root::real_path`], or the error of links that lead nowhere.
    pub(crate) real: Result<Option<Vec<u8>>, Errno>,
    /// The target of a link at the path itself; `None` if it is not a link, or leads nowhere below
    /// the root.
    pub(crate) target: Option<Vec<u8>>,
}

impl Root {
    /// Follows the links of a path. Few paths have any; without links it takes one system call for
    /// each name, and two for each folder.
    ///
    /// # Errors
    ///
    /// An error that does not tell where the links lead, such as `EMFILE`: the rules for the target
    /// cannot be checked now.
    pub(crate) fn follow(&self, path: &[u8]) -> Result<FollowedPath, Errno> {
        let (listed, has_links) = self.listed_path(path)?;
        if !has_links && self.only.is_none() {
            return Ok(FollowedPath { real: Ok(listed), target: None });
        }
        let real = match self.real_path(path) {
            Err(errno) if !leads_nowhere(errno) => return Err(errno),
            real => real,
        };
        Ok(FollowedPath { real, target: self.link_target(path)? })
    }

    /// Returns the path at which a change would be made, if it differs: the resolved path of the
    /// existing folders, then the rest, spelled as the folders list the names. On a file system
    /// that ignores case, all spellings have one such path.
    ///
    /// # Errors
    ///
    /// The errors of [`parent_of`](Self::parent_of).
    pub(crate) fn real_path(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let linked = self.linked_path(path)?;
        Ok(self.listed_path(linked.as_deref().unwrap_or(path))?.0.or(linked))
    }

    /// Returns the path to which links on the way to this one lead.
    fn linked_path(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let (mut above, _) = split(path);
        while !above.is_empty() && self.only.is_none() {
            let opened = match self.open_folder(above) {
                Ok(_) => return Ok(None),
                Err(Errno::LOOP) => self.open_linked_folder(above),
                Err(errno) => Err(errno),
            };
            match opened {
                Ok(folder) => {
                    let real = self.reached(&folder)?.ok_or(Errno::XDEV)?;
                    return Ok(Some(join(&real, &path[above.len() + 1..])));
                }
                // The folder may be about to be created, at the end of a link.
                Err(Errno::NOENT | Errno::NOTDIR) => above = split(above).0,
                Err(errno) => return Err(errno),
            }
        }
        Ok(None)
    }

    /// Returns a path with existing names spelled as the folders list them, if one differs, and
    /// whether it has a link, on the way or at its end, at which the search stops.
    ///
    /// # Errors
    ///
    /// Those that do not mean that a name is missing or may not be looked up.
    fn listed_path(&self, path: &[u8]) -> Result<(Option<Vec<u8>>, bool), Errno> {
        if self.only.is_some() {
            return Ok((None, false));
        }
        let mut names = path.split(|byte| *byte == b'/').peekable();
        let (mut inner, mut listed) = (None, Vec::new());
        let (mut is_other, mut has_links) = (false, false);
        while let Some(name) = names.next() {
            let folder = inner.as_ref().unwrap_or(&self.folder);
            let stat = found(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))?;
            let other = stat.and_then(|stat| atomic_file::listed_name(folder, name, &stat));
            is_other |= other.is_some();
            listed.push(other.map_or(Cow::Borrowed(name), Cow::Owned));
            let kind = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
            has_links = kind == Some(FileType::Symlink);
            if kind != Some(FileType::Directory) || names.peek().is_none() {
                break;
            }
            match found(open_folder_by(folder, name, ResolveFlags::NO_SYMLINKS))? {
                Some(opened) => inner = Some(opened),
                None => break,
            }
        }
        listed.extend(names.map(Cow::Borrowed));
        Ok((is_other.then(|| listed.join(&b'/')), has_links))
    }

    /// Returns the target of a link at this path; `None` if it is not a link, or leads nowhere
    /// below the root.
    fn link_target(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = |links| open_at(&self.folder, path, flags, resolve | links);
        match open(ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => {}
            other => return found(other).map(|_| None),
        }
        let placed = found(self.with_place(|| open(ResolveFlags::empty())))?;
        let Some(target) = placed.and_then(|(_, place)| place.inside()) else { return Ok(None) };
        Ok(Some(self.listed_path(&target)?.0.unwrap_or(target)))
    }
}

/// Returns what was looked up; `None` if the error means that a path leads nowhere.
fn found<T>(outcome: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match outcome {
        Err(errno) if leads_nowhere(errno) => Ok(None),
        outcome => outcome.map(Some),
    }
}
