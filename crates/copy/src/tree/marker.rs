//! Marks a folder whose copy is not complete, so that a repeated command copies to the same folder.
//!
//! `cp -a --resume s k` makes the folder `k`, and would make `k/s` in it when it is repeated. While
//! the copy is not complete there is therefore a small file in `k` whose name identifies the
//! source. It is made before `k` has its name, and removed when nothing is left to be copied.
//!
//! It contains the mount epoch in which everything in the folder was written. It is written to an
//! empty folder only, and never renewed: a run in another one may not come to all files.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, Stat, fchmod, fstat, futimens, openat, statat, unlinkat,
};
use rustix::io::Errno;
use underpass_engine::atomic_file::name_of_hidden;
use underpass_engine::{is_file, mount_epoch};

use crate::attributes::times;
use crate::files::folder::{open_folder, open_source};
use crate::options::Follow;
use crate::tree::hidden_names::{self, identity};

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
    let epoch = boot.map(|boot| mount_epoch::of(boot, target));
    if is_marker(target, &name) {
        return Ok(epoch.is_some_and(|epoch| tells(target, &name, &epoch)));
    }
    let epoch = epoch.filter(|_| is_empty(target));
    if epoch.is_none() && !always {
        return Ok(false);
    }
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(target, name, flags, Mode::RUSR | Mode::WUSR)?);
    let written = epoch.map(|epoch| file.write_all(epoch.as_bytes()));
    // One that could not be written is not believed later.
    Ok(written.is_some_and(|written| written.is_ok()))
}

/// Checks whether a marker has this mount epoch in it.
fn tells(target: &OwnedFd, name: &CString, epoch: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut text = Vec::new();
    openat(target, name, flags, Mode::empty())
        .is_ok_and(|file| File::from(file).take(MAX_LEN).read_to_end(&mut text).is_ok())
        && text == epoch.as_bytes()
}

fn is_empty(folder: &OwnedFd) -> bool {
    let Ok(mut found) = open_folder(folder, c".").and_then(Dir::new) else {
        return false;
    };
    found.all(|entry| entry.is_ok_and(|entry| matches!(entry.file_name().to_bytes(), b"." | b"..")))
}

/// Removes the marker, if there is one, and sets the folder's times again. This is the last step of
/// a copy.
pub(crate) fn remove(target: &OwnedFd, source: &OwnedFd, original: Option<&Stat>) {
    let Some(name) = name(source).filter(|name| is_marker(target, name)) else { return };
    // What cannot be removed now is removed by the next command.
    if unlinkat(target, &name, AtFlags::empty()) == Err(Errno::ACCESS)
        && let Ok(stat) = fstat(target)
    {
        // A folder that is not writable, as its original.
        let _ = fchmod(target, Mode::RWXU);
        let _ = unlinkat(target, &name, AtFlags::empty());
        let _ = fchmod(target, Mode::from_raw_mode(stat.st_mode));
    }
    if let Some(original) = original {
        let _ = futimens(target, &times(original));
    }
}

/// Returns whether a folder is a copy of this source that is not complete.
pub(crate) fn is_set(target: &Path, source: &Path, follow: Follow) -> bool {
    match (open_source(CWD, source, follow != Follow::Never), open_source(CWD, target, true)) {
        (Ok(source), Ok(target)) => name(&source).is_some_and(|name| is_marker(&target, &name)),
        _ => false,
    }
}

fn is_marker(target: impl AsFd, name: &CString) -> bool {
    statat(target, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
        is_file(&stat) && u64::try_from(stat.st_size).is_ok_and(|size| size <= MAX_LEN)
    })
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

/// Longest marker in bytes.
const MAX_LEN: u64 = mount_epoch::MAX_LEN as u64;
