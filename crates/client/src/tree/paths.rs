//! Checks which paths of an archive or a listing may be created, and where links may point. Pure.
//!
//! The kernel confines everything to the target folder in any case; these checks provide the reason
//! why an entry is left out.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use url::Url;

/// Returns the path of a member relative to the target folder, without empty parts and `.`.
///
/// # Errors
///
/// [`EntryRefusal`] if it could lead elsewhere, or is not a path.
pub fn relative(path: &[u8]) -> Result<Vec<u8>, EntryRefusal> {
    if path.first() == Some(&b'/') {
        return Err(EntryRefusal::Absolute);
    }
    if path.contains(&0) {
        return Err(EntryRefusal::Nul);
    }
    let mut out = Vec::with_capacity(path.len());
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(EntryRefusal::Parent),
            _ => {}
        }
        if RESERVED.contains(&part) {
            return Err(EntryRefusal::Reserved);
        }
        if !out.is_empty() {
            out.push(b'/');
        }
        out.extend_from_slice(part);
    }
    if out.len() > MAX_PATH { Err(EntryRefusal::TooLong) } else { Ok(out) }
}

/// Checks whether a symbolic link at this relative path may have that target.
///
/// `..` is only allowed at the front: after the name of another link it would mean the parent of
/// that link's target, which may be outside.
///
/// # Errors
///
/// [`EntryRefusal`] if it points out of the folder.
pub fn check_target(path: &[u8], target: &[u8]) -> Result<(), EntryRefusal> {
    if target.is_empty() || target.contains(&0) {
        return Err(EntryRefusal::Nul);
    }
    if target.first() == Some(&b'/') {
        return Err(EntryRefusal::Outside);
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    let mut is_down = false;
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if is_down || depth == 0 => return Err(EntryRefusal::Outside),
            b".." => depth -= 1,
            _ => is_down = true,
        }
    }
    Ok(())
}

/// Returns the name of the folder at a URL; `None` for a server's root.
///
/// # Errors
///
/// [`EntryRefusal`] if no folder can have this name.
pub fn name_of(url: &Url) -> Result<Option<Vec<u8>>, EntryRefusal> {
    let Some(last) = url.path().split('/').rfind(|part| !part.is_empty()) else { return Ok(None) };
    let name: Vec<u8> = percent_encoding::percent_decode_str(last).collect();
    if name.contains(&b'/') {
        return Err(EntryRefusal::Slash);
    }
    match relative(&name)? {
        name if name.is_empty() => Err(EntryRefusal::Nul),
        name => Ok(Some(name)),
    }
}

/// Returns bytes as a path.
pub(super) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// Returns the path of a name in a folder.
pub(super) fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

/// The reason why an entry is not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryRefusal {
    /// Its path begins at the root of the file system.
    #[error("its path is absolute")]
    Absolute,
    /// It is neither a file nor a folder nor a link.
    #[error("it is neither a file nor a folder nor a link")]
    Kind,
    /// Its name is empty or a single dot, which no file can have.
    #[error("its name is empty or '.', which no file can have")]
    NoName,
    /// Its name or its target is empty, or has a NUL.
    #[error("its name is empty or has a NUL")]
    Nul,
    /// It points out of the folder.
    #[error("it is a link that points out of the folder")]
    Outside,
    /// Its path has a `..`.
    #[error("its path has a '..', which could lead out of the folder")]
    Parent,
    /// Its name is reserved for our own unfinished files.
    #[error("its name is reserved for unfinished files")]
    Reserved,
    /// A single name contains a slash.
    #[error("its name has a slash")]
    Slash,
    /// It is not in the top folder of the archive.
    #[error("it is not in the requested folder")]
    Stray,
    /// Its path is too long.
    #[error("its path is too long")]
    TooLong,
}

/// The name of the journal in an existing folder.
pub(super) const JOURNAL: &str = ".underpass-get.journal";

/// The name of an unfinished file.
pub(super) const PARTIAL: &str = ".underpass-get.part";

/// The name of the folder for the files of an older archive.
pub(super) const SUPERSEDED: &CStr = c".underpass-get.old";

/// The name of the log of when files were written.
pub(super) const WRITE_LOG: &str = ".underpass-get.log";

/// The name of the probe for file systems that ignore case.
pub(super) const PROBE: &str = ".underpass-get.case";

const RESERVED: [&[u8]; 5] = [
    JOURNAL.as_bytes(),
    PARTIAL.as_bytes(),
    SUPERSEDED.to_bytes(),
    WRITE_LOG.as_bytes(),
    PROBE.as_bytes(),
];

/// The maximum length of a path in bytes: a thousand folders of 256 bytes each, which is our
/// server's limit, too.
const MAX_PATH: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_beneath_the_folder() {
        for (path, expected) in [
            ("a", Ok("a")),
            ("a/b/", Ok("a/b")),
            ("./a//b/.", Ok("a/b")),
            ("", Ok("")),
            ("./", Ok("")),
            ("a/...", Ok("a/...")),
            ("a\nb", Ok("a\nb")),
            ("/a", Err(EntryRefusal::Absolute)),
            ("//a", Err(EntryRefusal::Absolute)),
            ("..", Err(EntryRefusal::Parent)),
            ("a/../b", Err(EntryRefusal::Parent)),
            ("a/..", Err(EntryRefusal::Parent)),
            ("a\0b", Err(EntryRefusal::Nul)),
            ("a/.underpass-get.part", Err(EntryRefusal::Reserved)),
        ] {
            let expected = expected.map(|text| text.as_bytes().to_vec());
            assert_eq!(relative(path.as_bytes()), expected, "{path:?}");
        }
        assert_eq!(relative(&[b'a'; MAX_PATH + 1]), Err(EntryRefusal::TooLong));
    }

    #[test]
    fn links_point_into_the_folder() {
        for (path, target, is_good) in [
            ("l", "a", true),
            ("l", ".", true),
            ("l", "..", false),
            ("l", "../a", false),
            ("a/l", "..", true),
            ("a/l", "../b/c", true),
            ("a/l", "../..", false),
            ("a/b/l", "../../c", true),
            ("a/b/l", "../../../c", false),
            // `b` may itself be a link to a folder elsewhere in the tree.
            ("a/l", "b/..", false),
            ("a/l", "./.././b", true),
            ("l", "/etc/passwd", false),
            ("l", "a//b/./c", true),
            ("l", "", false),
        ] {
            assert_eq!(
                check_target(path.as_bytes(), target.as_bytes()).is_ok(),
                is_good,
                "{path} {target}"
            );
        }
    }
}
