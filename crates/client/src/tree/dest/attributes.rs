//! Sets permissions and times of files and folders.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags, Timespec, fchmod, futimens};
use rustix::io::Errno;
use underpass_engine::atomic_file::{KeptOwner, take_over_named};
use underpass_engine::times_of_new;
use underpass_sys::open_beneath;

use super::{DestFolder, OWNER};

impl DestFolder {
    /// Returns why permissions or times were refused, if they were.
    pub(in crate::tree) fn refused(&self) -> Option<Errno> {
        self.refused.get().copied()
    }

    /// Sets permissions and time of a file that has its final name, or of a folder that is
    /// complete. `how` are the flags for opening it.
    pub(in crate::tree) fn set_opened_attributes(
        &self,
        path: &[u8],
        how: OFlags,
        mode: Option<u32>,
        modified: Option<Timespec>,
    ) -> Result<(), Errno> {
        if mode.is_none() && modified.is_none() {
            return Ok(());
        }
        let file = File::from(open_beneath(self.root.as_fd(), path, OFlags::RDONLY | how)?);
        self.set_exact_attributes(&file, mode, modified)
    }

    /// Sets permissions and time of a complete file.
    pub(in crate::tree) fn set_metadata(
        &self,
        file: &File,
        mode: u32,
        modified: Timespec,
    ) -> Result<(), Errno> {
        // The kernel has applied the umask to the mode at creation.
        if mode & OWNER != OWNER {
            self.tolerate(fchmod(file, Mode::from_raw_mode(self.permissions(mode))))?;
        }
        self.tolerate(futimens(file, &times_of_new(modified)))
    }

    /// Sets permissions and time of a complete file. If it replaces another file, it gets the
    /// permissions of that file.
    pub(in crate::tree) fn set_file_attributes(
        &self,
        path: &[u8],
        file: &File,
        mode: Option<u32>,
        modified: Option<Timespec>,
    ) -> Result<(), Errno> {
        if !self.replaces(path)? {
            let mode = mode.map(|mode| self.permissions(mode));
            return self.set_exact_attributes(file, mode, modified);
        }
        // Only the owner may set times, and the owner may be another user afterwards.
        self.set_exact_attributes(file, None, modified)?;
        self.within(path, |parent, name| {
            take_over_named(file, parent, name, KeptOwner::Old).map(drop)
        })
    }

    /// Sets permissions and time of a file that was created with other permissions.
    fn set_exact_attributes(
        &self,
        file: &File,
        mode: Option<u32>,
        modified: Option<Timespec>,
    ) -> Result<(), Errno> {
        if let Some(mode) = mode {
            self.tolerate(fchmod(file, Mode::from_raw_mode(mode)))?;
        }
        let times = modified.map(times_of_new);
        times.map_or(Ok(()), |times| self.tolerate(futimens(file, &times)))
    }

    /// Records that a file system refused permissions or a time, as some do for all files: the
    /// contents are right all the same.
    pub(super) fn tolerate(&self, set: Result<(), Errno>) -> Result<(), Errno> {
        match set {
            Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)) => {
                self.note_refusal(errno);
                Ok(())
            }
            set => set,
        }
    }

    /// Records why permissions or a time were refused, unless there is a reason already.
    pub(in crate::tree) fn note_refusal(&self, errno: Errno) {
        let _ = self.refused.set(errno);
    }
}
