//! Finds sources that overlap: a file in both is found more often than its link count.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, fstat, lstat, statx};
use rustix::io::Errno;
use underpass_engine::atomic_file::folder_at;
use underpass_engine::{FileId, is_folder};

/// Returns whether a source may lie in another one, or be named twice by whatever paths.
pub(super) fn overlap(sources: &[PathBuf], recursive: bool) -> bool {
    if sources.len() < 2 {
        return false;
    }
    let mut places = Places::default();
    // A source that cannot be examined may be anywhere.
    sources.iter().any(|from| places.add(from, recursive) != Ok(true)) || places.are_nested()
}

/// The locations of the sources.
#[derive(Default)]
struct Places {
    folders: HashSet<FileId>,
    /// Other sources by folder and name: two names of one file are two sources.
    files: HashSet<(FileId, OsString)>,
    /// All folders above sources.
    above: HashSet<FileId>,
    /// The mount of each device: the folders above a bind mount do not show what it shares. A mount
    /// inside a source is not detected.
    mounts: HashMap<u64, u64>,
}

impl Places {
    /// Adds a source, and returns whether it is new.
    fn add(&mut self, from: &Path, recursive: bool) -> Result<bool, Errno> {
        // Missing sources are not copied, and neither are folders without `recursive`.
        let Ok(found) = lstat(from) else { return Ok(true) };
        let is_folder = is_folder(&found);
        if is_folder && !recursive {
            return Ok(true);
        }
        let folder = match from.parent() {
            _ if is_folder => from.join(".."),
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut at = folder_at(CWD, &folder)?;
        let mut here = FileId::of(&fstat(&at)?);
        let is_new = if is_folder {
            self.folders.insert(FileId::of(&found))
        } else {
            self.files.insert((here, from.file_name().unwrap_or_default().to_owned()))
        };
        let mount = statx(CWD, from, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::MNT_ID)?.stx_mnt_id;
        if *self.mounts.entry(found.st_dev).or_insert(mount) != mount {
            return Ok(false);
        }
        // Up to a folder above which all are known, as the root is above itself.
        while self.above.insert(here) {
            at = folder_at(&at, "..")?;
            here = FileId::of(&fstat(&at)?);
        }
        Ok(is_new)
    }

    fn are_nested(&self) -> bool {
        !self.folders.is_disjoint(&self.above)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn sources_overlap_if_a_file_can_be_found_by_two_of_them() {
        let here = tempfile::tempdir().unwrap();
        for name in ["s", "s/b", "d"] {
            fs::create_dir(here.path().join(name)).unwrap();
        }
        fs::write(here.path().join("s/a"), "").unwrap();
        fs::hard_link(here.path().join("s/a"), here.path().join("s/n")).unwrap();
        symlink("s", here.path().join("l")).unwrap();
        for (words, expected) in [
            ("s", false),
            ("s d", false),
            ("s/a s/b d", false),
            ("s/a s/n", false),
            // The link itself is copied.
            ("s l", false),
            ("s gone", false),
            ("s/a s", true),
            ("s s/b", true),
            ("l/a s", true),
            ("d s/a l/a", true),
            ("s s/.", true),
            ("s l/", true),
            ("s/b/.. d s/b", true),
        ] {
            let sources: Vec<_> = words.split(' ').map(|name| here.path().join(name)).collect();
            assert_eq!(overlap(&sources, true), expected, "{words}");
        }
        let sources = ["s", "s/a"].map(|name| here.path().join(name));
        assert!(!overlap(&sources, false));
    }
}
