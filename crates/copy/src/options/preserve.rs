//! The attributes of originals that copies get.

use std::ffi::CStr;

use rustix::fs::Stat;
use underpass_engine::is_file;

/// The attributes of originals that copies get. The default is permissions and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preserve {
    /// Their mode.
    pub mode: PreserveMode,
    /// Owner and group, as far as this user may set them.
    pub ownership: bool,
    /// Times of the last access and the last change.
    pub timestamps: PreserveTimes,
    /// Extended attributes (xattr(7)), except ACLs and the SELinux context.
    pub xattrs: PreserveXattrs,
    /// The SELinux context.
    pub context: bool,
}

/// The part of the mode of originals that copies get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreserveMode {
    /// Nothing: they have the mode of a new file, which is that of the umask.
    Nothing,
    /// Its permissions, as far as the folder they are in allows them.
    Permissions,
    /// All of it, and ACLs.
    All,
}

/// Which copies get the times of their originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreserveTimes {
    /// None.
    Nothing,
    /// Files, and new folders.
    New,
    /// Folders that existed, too.
    All,
}

/// Which extended attributes copies get of their originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreserveXattrs {
    /// None.
    Nothing,
    /// The one of this name.
    One(&'static CStr),
    /// All of them that the file system supports and accepts from this user.
    All,
    /// All of them: one that cannot be kept is a failure, whatever the reason.
    Required,
}

impl PreserveXattrs {
    fn keeps_any(self) -> bool {
        self != Self::Nothing
    }

    fn keeps(self, name: &CStr) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(kept) => kept == name,
            Self::All | Self::Required => true,
        }
    }
}

impl Preserve {
    /// Everything.
    pub const ALL: Self = Self {
        mode: PreserveMode::All,
        ownership: true,
        timestamps: PreserveTimes::All,
        xattrs: PreserveXattrs::All,
        context: true,
    };

    /// Returns whether all of the mode and ACLs are kept.
    #[must_use]
    pub fn keeps_mode(self) -> bool {
        self.mode == PreserveMode::All
    }

    /// Returns whether files get the times of their originals.
    pub(crate) fn keeps_times(self) -> bool {
        self.timestamps != PreserveTimes::Nothing
    }

    /// Returns whether a copy of the bytes of this entry gets its times. Those of a device or FIFO
    /// say nothing about the bytes that come from it, and are kept only if requested.
    #[must_use]
    pub fn keeps_times_of_bytes(self, stat: &Stat) -> bool {
        self.keeps_times() && (is_file(stat) || self.timestamps == PreserveTimes::All)
    }

    /// Returns whether a folder gets the times of its original.
    pub(crate) fn keeps_times_of_folder(self, is_new: bool) -> bool {
        match self.timestamps {
            PreserveTimes::Nothing => false,
            PreserveTimes::New => is_new,
            PreserveTimes::All => true,
        }
    }

    /// Returns whether existing folders get anything of the folders that are copied to them.
    pub(crate) fn changes_folders(self) -> bool {
        self.keeps_mode()
            || self.ownership
            || self.timestamps == PreserveTimes::All
            || self.xattrs.keeps_any()
            || self.context
    }

    /// Returns whether any extended attribute is kept.
    pub(crate) fn keeps_attributes(self) -> bool {
        self.keeps_mode() || self.xattrs.keeps_any() || self.context
    }

    /// Returns whether the extended attribute of this name is kept.
    pub(crate) fn keeps_attribute(self, name: &CStr) -> bool {
        match name.to_bytes() {
            b"security.selinux" => self.context,
            name if name == HIDDEN_MARK.to_bytes() => false,
            // XFS shows root each ACL a second time. Another file system would keep that as it is
            // when the ACL changes, and a copy back to XFS would restore the old rights.
            name if name.starts_with(b"trusted.SGI_ACL_") => false,
            // A signature of this inode, which is invalid for any other.
            b"security.evm" => false,
            b"system.nfs4_acl" => self.keeps_mode(),
            name if name.starts_with(b"system.posix_acl_") => self.keeps_mode(),
            _ => self.xattrs.keeps(name),
        }
    }
}

/// The attribute that marks entries under hidden names. It is never copied.
pub(crate) const HIDDEN_MARK: &CStr = c"user.underpass.hidden";

impl Default for Preserve {
    fn default() -> Self {
        Self {
            mode: PreserveMode::Permissions,
            ownership: false,
            timestamps: PreserveTimes::New,
            xattrs: PreserveXattrs::Nothing,
            context: false,
        }
    }
}
