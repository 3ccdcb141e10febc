//! Creates links, symbolic and hard ones.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, OFlags, Timespec, fstat, linkat, readlinkat, renameat, statat, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use underpass_engine::{FileId, is_file, times_of_new};
use underpass_sys::open_beneath;

use super::{DestFolder, DestOutcome, ExistingEntry};
use crate::tree::paths::PARTIAL;

impl DestFolder {
    /// Creates a symbolic link.
    pub(in crate::tree) fn make_link(
        &self,
        path: &[u8],
        target: &[u8],
        modified: Timespec,
    ) -> Result<DestOutcome, Errno> {
        self.name(path, || {
            self.within(path, |parent, name| {
                let set_time = |name: &[u8]| {
                    let times = times_of_new(modified);
                    self.tolerate(utimensat(parent, name, &times, AtFlags::SYMLINK_NOFOLLOW))
                };
                match symlinkat(target, parent, name) {
                    Err(Errno::EXIST) => {}
                    made => return made.and_then(|()| set_time(name)).map(|()| DestOutcome::New),
                }
                if readlinkat(parent, name, Vec::new()).is_ok_and(|here| here.to_bytes() == target)
                {
                    return set_time(name).map(|()| DestOutcome::Same);
                }
                self.create_replacement(parent, name, |hidden| {
                    symlinkat(target, parent, hidden)?;
                    set_time(hidden)
                })?;
                renameat(parent, PARTIAL, parent, name).map(|()| DestOutcome::New)
            })
        })
    }

    /// Creates a hard link.
    pub(in crate::tree) fn make_hard_link(
        &self,
        path: &[u8],
        target: &[u8],
    ) -> Result<DestOutcome, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let file = open_beneath(self.root.as_fd(), target, flags)?;
        let stat = fstat(&file)?;
        if !is_file(&stat) {
            return Err(Errno::PERM);
        }
        // By descriptor: the name may lead to another file by now.
        let from = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        self.name(path, || {
            self.within(path, |parent, name| {
                match linkat(CWD, &from, parent, name, AtFlags::SYMLINK_FOLLOW) {
                    Err(Errno::EXIST) => {}
                    made => return made.map(|()| DestOutcome::New),
                }
                let here = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileId::of(&here) == FileId::of(&stat) {
                    return Ok(DestOutcome::Same);
                }
                self.create_replacement(parent, name, |hidden| {
                    linkat(CWD, &from, parent, hidden, AtFlags::SYMLINK_FOLLOW)
                })?;
                renameat(parent, PARTIAL, parent, name).map(|()| DestOutcome::New)
            })
        })
    }

    /// Calls `make` to create a replacement under the temporary name, if the name may be replaced.
    fn create_replacement(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        make: impl FnOnce(&[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if self.if_exists == ExistingEntry::Stays {
            return Err(Errno::EXIST);
        }
        self.refuse_special(&statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?)?;
        match unlinkat(parent, PARTIAL, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => make(PARTIAL.as_bytes()),
            Err(errno) => Err(errno),
        }
    }
}
