//! Properties that clients store with files and folders, in the extended attribute
//! `user.underpass.properties`: an XML element with all of them.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr, fstat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use underpass_dav::xml::Element;
use underpass_engine::Version;

use crate::digest::settle::MAX_CLOCK_TICK;
use crate::digest::stored;

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

/// Stores all properties of an open file or folder, which changes its version.
///
/// # Errors
///
/// `ENOSPC` if they are too long, or too many to be read again; otherwise the errors of
/// fsetxattr(2) and fstat(2).
pub(super) fn store(file: impl AsFd, properties: Vec<Element>) -> Result<(), Errno> {
    let file = file.as_fd();
    let mut bytes = Vec::new();
    if !properties.is_empty() {
        Element::stored(properties).write(&mut bytes);
        if bytes.len() > MAX_BYTES || Element::parse(&bytes).is_err() {
            return Err(Errno::NOSPC);
        }
    }
    let (changed, now) = (fstat(file)?, clock_gettime(ClockId::RealtimeCoarse));
    let changed = Version::from_stat(&changed).changed();
    if (now.tv_sec, now.tv_nsec) <= (changed.tv_sec, changed.tv_nsec) {
        // Another change within this tick of the kernel's clock would leave the version as it is.
        thread::sleep(MAX_CLOCK_TICK);
    }
    write(file, &bytes)?;
    // A digest that was stored right before would preserve the old entity tag.
    stored::forget(file)
}

/// Sets the attribute, or removes it if nothing is to be stored.
fn write(file: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Errno> {
    if !bytes.is_empty() {
        return fsetxattr(file, NAME, bytes, XattrFlags::empty());
    }
    match fremovexattr(file, NAME) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        removed => removed,
    }
}

/// Copies the properties of a file to another one, as far as possible.
pub(crate) fn copy(from: impl AsFd, to: impl AsFd) {
    let _ = carry_over(from, to);
}

/// Copies the properties of a file to the new file that is about to replace it.
///
/// # Errors
///
/// The errors of fgetxattr(2) and fsetxattr(2): the properties would be lost.
pub(crate) fn carry_over(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    match read(from)? {
        Some(bytes) => fsetxattr(to, NAME, &bytes, XattrFlags::empty()),
        None => Ok(()),
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

/// The maximum length of the attribute: with other attributes, it must fit into a block of ext4.
const MAX_BYTES: usize = 3 << 10;
