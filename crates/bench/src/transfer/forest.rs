//! Folders of many files: made alike every time, and compared as a whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::data::{Noise, digest, hex};
use crate::error::{Result, WithPath};

/// What a folder is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forest {
    /// Small files, of 1 to 16 KiB.
    pub(crate) files: u32,
    /// Large files beside them.
    pub(crate) large: u32,
    /// Bytes of each of those.
    pub(crate) large_bytes: u64,
}

/// A folder as it was found: its files by path, with their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grown {
    root: PathBuf,
    files: Vec<(PathBuf, u64)>,
}

impl Forest {
    /// How many files there are.
    pub(crate) const fn count(&self) -> u64 {
        self.files as u64 + self.large as u64
    }

    /// Bytes of all files together.
    pub(crate) fn bytes(&self) -> u64 {
        let small: u64 = (0..self.files).map(small_size).sum();
        small.saturating_add(self.large_bytes.saturating_mul(self.large.into()))
    }

    /// What the files occupy, about, with all that belongs to them.
    pub(crate) fn room(&self) -> u64 {
        self.bytes().saturating_add(self.count().saturating_mul(PAGE))
    }

    /// The same without the large ones, as [`lighten`](Self::lighten) leaves them.
    pub(crate) fn light_room(&self) -> u64 {
        Self { large: 0, ..*self }.room()
    }

    /// Frees the space of the large files of a folder, but none of its inodes.
    pub(crate) fn lighten(&self, root: &Path) -> Result<()> {
        (0..self.large).try_for_each(|index| {
            let path = root.join(large_name(index));
            let file = File::options().write(true).open(&path);
            file.and_then(|file| file.set_len(0)).with_path("emptying", &path)
        })
    }

    /// Makes all files, without waiting for the disk.
    pub(crate) fn plant(&self, root: &Path, noise: &mut Noise) -> Result<()> {
        for index in 0..self.files {
            let folder = root.join(format!("folder{:04}", index / A_FOLDER));
            if index % A_FOLDER == 0 {
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

impl Grown {
    /// Looks what is in a folder.
    pub(crate) fn survey(root: &Path) -> Result<Self> {
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let path = root.join(&folder);
            for entry in fs::read_dir(&path).with_path("reading", &path)? {
                let entry = entry.with_path("reading", &path)?;
                let metadata = entry.metadata().with_path("looking at", entry.path())?;
                let name = folder.join(entry.file_name());
                match metadata.is_dir() {
                    true => folders.push(name),
                    false => files.push((name, metadata.len())),
                }
            }
        }
        files.sort_unstable();
        Ok(Self { root: root.to_owned(), files })
    }

    /// How many files were found.
    pub(crate) fn files(&self) -> u64 {
        self.files.len() as u64
    }

    /// Bytes of all files together.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, len)| len).sum()
    }

    /// A digest of all names, sizes and contents.
    pub(crate) fn sha256(&self) -> Result<String> {
        let mut hasher = Sha256::new();
        for (name, len) in &self.files {
            hasher.update(name.as_os_str().as_bytes());
            // No name has such a byte in it, so that none can pass for another one with a size.
            hasher.update([0]);
            hasher.update(len.to_le_bytes());
            hasher.update(digest(&self.root.join(name))?);
        }
        Ok(hex(&hasher.finalize()))
    }
}

fn large_name(index: u32) -> String {
    format!("large{index}")
}

/// The size of a small file: spread evenly, and the same in each run.
fn small_size(index: u32) -> u64 {
    // Knuth's multiplicative hash.
    let spread = u64::from(index.wrapping_mul(2_654_435_761));
    SMALLEST + spread * (LARGEST - SMALLEST + 1) / (1 << 32)
}

/// Files in a folder.
const A_FOLDER: u32 = 100;

const SMALLEST: u64 = 1 << 10;
const LARGEST: u64 = 16 << 10;
const PAGE: u64 = 4 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data::Folder;

    const FOREST: Forest = Forest { files: 250, large: 2, large_bytes: 100_000 };

    #[test]
    fn small_files_have_all_sizes_between_their_limits() {
        let sizes: Vec<_> = (0..20_000).map(small_size).collect();
        assert!(sizes.iter().all(|size| (SMALLEST..=LARGEST).contains(size)));
        let mean = sizes.iter().sum::<u64>() / 20_000;
        assert!(mean.abs_diff(u64::midpoint(SMALLEST, LARGEST)) < 64, "{mean}");
        let few = sizes.iter().filter(|size| **size < 2 << 10).count();
        assert!((1000..2000).contains(&few), "{few} of 1 to 2 KiB");
    }

    #[test]
    fn a_folder_is_found_as_it_was_made_and_differs_by_any_name_size_or_byte() {
        let folder = Folder::create(&std::env::temp_dir()).unwrap();
        let (one, other) = (folder.file("one"), folder.file("other"));
        fs::create_dir(&one).unwrap();
        FOREST.plant(&one, &mut Noise::new(FOREST.large_bytes).unwrap()).unwrap();
        let grown = Grown::survey(&one).unwrap();
        assert_eq!((grown.files(), grown.bytes()), (FOREST.count(), FOREST.bytes()));
        let sha256 = grown.sha256().unwrap();
        assert!(one.join("folder0002/file000249").is_file());

        let copy = || {
            if other.exists() {
                fs::remove_dir_all(&other).unwrap();
            }
            for (name, _) in &grown.files {
                fs::create_dir_all(other.join(name).parent().unwrap()).unwrap();
                fs::copy(one.join(name), other.join(name)).unwrap();
            }
        };
        copy();
        assert_eq!(Grown::survey(&other).unwrap().sha256().unwrap(), sha256);
        let changes: [fn(&Path); 4] = [
            |file| fs::rename(file, file.with_extension("new")).unwrap(),
            |file| fs::remove_file(file).unwrap(),
            |file| {
                let mut bytes = fs::read(file).unwrap();
                bytes[1000] ^= 1;
                fs::write(file, bytes).unwrap();
            },
            |file| File::options().append(true).open(file).unwrap().write_all(b"x").unwrap(),
        ];
        for change in changes {
            copy();
            change(&other.join("folder0001/file000100"));
            assert_ne!(Grown::survey(&other).unwrap().sha256().unwrap(), sha256);
        }
        FOREST.lighten(&one).unwrap();
        let light = Grown::survey(&one).unwrap();
        assert_eq!(light.files(), FOREST.count());
        assert_eq!(light.bytes(), Forest { large: 0, ..FOREST }.bytes());
    }
}
