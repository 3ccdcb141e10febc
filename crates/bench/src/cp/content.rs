//! What is in a file or folder, compared as a whole: names, kinds, permissions, what links lead to,
//! and bytes. Times and owners are left out, for some programs do not keep them.

use std::fs::{self, File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use sha2::{Digest, Sha256};
use underpass_engine::data_ranges;

use crate::data::hex;
use crate::error::{Result, WithPath};

/// A file, or a folder with everything in it, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    root: PathBuf,
    /// What is in it, in order.
    names: Vec<PathBuf>,
    /// How many of them are files.
    pub(crate) files: u64,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// Bytes that they take on the disk.
    pub(crate) allocated: u64,
}

impl Content {
    /// Looks what is there.
    pub(crate) fn survey(root: &Path) -> Result<Self> {
        let mut found =
            Self { root: root.to_owned(), names: Vec::new(), files: 0, bytes: 0, allocated: 0 };
        let mut next = vec![PathBuf::new()];
        while let Some(name) = next.pop() {
            let path = found.path(&name);
            let facts = fs::symlink_metadata(&path).with_path("looking at", &path)?;
            if facts.is_dir() {
                for entry in fs::read_dir(&path).with_path("reading", &path)? {
                    next.push(name.join(entry.with_path("reading", &path)?.file_name()));
                }
            } else if facts.is_file() {
                found.files += 1;
                found.bytes += facts.len();
                found.allocated += facts.blocks() * 512;
            }
            found.names.push(name);
        }
        found.names.sort_unstable();
        Ok(found)
    }

    /// A digest of everything.
    pub(crate) fn sha256(&self) -> Result<String> {
        let mut hasher = Sha256::new();
        for name in &self.names {
            let path = self.path(name);
            let facts = fs::symlink_metadata(&path).with_path("looking at", &path)?;
            hasher.update(name.as_os_str().as_bytes());
            // No name has such a byte in it, so that none can pass for another one with its facts.
            hasher.update([0]);
            hasher.update(facts.mode().to_le_bytes());
            if facts.is_symlink() {
                let leads = fs::read_link(&path).with_path("reading", &path)?;
                hasher.update(leads.as_os_str().as_bytes());
                hasher.update([0]);
            } else if facts.is_file() {
                bytes_of(&path, &facts, &mut hasher).with_path("reading", &path)?;
            }
        }
        Ok(hex(&hasher.finalize()))
    }

    /// Throws all files, which have been written to disk, out of the page cache.
    pub(crate) fn chill(&self) -> Result<()> {
        self.names.iter().try_for_each(|name| {
            let path = self.path(name);
            if !fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_file()) {
                return Ok(());
            }
            let chilled = File::open(&path).map(|file| fadvise(file, 0, None, Advice::DontNeed));
            chilled.and_then(|done| Ok(done?)).with_path("throwing out of the page cache", &path)
        })
    }

    fn path(&self, name: &Path) -> PathBuf {
        // With a slash at its end a file would be none.
        if name == Path::new("") { self.root.clone() } else { self.root.join(name) }
    }
}

/// Adds the bytes of a file: what is not zero, with its place, so that a hole and zeros are the same
/// and neither has to be read.
fn bytes_of(path: &Path, facts: &Metadata, hasher: &mut Sha256) -> std::io::Result<()> {
    let file = File::open(path)?;
    let mut buffer = vec![0; BUFFER.min(facts.len() as usize)];
    for extent in data_ranges(file.as_fd(), facts.len()) {
        let (mut at, len) = extent?;
        let end = at + len;
        while at < end {
            // To the next multiple, so that blocks are cut alike in every copy.
            let wanted = (BUFFER as u64 - at % BLOCK as u64).min(end - at) as usize;
            let wanted = wanted.min(buffer.len());
            file.read_exact_at(&mut buffer[..wanted], at)?;
            for block in pieces(&buffer[..wanted], at) {
                if block.1.iter().any(|byte| *byte != 0) {
                    hasher.update(block.0.to_le_bytes());
                    hasher.update(block.1);
                }
            }
            at += wanted as u64;
        }
    }
    hasher.update(facts.len().to_le_bytes());
    Ok(())
}

/// Blocks of a file with their places.
fn pieces(bytes: &[u8], at: u64) -> impl Iterator<Item = (u64, &[u8])> {
    let first = ((BLOCK as u64 - at % BLOCK as u64) as usize % BLOCK).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    let head = (!head.is_empty()).then_some((at, head));
    let rest = rest.chunks(BLOCK).enumerate();
    head.into_iter()
        .chain(rest.map(move |(index, block)| (at + (first + index * BLOCK) as u64, block)))
}

const BLOCK: usize = 4096;
const BUFFER: usize = 1 << 20;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::data::Folder;

    fn digest(path: &Path) -> String {
        Content::survey(path).unwrap().sha256().unwrap()
    }

    #[test]
    fn any_change_is_found_and_holes_are_zeros() {
        let folder = Folder::create(&std::env::temp_dir()).unwrap();
        let make = |name: &str| {
            let root = folder.file(name);
            fs::create_dir_all(root.join("deep")).unwrap();
            fs::write(root.join("deep/file"), vec![7; 3 << 20]).unwrap();
            fs::set_permissions(root.join("deep/file"), fs::Permissions::from_mode(0o600)).unwrap();
            symlink("file", root.join("deep/link")).unwrap();
            let sparse = File::create(root.join("sparse")).unwrap();
            sparse.write_all_at(b"end", 9 << 20).unwrap();
            root
        };
        let (one, other) = (make("one"), make("other"));
        let found = Content::survey(&one).unwrap();
        assert_eq!((found.files, found.bytes), (2, (12 << 20) + 3));
        let sha256 = found.sha256().unwrap();
        found.chill().unwrap();
        let changes: [fn(&Path); 6] = [
            |root| fs::rename(root.join("deep/file"), root.join("deep/gile")).unwrap(),
            |root| {
                fs::set_permissions(root.join("deep"), fs::Permissions::from_mode(0o711)).unwrap()
            },
            |root| fs::remove_file(root.join("deep/link")).unwrap(),
            |root| fs::create_dir(root.join("more")).unwrap(),
            |root| {
                let file = File::options().write(true).open(root.join("deep/file")).unwrap();
                file.write_all_at(b"8", (2 << 20) + 77).unwrap();
            },
            |root| {
                let file = File::options().write(true).open(root.join("sparse")).unwrap();
                file.set_len((9 << 20) + 4).unwrap();
            },
        ];
        for change in changes {
            fs::remove_dir_all(&other).unwrap();
            make("other");
            assert_eq!(digest(&other), sha256);
            change(&other);
            assert_ne!(digest(&other), sha256);
        }
        // A copy without its holes is the same.
        fs::remove_dir_all(&other).unwrap();
        make("other");
        let bytes = fs::read(other.join("sparse")).unwrap();
        fs::write(other.join("sparse"), bytes).unwrap();
        assert_eq!(digest(&other), sha256);
    }
}
