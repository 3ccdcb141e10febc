//! Folders that are created for files, and removed again if no file arrives.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folders that this process has created, each after its parent.
#[derive(Debug, Default)]
pub struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Creates a folder, and those above it that are missing. Does nothing if its name is taken,
    /// even by a file: the caller opens it next.
    ///
    /// # Errors
    ///
    /// As mkdir(2): also `EEXIST` for a symbolic link that leads nowhere.
    ///
    /// # On failure
    ///
    /// The folders that were created are left until [`remove_empty`](Self::remove_empty).
    pub fn create(&mut self, folder: &Path) -> io::Result<()> {
        // mkdir(2) does not take `.` at the end of the path of a new folder.
        let folder: PathBuf = folder.components().collect();
        let is_missing = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
        let missing: Vec<_> = folder.ancestors().take_while(is_missing).collect();
        for new in missing.into_iter().rev() {
            match fs::create_dir(new) {
                Ok(()) => self.0.push(new.to_owned()),
                // Another process has created it, or it leads back to an existing one by `..`.
                Err(_) if new.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes those that are empty.
    pub fn remove_empty(&mut self) {
        for folder in self.0.drain(..).rev() {
            // Something has arrived in a folder that cannot be removed.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_folders_that_were_created_are_removed() {
        let here = tempfile::tempdir().unwrap();
        let at = |path: &str| here.path().join(path);
        fs::create_dir(at("old")).unwrap();
        let mut folders = NewFolders::default();
        for path in ["old/a/b", "old/a/c/.", "new/../new/d", "old"] {
            folders.create(&at(path)).unwrap();
            assert!(at(path).is_dir(), "{path}");
        }
        fs::write(at("old/a/c/file"), "").unwrap();
        let error = folders.create(&at("old/a/c/file/e")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
        folders.remove_empty();
        assert!(at("old/a/c/file").is_file() && !at("old/a/b").exists() && !at("new").exists());
        fs::remove_file(at("old/a/c/file")).unwrap();
        folders.remove_empty();
        assert!(at("old/a/c").is_dir(), "others may use it by now");
    }
}
