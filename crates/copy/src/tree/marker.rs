//! Marks a folder whose copy is incomplete, so that a repeated command copies to the same folder.
//!
//! `cp -a --resume s k` makes the folder `k`, and would make `k/s` in it when it is repeated. While
//! the copy is incomplete there is therefore a small file in `k` whose name identifies the source.
//! It is made before `k` has its name (on FUSE, just after), and removed when nothing is left to be
//! copied.
//!
//! It contains the mount epoch in which everything in the folder was written. It is written to an
//! empty folder only, and never renewed: a run in another epoch may not reach all files.
//!
//! Every user can make such a file. It counts only if this user owns it and no other may write to
//! it, and its text only in a folder of this user that no other user may write to.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, fchmod, fstat, futimens, openat, statat, syncfs,
    unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::{is_ours_alone, name_of_hidden, open_entry};
use underpass_engine::{is_file, mount_epoch};

use crate::attributes::times;
use crate::files::folder::{open_folder, open_source};
use crate::options::Follow;
use crate::tree::hidden_names::{self, identity, is_own_folder};

/// Marks a folder as one whose copy is not complete: an empty one, or, with `always`, any. Returns
/// whether everything in it was written in this mount epoch.
///
/// # Errors
///
/// As open(2) and write(2).
pub(crate) fn set(
    target: &OwnedFd,
    source: &OwnedFd,
    boot: Option<&str>,
    always: bool,
) -> Result<bool, Errno> {
    let Some(name) = name(source) else { return Ok(false) };
    let epoch = boot.filter(|_| is_own_folder(target)).map(|boot| mount_epoch::of(boot, target));
    if let Some(marker) = open(target, &name) {
        if !epoch.is_some_and(|epoch| tells(marker, &epoch)) {
            return Ok(false);
        }
        // The kernel drops bytes that it could not write back, and reports that once.
        let is_synced = syncfs(target).is_ok();
        if !is_synced {
            let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(target, &name, flags, Mode::empty())?;
        }
        return Ok(is_synced);
    }
    let epoch = epoch.filter(|_| is_empty(target));
    if epoch.is_none() && !always {
        return Ok(false);
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(target, name, flags, Mode::RUSR | Mode::WUSR)?);
    let written = epoch.map(|epoch| file.write_all(epoch.as_bytes()));
    // A marker that could not be written is not trusted later.
    Ok(written.is_some_and(|written| written.is_ok()))
}

/// Returns whether a marker has this mount epoch in it.
fn tells(marker: File, epoch: &str) -> bool {
    let mut text = Vec::new();
    marker.take(MAX_LEN).read_to_end(&mut text).is_ok() && text == epoch.as_bytes()
}

/// Returns whether a folder can be listed and has no entry.
pub(crate) fn is_empty(folder: &OwnedFd) -> bool {
    let Ok(mut found) = open_folder(folder, c".").and_then(Dir::new) else {
        return false;
    };
    found.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
}

/// Removes the marker, if there is one, and sets the folder's times again. This is the last step of
/// a copy.
///
/// # Errors
///
/// As unlink(2), fchmod(2) and futimens(3).
pub(crate) fn remove(
    target: &OwnedFd,
    source: &OwnedFd,
    original: Option<&Stat>,
) -> Result<(), Errno> {
    let Some(name) = name(source).filter(|name| open(target, name).is_some()) else {
        return Ok(());
    };
    let removed = match unlinkat(target, &name, AtFlags::empty()) {
        // The folder is not writable, like its original.
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(fstat(target)?.st_mode);
            let removed =
                fchmod(target, Mode::RWXU).and_then(|()| unlinkat(target, &name, AtFlags::empty()));
            removed.and(fchmod(target, mode))
        }
        removed => removed,
    };
    let timed = original.map_or(Ok(()), |original| futimens(target, &times(original)));
    removed.and(timed)
}

/// Returns whether a folder is an incomplete copy of this source.
pub(crate) fn is_set(target: &Path, source: &Path, follow: Follow) -> bool {
    match (open_source(CWD, source, follow != Follow::Never), open_source(CWD, target, true)) {
        (Ok(source), Ok(target)) => {
            name(&source).is_some_and(|name| open(&target, &name).is_some())
        }
        _ => false,
    }
}

/// Opens the marker of this name, if this user has made it.
fn open(target: &OwnedFd, name: &CStr) -> Option<File> {
    let file = open_entry(target, name).ok()?;
    let is_marker = fstat(&file).is_ok_and(|stat| {
        is_file(&stat) && u64::try_from(stat.st_size).is_ok_and(|size| size <= MAX_LEN)
    });
    (is_marker && is_ours_alone(&file, target) == Ok(true)).then_some(file)
}

/// Returns the name of the marker; `None` if the source has an entry of that name, which is copied.
fn name(source: &OwnedFd) -> Option<CString> {
    let name = hidden_names::hidden(NAME, Some(identity(source)));
    statat(source, &name, AtFlags::SYMLINK_NOFOLLOW).is_err().then_some(name)
}

/// Returns whether a marker could have this name.
pub(crate) fn is_name(name: &CStr) -> bool {
    name_of_hidden(name.to_bytes()) == Some(NAME.to_bytes())
}

/// The name that the hidden name of a marker is made of.
pub(crate) const NAME: &CStr = c"unfinished";

/// The maximum size of a marker in bytes.
const MAX_LEN: u64 = mount_epoch::MAX_LEN as u64;
