//! An entry of a folder that is to be copied.

use std::ffi::{CStr, CString};

use rustix::fs::FileType;

/// An entry of a folder that is to be copied.
#[derive(Clone, Debug)]
pub(crate) struct SourceEntry {
    /// Its name; that of a source is a path.
    pub(crate) name: CString,
    /// Its new name, if it gets one.
    pub(crate) new_name: Option<CString>,
    /// Its type, as far as the folder tells.
    pub(crate) kind: FileType,
    /// Whether it is followed if it is a link.
    pub(crate) follows: bool,
    /// Its inode number, which is the order of some disks.
    pub(crate) number: u64,
    /// The entries of a folder that are copied; all of them if none are named.
    pub(crate) only: Option<Vec<Self>>,
}

impl SourceEntry {
    /// Returns its name in the target.
    pub(crate) fn target(&self) -> &CStr {
        self.new_name.as_deref().unwrap_or(&self.name)
    }
}
