//! Compares the files of a fetched folder with their digests.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use underpass_engine::atomic_file::rename_new;
use underpass_protocol::digest::Digest;
use underpass_transport::digest::{Stopped, verify};

use super::sums::Sums;
use crate::failure::{Failure, Result, WithPath};
use crate::output;

/// Compares every file of a folder that has a digest. One that does not match gets the suffix
/// `.damaged`; that, and one that is missing, is an error in the end.
pub(super) fn check(sums: &Sums, root: &Path, cancel: &AtomicBool) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, root, flags, Mode::empty()).with_path("opening", root)?;
    let (mut count, mut wrong) = (0_u64, 0_u64);
    for (path, digests) in sums.iter() {
        if cancel.load(Ordering::Relaxed) {
            return Err(Failure::line("cancelled while the digests were compared"));
        }
        count += 1;
        let reason = match check_one(&folder, path, digests, cancel) {
            Ok(true) => continue,
            Ok(false) => {
                "its digest is another one: its name has the suffix .damaged now".to_owned()
            }
            Err(error) => error.to_string(),
        };
        wrong += 1;
        output::note(&format!("{}: {reason}", path.display()));
    }
    match wrong {
        0 => Ok(()),
        _ => Err(Failure::line(format!(
            "{wrong} of {count} files in {} are not what {} says: see above",
            root.display(),
            sums.name()
        ))),
    }
}

/// Compares one file, and renames it if it does not match; returns whether it does.
fn check_one(
    root: &OwnedFd,
    path: &Path,
    digests: &[Digest],
    cancel: &AtomicBool,
) -> io::Result<bool> {
    // The list may come from anywhere: it leads neither out of the folder nor through links.
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let open = |path: &Path, flags: OFlags| {
        openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), beneath)
    };
    let name = path.file_name().ok_or(Errno::INVAL)?;
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let parent = open(parent.unwrap_or(Path::new(".")), OFlags::PATH | OFlags::DIRECTORY)?;
    let file = File::from(open(path, OFlags::RDONLY | OFlags::NONBLOCK)?);
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(Errno::INVAL.into());
    }
    let go_on = |_| !cancel.load(Ordering::Relaxed);
    let found =
        verify(&file, facts.len(), digests, &[], go_on).map_err(|stopped| match stopped {
            Stopped::Cancelled => Errno::INTR.into(),
            Stopped::Io(error) => error,
        })?;
    if found.iter().all(|fact| fact.matches() == Some(true)) {
        return Ok(true);
    }
    let mut damaged = OsString::from(name);
    damaged.push(".damaged");
    rename_new(&parent, name, &parent, damaged.as_os_str())?;
    Ok(false)
}
