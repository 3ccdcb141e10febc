//! The original that is copied.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, WithPath};
use crate::record::OriginalKind;
use crate::run::{FileTree, Noise, PAGE, RunFolder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CopyOriginal {
    File(u64),
    /// An existing folder.
    Folder(PathBuf),
    /// A folder created for the run.
    FileTree(FileTree),
    Sparse {
        len: u64,
        data: u64,
    },
}

impl CopyOriginal {
    pub(super) const fn kind(&self) -> OriginalKind {
        match self {
            Self::File(_) => OriginalKind::File,
            Self::Folder(_) => OriginalKind::Folder,
            Self::FileTree(_) => OriginalKind::SmallFiles,
            Self::Sparse { .. } => OriginalKind::Sparse,
        }
    }

    pub(super) const fn is_folder(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::FileTree(_))
    }

    /// Returns its path; originals created for the run are in `place`.
    pub(super) fn path(&self, place: &RunFolder) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.clone(),
            _ => place.file("original"),
        }
    }

    /// Returns where the file without holes is.
    pub(super) fn dense_path(place: &RunFolder) -> PathBuf {
        place.file("dense")
    }

    /// Returns about how many bytes it occupies on the disk; 0 if it existed before.
    pub(super) fn room(&self) -> u64 {
        match self {
            Self::File(len) => *len,
            Self::Folder(_) => 0,
            Self::FileTree(tree) => tree.room(),
            Self::Sparse { data, .. } => data.saturating_mul(2),
        }
    }

    pub(super) fn create(&self, place: &RunFolder, noise: &mut Noise) -> Result<()> {
        let path = self.path(place);
        match self {
            Self::Folder(_) => Ok(()),
            Self::File(len) => noise.write(&path, *len).map(|_| ()),
            Self::FileTree(tree) => {
                fs::create_dir(&path).with_path("creating", &path)?;
                tree.create(&path, noise)
            }
            Self::Sparse { len, data } => {
                let dense = Self::dense_path(place);
                noise.write(&dense, *data)?;
                Ok(spread(&dense, &path, *len, *data).with_path("writing", &path)?)
            }
        }
    }
}

/// Writes a file as long as `len`, with the bytes of another one in pieces at even distances.
fn spread(from: &Path, to: &Path, len: u64, data: u64) -> std::io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    to.set_len(len)?;
    let pieces = data.div_ceil(PIECE).max(1);
    // At whole pages, so that no hole has a byte of data in its block.
    let share = len / pieces;
    let distance = (share - share % PAGE as u64).max(PIECE);
    let mut buffer = vec![0; PIECE as usize];
    for piece in 0..pieces {
        let at = piece * PIECE;
        let part = &mut buffer[..(data - at).min(PIECE) as usize];
        from.read_exact_at(part, at)?;
        to.write_all_at(part, piece * distance)?;
    }
    to.sync_all()
}

const PIECE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_with_holes_has_its_length_and_no_more_data_than_it_should() {
        let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
        let original = CopyOriginal::Sparse { len: 64 << 20, data: (2 << 20) + 5 };
        original.create(&folder, &mut Noise::new(3 << 20).unwrap()).unwrap();
        let found = fs::metadata(original.path(&folder)).unwrap();
        assert_eq!(found.len(), 64 << 20);
        assert!(found.blocks() * 512 < 4 << 20, "{} blocks", found.blocks());
        let dense = fs::read(CopyOriginal::dense_path(&folder)).unwrap();
        let bytes = fs::read(original.path(&folder)).unwrap();
        assert_eq!(dense.len(), (2 << 20) + 5);
        assert!(bytes[..1 << 20] == dense[..1 << 20]);
        let data = bytes.iter().filter(|byte| **byte != 0).count();
        assert!(((2 << 20) - (64 << 10)..=(2 << 20) + 5).contains(&data), "{data}");
    }
}
