//! Symbolic links given as the target of a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, lstat, stat};
use rustix::io::Errno;

use super::hidden::is_of_stranger;
use super::name::folder_of;
use super::open::folder_at;
use crate::error::hint::{PathError, WithPath};
use crate::integrity::{FileId, is_folder};

/// Returns the path of the file that a link finally leads to, so that this file is replaced and not
/// the link. It is the file that open(2) would open: the kernel follows the link first, and may
/// refuse to (`fs.protected_symlinks`). A link that another user has put into a shared folder is
/// always refused. Links among the parent folders are left to the kernel, because a path in another
/// mount namespace (`/proc/PID/root`) leads elsewhere if its links are read here.
///
/// # Errors
///
/// As stat(2) and readlink(2), `EACCES` for links of other users; `ESTALE` if the link leads to a
/// file other than the one its text names, as those of `/proc/PID/fd` may do.
pub fn follow(link: &Path) -> io::Result<PathBuf> {
    let wanted = stat(link)?;
    let mut path = link.to_owned();
    for _ in 0..=MAX_LINKS {
        let found = match lstat(&path) {
            // Only the kernel can resolve a path of another mount namespace.
            Err(_) if is_folder(&wanted) => return fs::canonicalize(link),
            found => found?,
        };
        if FileType::from_raw_mode(found.st_mode) != FileType::Symlink {
            if is_folder(&wanted) {
                return fs::canonicalize(link);
            }
            let is_it = FileId::of(&found) == FileId::of(&wanted);
            return if is_it { Ok(path) } else { Err(Errno::STALE.into()) };
        }
        if is_of_stranger(&found, folder_at(CWD, folder_of(&path))?) {
            return Err(Errno::ACCESS.into());
        }
        let leads = fs::read_link(&path)?;
        path = path.parent().unwrap_or(Path::new("")).join(leads);
    }
    Err(Errno::LOOP.into())
}

/// Checks that a path is not a link that another user has put into a shared folder. A dangling link
/// passes: it is not followed.
///
/// # Errors
///
/// As [`follow`].
pub fn check_link(path: &Path) -> Result<(), PathError> {
    if !(path.is_symlink() && path.exists()) {
        return Ok(());
    }
    follow(path).map(drop).with_path("following the link", path)
}

/// Checks a folder, and each folder above it, as [`check_link`] does.
///
/// # Errors
///
/// As [`follow`].
pub fn check_links(folder: &Path) -> Result<(), PathError> {
    folder.ancestors().try_for_each(check_link)
}

/// The number of links that the kernel follows for one path.
const MAX_LINKS: usize = 40;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use super::*;

    #[test]
    fn a_link_leads_to_what_the_kernel_opens() {
        let folder = std::env::temp_dir().join(format!("follow-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).unwrap();
        let at = |name: &str| folder.join(name);
        fs::write(at("in/file"), "").unwrap();
        for (to, link) in [("in/middle", "first"), ("../last", "in/middle"), ("self", "self")] {
            symlink(to, at(link)).unwrap();
        }
        symlink(at("in/file"), at("last")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        assert_eq!(follow(&at("first")).unwrap(), at("in/file"));
        let errno = |link: &Path| Errno::from_io_error(&follow(link).unwrap_err());
        assert_eq!(errno(&at("self")), Some(Errno::LOOP));
        assert_eq!(errno(&at("dangling")), Some(Errno::NOENT));
        // The links now belong to another user, in a folder like /tmp.
        symlink("in", at("folder")).unwrap();
        assert_eq!(follow(&at("folder")).unwrap(), fs::canonicalize(at("in")).unwrap());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        check_links(&at("folder/new/newer")).unwrap();
        if lchown(at("first"), Some(1234), None).is_ok() {
            assert_eq!(errno(&at("first")), Some(Errno::ACCESS));
            lchown(at("folder"), Some(1234), None).unwrap();
            assert_eq!(errno(&at("folder")), Some(Errno::ACCESS));
            let message = check_links(&at("folder/new/newer")).unwrap_err().to_string();
            assert!(message.contains("folder: Permission denied"), "{message}");
        }
        // A descriptor of a removed file, whose name in /proc is now that of another file.
        let gone = File::create(at("gone")).unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::write(at("gone (deleted)"), "").unwrap();
        let link = PathBuf::from(format!("/proc/self/fd/{}", gone.as_raw_fd()));
        assert_eq!(
            fs::canonicalize(&link).unwrap(),
            fs::canonicalize(at("gone (deleted)")).unwrap()
        );
        assert_eq!(errno(&link), Some(Errno::STALE));
        fs::remove_dir_all(&folder).unwrap();
    }
}
