//! Trees of many files, created the same every time, and digests of a whole file or folder.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use underpass_engine::data_ranges;

use super::files::{Noise, PAGE, drop_cached, hex};
use crate::error::{Result, WithPath};

/// The description of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileTree {
    /// Small files, of 1 to 16 KiB.
    pub(crate) files: u32,
    pub(crate) large: u32,
    /// Bytes of each of those.
    pub(crate) large_bytes: u64,
}

/// A file, or a folder with everything in it, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    root: PathBuf,
    /// The paths of its entries, in order.
    paths: Vec<PathBuf>,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes that they take on the disk.
    pub(crate) allocated: u64,
}

impl FileTree {
    pub(crate) const fn count(&self) -> u64 {
        self.files as u64 + self.large as u64
    }

    /// Returns the bytes of all files together.
    pub(crate) fn bytes(&self) -> u64 {
        let small: u64 = (0..self.files).map(small_size).sum();
        small.saturating_add(self.large_bytes.saturating_mul(self.large.into()))
    }

    /// Returns about how many bytes the files occupy, with all that belongs to them.
    pub(crate) fn room(&self) -> u64 {
        self.bytes().saturating_add(self.count().saturating_mul(PAGE as u64))
    }

    /// Returns the same for the files that [`truncate_large`](Self::truncate_large) leaves.
    pub(crate) fn room_without_large(&self) -> u64 {
        Self { large: 0, ..*self }.room()
    }

    /// Frees the space of the large files of a folder, but none of its inodes.
    pub(crate) fn truncate_large(&self, root: &Path) -> Result<()> {
        (0..self.large).try_for_each(|index| {
            let path = root.join(large_name(index));
            let file = File::options().write(true).open(&path);
            Ok(file.and_then(|file| file.set_len(0)).with_path("emptying", &path)?)
        })
    }

    pub(crate) fn create(&self, root: &Path, noise: &mut Noise) -> Result<()> {
        for index in 0..self.files {
            let folder = root.join(format!("folder{:04}", index / FILES_IN_FOLDER));
            if index % FILES_IN_FOLDER == 0 {
                fs::create_dir_all(&folder).with_path("creating", &folder)?;
            }
            let path = folder.join(format!("file{index:06}"));
            File::create(&path)
                .and_then(|mut file| file.write_all(&noise.piece(index, small_size(index))))
                .with_path("writing", &path)?;
        }
        for index in 0..self.large {
            noise.write(&root.join(large_name(index)), self.large_bytes)?;
        }
        Ok(())
    }
}

impl Content {
    pub(crate) fn survey(root: &Path) -> Result<Self> {
        let mut found =
            Self { root: root.to_owned(), paths: Vec::new(), files: 0, bytes: 0, allocated: 0 };
        let mut next = vec![root.to_owned()];
        while let Some(path) = next.pop() {
            let facts = fs::symlink_metadata(&path).with_path("looking at", &path)?;
            if facts.is_dir() {
                for entry in fs::read_dir(&path).with_path("reading", &path)? {
                    next.push(entry.with_path("reading", &path)?.path());
                }
            } else if facts.is_file() {
                found.files += 1;
                found.bytes += facts.len();
                found.allocated += facts.blocks() * 512;
            }
            found.paths.push(path);
        }
        found.paths.sort_unstable();
        Ok(found)
    }

    /// Returns a digest of everything: names, kinds, permissions, targets of links, and bytes.
    /// Times and owners are left out because some programs do not keep them.
    pub(crate) fn sha256(&self) -> Result<String> {
        self.digest(true)
    }

    /// Returns a digest of the names and bytes of all files, for what does not carry permissions.
    pub(crate) fn sha256_of_files(&self) -> Result<String> {
        self.digest(false)
    }

    fn digest(&self, has_facts: bool) -> Result<String> {
        let mut hasher = Sha256::new();
        for path in &self.paths {
            let facts = fs::symlink_metadata(path).with_path("looking at", path)?;
            if !has_facts && !facts.is_file() {
                continue;
            }
            let name = path.strip_prefix(&self.root).unwrap_or(path);
            hasher.update(name.as_os_str().as_bytes());
            // No name contains this byte, so no name and metadata can equal those of another entry.
            hasher.update([0]);
            if has_facts {
                hasher.update(facts.mode().to_le_bytes());
            }
            if facts.is_symlink() {
                let leads = fs::read_link(path).with_path("reading", path)?;
                hasher.update(leads.as_os_str().as_bytes());
                hasher.update([0]);
            } else if facts.is_file() {
                bytes_of(path, &facts, &mut hasher).with_path("reading", path)?;
            }
        }
        Ok(hex(&hasher.finalize()))
    }

    /// Drops all files, which have been written to disk, from the page cache.
    pub(crate) fn drop_cached(&self) -> Result<()> {
        let is_file = |path: &&PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
        self.paths.iter().filter(is_file).try_for_each(|path| drop_cached(path))
    }
}

/// Adds the nonzero bytes of a file with their offsets, so that holes and zeros are equal and
/// neither has to be hashed.
fn bytes_of(path: &Path, facts: &Metadata, hasher: &mut Sha256) -> io::Result<()> {
    let file = File::open(path)?;
    let mut buffer = vec![0; BUFFER];
    let mut at = 0;
    for extent in data_ranges(file.as_fd(), 0..facts.len()) {
        let (start, len) = extent?;
        // Whole blocks, so that every copy is split alike.
        at = at.max(start - start % PAGE as u64);
        let end = (start + len).next_multiple_of(PAGE as u64).min(facts.len());
        while at < end {
            let part = &mut buffer[..(end - at).min(BUFFER as u64) as usize];
            file.read_exact_at(part, at)?;
            for (index, block) in part.chunks(PAGE).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    hasher.update((at + (index * PAGE) as u64).to_le_bytes());
                    hasher.update(block);
                }
            }
            at += part.len() as u64;
        }
    }
    hasher.update(facts.len().to_le_bytes());
    Ok(())
}

fn large_name(index: u32) -> String {
    format!("large{index}")
}

/// Returns the size of a small file: spread evenly, and the same in each run.
fn small_size(index: u32) -> u64 {
    // Knuth's multiplicative hash.
    let spread = u64::from(index.wrapping_mul(2_654_435_761));
    MIN_SMALL + spread * (MAX_SMALL - MIN_SMALL + 1) / (1 << 32)
}

const FILES_IN_FOLDER: u32 = 100;

const MIN_SMALL: u64 = 1 << 10;
const MAX_SMALL: u64 = 16 << 10;

const BUFFER: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_have_all_sizes_between_their_limits() {
        let sizes: Vec<_> = (0..20_000).map(small_size).collect();
        assert!(sizes.iter().all(|size| (MIN_SMALL..=MAX_SMALL).contains(size)));
        let mean = sizes.iter().sum::<u64>() / 20_000;
        assert!(mean.abs_diff(u64::midpoint(MIN_SMALL, MAX_SMALL)) < 64, "{mean}");
        let few = sizes.iter().filter(|size| **size < 2 << 10).count();
        assert!((1000..2000).contains(&few), "{few} of 1 to 2 KiB");
    }
}
