//! Records which version of a file a part belongs to. The name of a part without an address tells
//! only its owner and the name of the file, and bytes of another version must not be appended to it.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::sync::Mutex;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::wait::lock;

use super::unfinished::MAX_PARTS;

/// The version of a file that is uploaded, as far as the server knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartVersion {
    /// The length of the complete file.
    pub(crate) total: u64,
    /// The entity tag of the file that had the name when the upload began; empty if none had it.
    pub(crate) replaces: String,
    /// Whether the part begins with a copy of that file.
    pub(crate) is_copied: bool,
}

impl PartVersion {
    fn parse(note: &[u8]) -> Option<Self> {
        let (total, rest) = str::from_utf8(note).ok()?.split_once(' ')?;
        let copied = rest.strip_suffix(COPIED);
        let replaces = copied.unwrap_or(rest).to_owned();
        Some(Self { total: total.parse().ok()?, replaces, is_copied: copied.is_some() })
    }

    /// Returns whether a part of one can be continued with bytes of the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.total, &self.replaces) == (other.total, &other.replaces)
    }
}

/// The versions of parts, stored in their attributes or, on file systems without them, in the
/// memory of this server.
#[derive(Debug, Default)]
pub(crate) struct PartVersions(Mutex<HashMap<FileId, PartVersion>>);

impl PartVersions {
    /// Returns the version of a part; `None` if it is unknown.
    pub(crate) fn of(&self, part: &File) -> io::Result<Option<PartVersion>> {
        let mut buffer = [0; MAX_NOTE];
        match fgetxattr(part, ATTRIBUTE, &mut buffer[..]) {
            Ok(len) => Ok(PartVersion::parse(&buffer[..len])),
            Err(Errno::OPNOTSUPP | Errno::NODATA | Errno::RANGE) => {
                Ok(lock(&self.0).get(&FileId::of(&fstat(part)?)).cloned())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Records the version of a part.
    pub(crate) fn record(&self, part: &File, version: PartVersion) {
        let copied = if version.is_copied { COPIED } else { "" };
        let text = format!("{} {}{copied}", version.total, version.replaces);
        let is_noted = fsetxattr(part, ATTRIBUTE, text.as_bytes(), XattrFlags::empty()).is_ok();
        if let (false, Ok(stat)) = (is_noted, fstat(part)) {
            let mut versions = lock(&self.0);
            if versions.len() >= MAX_PARTS {
                // Those parts have to be sent again.
                versions.clear();
            }
            versions.insert(FileId::of(&stat), version);
        }
    }

    /// Removes the note: a complete file does not have it.
    pub(crate) fn remove(&self, part: &File) {
        let _ = fremovexattr(part, ATTRIBUTE);
        self.forget(part);
    }

    /// Removes the note in memory. A new part may have the inode number of one that was removed.
    pub(crate) fn forget(&self, part: &File) {
        let is_empty = lock(&self.0).is_empty();
        if !is_empty && let Ok(stat) = fstat(part) {
            lock(&self.0).remove(&FileId::of(&stat));
        }
    }
}

const ATTRIBUTE: &CStr = c"user.underpass.upload";

/// The end of the note of a part that begins with a copy.
const COPIED: &str = " copied";

/// The maximum length of a note: a number and an entity tag of this server.
const MAX_NOTE: usize = 256;
