//! Records which version of a file a part belongs to. The name of a part without an address tells
//! only its owner and the name of the file, and bytes of another version must not be appended to it.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

use crate::uploads::parts::target::UploadTarget;

/// The version of a file that is uploaded, as far as the server knows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PartVersion {
    /// The length of the complete file.
    pub(crate) total: u64,
    /// The entity tag of the file that had the name when the upload began; empty if none had it.
    pub(crate) replaces: String,
}

impl PartVersion {
    /// Returns the version of an upload of `total` bytes that begins now.
    pub(crate) fn new(target: &UploadTarget, total: u64) -> Self {
        let present = target.present.as_ref();
        Self { total, replaces: present.map_or_else(String::new, |file| file.etag.clone()) }
    }

    /// Reads the version of a part; `None` on a file system without attributes, and for a part that
    /// was about to get its final name.
    pub(crate) fn of(part: &File) -> io::Result<Option<Self>> {
        let mut buffer = [0; MAX_NOTE];
        match fgetxattr(part, ATTRIBUTE, &mut buffer[..]) {
            Ok(len) => Ok(Self::parse(&buffer[..len])),
            Err(Errno::OPNOTSUPP | Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Notes the version with its part, if the file system has attributes.
    pub(crate) fn record(&self, part: &File) {
        let text = format!("{} {}", self.total, self.replaces);
        let _ = fsetxattr(part, ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
    }

    fn parse(note: &[u8]) -> Option<Self> {
        let (total, replaces) = str::from_utf8(note).ok()?.split_once(' ')?;
        Some(Self { total: total.parse().ok()?, replaces: replaces.to_owned() })
    }
}

/// Removes the note: a complete file does not have it.
pub(crate) fn remove_note(part: &File) {
    let _ = fremovexattr(part, ATTRIBUTE);
}

const ATTRIBUTE: &CStr = c"user.underpass.upload";

/// The maximum length of a note: a number and an entity tag of this server.
const MAX_NOTE: usize = 256;
