//! Checks whether an entry may be removed, moved or replaced.

use std::ffi::{CString, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use underpass_engine::atomic_file::stat_entry;
use underpass_engine::{FileId, MinFree};

use crate::changes::dest_entry::DestEntry;
use crate::changes::hidden_name::name_of_aside;
use crate::changes::refusal::{ChangeRefusal, NAME_HIDDEN, Result};
use crate::changes::tree;
use crate::changes::tree::TreeCheck;
use crate::files::root::is_incomplete;
use crate::server::sites::site::Site;
use crate::uploads::has_room;
use underpass_protocol::request::destination::{Depth, Destination, Overwrite};

/// Refuses a `Depth` that excludes the content of a folder (RFC 4918 9.6.1, 9.9.2). It has no
/// meaning for a file.
pub(super) fn check_depth(stat: &Stat, depth: Depth) -> Result<()> {
    if tree::kind(stat) == FileType::Directory && depth == Depth::Zero {
        return Err(ChangeRefusal::new(400, "a folder can only be removed or moved as a whole"));
    }
    Ok(())
}

/// Opens the destination of a move or copy, if it is allowed.
pub(super) fn open_dest(site: &Site, to: &Destination, source: &Stat) -> Result<DestEntry> {
    let is_folder = tree::kind(source) == FileType::Directory;
    let is_file_to_folder = to.is_folder && !is_folder;
    if is_file_to_folder && to.overwrite != Overwrite::Allowed {
        return Err(no_folder());
    }
    if is_folder && site.root.hides_entry(&to.path, true) {
        return Err(hidden());
    }
    let (folder, name) = if is_file_to_folder {
        // No parent is created: the folder to be replaced exists, or the request is refused.
        existing_parent_of(site, &to.path)?
    } else {
        parent_of(site, &to.path)?
    };
    let mut dest = DestEntry { folder, name, existing: None };
    find_existing(site, to, &mut dest, source)?;
    Ok(dest)
}

/// Finds the entry with the name of the destination, and refuses one that may not be replaced.
pub(super) fn find_existing(
    site: &Site,
    to: &Destination,
    dest: &mut DestEntry,
    source: &Stat,
) -> Result<()> {
    dest.existing = stat_entry(&dest.folder, &dest.name)?;
    let is_folder = tree::kind(source) == FileType::Directory;
    if to.is_folder && !is_folder && !dest.is_folder() {
        return Err(no_folder());
    }
    let Some(existing) = &dest.existing else { return Ok(()) };
    if FileId::of(existing) == FileId::of(source) {
        return Err(ChangeRefusal::new(403, "this is the same file or folder"));
    }
    if !to.may_replace() {
        return Err(Errno::EXIST.into());
    }
    match tree::kind(existing) {
        // Others may mean to put the file into the folder, as mv(1) would.
        FileType::Directory if !is_folder && to.overwrite != Overwrite::Allowed => {
            Err(ChangeRefusal::new(409, "a file replaces a folder only with Overwrite: T"))
        }
        FileType::Directory => check_removal(site, dest, existing, &to.path),
        FileType::RegularFile | FileType::Symlink => Ok(()),
        _ => Err(ChangeRefusal::new(409, "the Destination is neither a file nor a folder")),
    }
}

/// Refuses to replace a folder that the client could not delete.
fn check_removal(site: &Site, dest: &DestEntry, existing: &Stat, path: &[u8]) -> Result<()> {
    if !site.settings.changes.delete {
        return Err(ChangeRefusal::new(
            403,
            "a folder can be replaced only where it can be deleted",
        ));
    }
    if site.root.hides_entry(path, true) {
        return Err(hidden());
    }
    check_contents(site, &dest.folder, &dest.name, existing, path, None)
}

/// Refuses a folder with an entry that no client here may see: it must not be removed, nor be moved
/// to a path at which it is not hidden.
pub(super) fn check_contents(
    site: &Site,
    folder: &OwnedFd,
    name: &CString,
    stat: &Stat,
    path: &[u8],
    new_path: Option<&[u8]>,
) -> Result<()> {
    if tree::kind(stat) != FileType::Directory {
        return Ok(());
    }
    let is_kept = |inside: &[u8], is_folder| {
        let Some(inside) = own_path(inside) else { return false };
        if !site.root.hides_entry(&inside, is_folder) {
            return false;
        }
        let Some(new_path) = new_path else { return true };
        let there = [new_path, &inside[path.len()..]].concat();
        // An entry that only a folder pattern hides is a folder, or a link to one.
        let as_folder = is_folder || !site.root.hides(&inside);
        !if as_folder { site.root.hides_entry(&there, true) } else { site.root.hides(&there) }
    };
    // A mount point moves along with a folder above it, but a removal would empty it.
    let check = TreeCheck { is_kept: &is_kept, crosses_mounts: new_path.is_some() };
    check.run(folder, name, path)
}

/// Returns a function that checks whether an entry in the folder at `path` is hidden, so that it
/// must not be removed.
pub(super) fn hidden_beneath(site: &Site, path: &[u8]) -> impl Fn(&[u8], bool) -> bool {
    move |inside, is_folder| {
        let own = own_path(&[path, b"/", inside].concat());
        own.is_some_and(|own| site.root.hides_entry(&own, is_folder))
    }
}

/// Returns the path of an entry as clients see it: a folder that was moved aside has its original
/// name. `None` for entries that may go with their folder: parts of uploads, whose destination is
/// gone, files that vanish once they are closed, and everything in folders that are being removed
/// or made.
fn own_path(path: &[u8]) -> Option<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').map(|name| match name_of_aside(name) {
        None if is_incomplete(name) => None,
        own => Some(own.unwrap_or(name)),
    });
    Some(names.collect::<Option<Vec<_>>>()?.join(&b'/'))
}

/// Returns the folder for a new entry, and the name in it.
pub(super) fn parent_of(site: &Site, path: &[u8]) -> Result<(OwnedFd, CString)> {
    let changes = &site.settings.changes;
    if changes.create_parents {
        site.root.make_parents(path, changes.sync).map_err(ChangeRefusal::at_target)?;
    }
    existing_parent_of(site, path)
}

/// Does the same without creating the folder.
fn existing_parent_of(site: &Site, path: &[u8]) -> Result<(OwnedFd, CString)> {
    let parent = site.root.parent_of(path).map_err(ChangeRefusal::at_target)?;
    let (folder, name) = parent.ok_or_else(root_itself)?;
    Ok((folder, c_name(name)))
}

/// Checks that a path still leads to its parent folder, which was opened before. The caller must hold
/// the names.
pub(super) fn check_parent(site: &Site, path: &[u8], folder: &OwnedFd) -> Result<()> {
    site.root.check_parent(path, folder).map_err(|errno| match errno {
        Errno::STALE => ChangeRefusal::new(409, "its parent folder was moved or replaced"),
        errno => ChangeRefusal::at_target(errno),
    })
}

/// Returns whether a copy of this size leaves the configured space free. If there is no such limit,
/// only the file system can tell: a copy that shares its blocks takes no space.
pub(super) fn fits(site: &Site, folder: BorrowedFd<'_>, len: u64) -> bool {
    site.settings.changes.min_free == MinFree::Bytes(0) || has_room(site, folder, len)
}

pub(super) fn no_folder() -> ChangeRefusal {
    ChangeRefusal::new(409, "the Destination ends in a slash, but this is not a folder")
}

pub(super) fn hidden() -> ChangeRefusal {
    ChangeRefusal::new(403, NAME_HIDDEN)
}

pub(super) fn root_itself() -> ChangeRefusal {
    ChangeRefusal::new(403, "the served folder or file itself cannot be changed")
}

/// Returns a name from a path as a C string; it has no NUL.
pub(super) fn c_name(name: &OsStr) -> CString {
    CString::new(name.as_bytes()).unwrap_or_default()
}
