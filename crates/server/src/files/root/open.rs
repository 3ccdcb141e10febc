//! Opens folders by their paths, and finds the paths of open ones.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, fstat, openat2, readlinkat, statat};
use rustix::io::Errno;
use underpass_engine::FileId;

/// Returns the absolute path of an open file or folder.
///
/// # Errors
///
/// `ENOENT` if the name by which it was opened is gone; the errors of readlink(2), if there is no
/// procfs.
pub(crate) fn path_of(file: impl AsFd) -> Result<Vec<u8>, Errno> {
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = readlinkat(CWD, link, Vec::new())?.into_bytes();
    // The kernel appends this to a name that is gone; but a file may really have such a name.
    if path.ends_with(b" (deleted)") {
        let named = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileId::of(&named) != FileId::of(&fstat(file)?) {
            return Err(Errno::NOENT);
        }
    }
    Ok(path)
}

/// Returns that path without its leading slash; without procfs, the given path.
pub(super) fn place(folder: &OwnedFd, given: &Path) -> Vec<u8> {
    let path = path_of(folder).unwrap_or_else(|_| given.as_os_str().as_bytes().to_vec());
    path.strip_prefix(b"/").map_or_else(|| path.clone(), <[u8]>::to_vec)
}

/// Opens a folder below another one, with `O_PATH`.
pub(super) fn open_folder_by(
    from: &OwnedFd,
    path: &[u8],
    links: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | links;
    open_at(from, path, flags, resolve)
}

/// Opens a path below a folder.
///
/// The kernel reports `EAGAIN` if a path or a link contains `..` while anything is renamed on the
/// machine, and also if `RESOLVE_CACHED` would have to wait for the disk.
pub(super) fn open_at(
    from: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    let is_tried_again = !resolve.contains(ResolveFlags::CACHED);
    let mut attempts = 0;
    loop {
        match openat2(from, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if is_tried_again && attempts < ATTEMPTS => attempts += 1,
            outcome => return outcome,
        }
    }
}

/// Splits a path into that of its folder and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Returns the last name of a path.
pub(crate) fn last_name(path: &[u8]) -> &[u8] {
    split(path).1
}

/// Returns the path of an entry in a folder; either may be empty.
pub(crate) fn join(folder: &[u8], path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if folder.is_empty() || path.is_empty() { b"" } else { b"/" };
    [folder, slash, path].concat()
}

pub(super) fn open_path(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::empty())
}

/// The number of further attempts if something is renamed during a call.
pub(super) const ATTEMPTS: u32 = 16;

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn path_of_a_replaced_file_is_an_error() {
        let folder = std::env::temp_dir().join(format!("path-of-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let (key, new) = (folder.join("key.pem"), folder.join("new"));
        fs::write(&key, "old").unwrap();
        let old = File::open(&key).unwrap();
        fs::write(&new, "new").unwrap();
        fs::rename(&new, &key).unwrap();
        let lost = path_of(&old);
        // Another file has the name that the kernel reports.
        let named = folder.join("key.pem (deleted)");
        fs::write(&named, "").unwrap();
        let (still_lost, opened) = (path_of(&old), path_of(File::open(&named).unwrap()));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((lost, still_lost), (Err(Errno::NOENT), Err(Errno::NOENT)));
        assert!(opened.unwrap().ends_with(b"/key.pem (deleted)"));
    }
}
