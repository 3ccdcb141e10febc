//! A file that was opened to be copied.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat, accessat, fstat, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use underpass_engine::{errno, is_file};

use crate::error::{At, Result};
use crate::files::file_system;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;
use crate::worker::CopyWorker;

/// A file that was opened to be copied.
pub(crate) struct Original<'a> {
    pub(crate) file: File,
    pub(crate) stat: Stat,
    pub(crate) folder: &'a Arc<DirPair>,
    pub(crate) entry: &'a SourceEntry,
    /// The type of its file system.
    pub(crate) system: &'static str,
}

impl Original<'_> {
    /// Returns whether it is a regular file, and not a device or FIFO.
    pub(crate) fn is_file(&self) -> bool {
        is_file(&self.stat)
    }

    /// Returns its size in bytes, as fstat(2) gave it.
    pub(crate) fn len(&self) -> u64 {
        u64::try_from(self.stat.st_size).unwrap_or(0)
    }
}

impl CopyWorker<'_> {
    /// Opens an entry, which may be something else by now than it was in the listing.
    pub(super) fn open<'o>(
        &mut self,
        folder: &'o Arc<DirPair>,
        entry: &'o SourceEntry,
    ) -> Result<Original<'o>> {
        let path = || folder.source_path(&entry.name);
        let mut flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !entry.follows {
            flags |= OFlags::NOFOLLOW;
        }
        // A FIFO that has replaced a file must not block the copy.
        if self.context.settings.recursive {
            flags |= OFlags::NONBLOCK;
        }
        // A dry run does not wait for a writer, but needs the same permission.
        if self.context.settings.dry_run && entry.kind == FileType::Fifo {
            let (name, may) = (&entry.name, AtFlags::EACCESS);
            if accessat(&folder.source, name, Access::READ_OK, may) == Err(Errno::ACCESS) {
                return Err(Errno::ACCESS).at("opening", path);
            }
            flags |= OFlags::PATH;
        }
        let is_direct = self.context.settings.recursive || entry.kind == FileType::RegularFile;
        let opened = if is_direct {
            openat(&folder.source, &entry.name, flags, Mode::empty())
        } else {
            self.open_interruptibly(&folder.source, &entry.name, flags)
        };
        let opened = match opened {
            // The kernel has asked another process to release its lease on the file.
            Err(Errno::WOULDBLOCK) => self.open_leased(folder, entry, flags),
            opened => opened,
        };
        let file: File = opened.at("opening", path)?.into();
        let stat = fstat(&file).at("looking at", path)?;
        let system = match self.system {
            Some((device, name)) if device == stat.st_dev => name,
            _ => {
                let name = file_system::name(&file);
                self.system = Some((stat.st_dev, name));
                name
            }
        };
        Ok(Original { file, stat, folder, entry, system })
    }

    /// Opens a file once no other process has a lease on it.
    fn open_leased(
        &self,
        folder: &DirPair,
        entry: &SourceEntry,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        // A FIFO that replaces the file now must not block the copy.
        let found = openat(&folder.source, &entry.name, flags | OFlags::PATH, Mode::empty())?;
        if !is_file(&fstat(&found)?) {
            return Err(Errno::WOULDBLOCK);
        }
        let path = format!("/proc/self/fd/{}", found.as_raw_fd());
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        let flags = flags - (OFlags::NONBLOCK | OFlags::NOFOLLOW);
        self.open_interruptibly(&found, &path, flags)
    }

    /// Opens a source that may wait for another process, as a FIFO does for its writer.
    fn open_interruptibly(
        &self,
        at: &OwnedFd,
        name: &CStr,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        let (at, name) = (fcntl_dupfd_cloexec(at, 0)?, name.to_owned());
        let open = move || Ok(openat(at, name, flags, Mode::empty())?);
        self.context.observer.open(Box::new(open)).map_err(errno::of)
    }
}
