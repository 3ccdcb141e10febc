//! Properties that clients store with files and folders, in the extended attribute
//! `user.underpass.properties`: an XML element with all of them.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;
use underpass_dav::xml::Element;

/// Returns the properties of an open file or folder; none if they cannot be read.
pub(super) fn load(file: impl AsFd) -> Vec<Element> {
    load_all(file).unwrap_or_default()
}

/// Returns the properties of an open file or folder, to be stored again with others.
///
/// # Errors
///
/// The errors of fgetxattr(2); `EBADMSG` if another program has written them.
pub(super) fn load_all(file: impl AsFd) -> Result<Vec<Element>, Errno> {
    let Some(bytes) = read(file)? else { return Ok(Vec::new()) };
    let stored = Element::parse(&bytes).map_err(|_| Errno::BADMSG)?;
    Ok(stored.into_elements().collect())
}

/// Stores all properties of an open file or folder.
///
/// # Errors
///
/// `ENOSPC` if they are too long, or too many to be read again; otherwise the errors of
/// fsetxattr(2).
pub(super) fn store(file: impl AsFd, properties: Vec<Element>) -> Result<(), Errno> {
    if properties.is_empty() {
        return match fremovexattr(file, NAME) {
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            removed => removed,
        };
    }
    let mut bytes = Vec::new();
    Element::stored(properties).write(&mut bytes);
    if bytes.len() > MAX_BYTES || Element::parse(&bytes).is_err() {
        return Err(Errno::NOSPC);
    }
    fsetxattr(file, NAME, &bytes, XattrFlags::empty())
}

/// Gives a file the properties of another one, as far as its file system can keep them.
pub(crate) fn copy(from: impl AsFd, to: impl AsFd) {
    if let Ok(Some(bytes)) = read(from) {
        let _ = fsetxattr(to, NAME, &bytes, XattrFlags::empty());
    }
}

/// Returns the attribute; `None` if there is none, or the file system has none.
fn read(file: impl AsFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut bytes = [0; MAX_BYTES];
    match fgetxattr(file, NAME, &mut bytes[..]) {
        Ok(len) => Ok(bytes.get(..len).map(<[u8]>::to_vec)),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The name of the attribute.
pub(crate) const NAME: &CStr = c"user.underpass.properties";

/// The maximum length of the attribute: with others, it has to fit into a block of ext4.
const MAX_BYTES: usize = 3 << 10;
