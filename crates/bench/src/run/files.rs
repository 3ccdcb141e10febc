//! The files of a run: random bytes, so that nothing can compress or share them on the way, in a
//! folder that is removed afterwards.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, statvfs, syncfs};
use sha2::{Digest, Sha256};

use crate::error::{Result, Shortage, WithPath};

/// A separate folder of the run, removed with its contents when dropped.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub(crate) fn create(parent: &Path) -> Result<Self> {
        let create = |attempt: u32| {
            let path = parent.join(format!("underpass-bench-{}-{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
                outcome => Some(outcome.map(|()| Self { path })),
            }
        };
        let taken = || Err(io::ErrorKind::AlreadyExists.into());
        let created = (0..100).find_map(create).unwrap_or_else(taken);
        Ok(created.with_path("creating a folder in", parent)?)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its whole path, for programs that run with another current folder.
    pub(crate) fn absolute(&self) -> Result<PathBuf> {
        Ok(fs::canonicalize(&self.path).with_path("looking at", &self.path)?)
    }

    /// Fails if `needed` bytes do not fit, and a little more.
    pub(crate) fn require_space(&self, needed: u64) -> Result<()> {
        let stat = statvfs(&self.path).with_path("looking at", &self.path)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let needed = needed.saturating_add(SPARE);
        if free >= needed {
            return Ok(());
        }
        let folder = self.path.parent().unwrap_or(&self.path).to_owned();
        Err(Shortage::Space { folder, needed, free }.into())
    }

    /// Removes a file if it exists, and waits until the file system has nothing left to write, so
    /// that no sample pays for the one before it.
    pub(crate) fn clear(&self, file: &Path) -> Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).with_path("removing", file)?
            }
            _ => self.sync(),
        }
    }

    /// Waits until the file system has nothing left to write.
    pub(crate) fn sync(&self) -> Result<()> {
        let synced = File::open(&self.path).and_then(|folder| Ok(syncfs(folder)?));
        Ok(synced.with_path("writing out", &self.path)?)
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A failure could only be reported, and the name of the folder shows its owner.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns the largest size, as files are made one after the other.
pub(crate) fn largest(sizes: &[u64]) -> u64 {
    sizes.iter().copied().max().unwrap_or(0)
}

/// Random bytes from which files of any size are made quickly.
#[derive(Clone, Debug)]
pub(crate) struct Noise {
    block: Vec<u8>,
}

impl Noise {
    /// Creates enough for files of up to `largest` bytes.
    pub(crate) fn new(largest: u64) -> Result<Self> {
        let len = usize::try_from(largest).unwrap_or(BLOCK).min(BLOCK);
        let mut block = vec![0; len];
        let source = Path::new("/dev/urandom");
        File::open(source)
            .and_then(|mut file| file.read_exact(&mut block))
            .with_path("reading", source)?;
        Ok(Self { block })
    }

    /// Returns `len` bytes, at most a block, which differ for each number.
    pub(super) fn piece(&self, number: u32, len: u64) -> Vec<u8> {
        let len = usize::try_from(len).unwrap_or(self.block.len()).min(self.block.len());
        let start = (number as usize).wrapping_mul(PAGE) % (self.block.len() - len + 1);
        let mut piece = self.block[start..start + len].to_vec();
        let mark = number.to_le_bytes();
        let marked = mark.len().min(len);
        piece[..marked].copy_from_slice(&mark[..marked]);
        piece
    }

    /// Writes a file of `size` bytes in large pieces, without waiting for the disk.
    pub(crate) fn scatter(&self, path: &Path, size: u64) -> Result<()> {
        let write = || -> io::Result<()> {
            let piece = &self.block[..self.block.len().min(MEBI)];
            let (mut file, mut left) = (File::create(path)?, size);
            while left > 0 {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                file.write_all(&piece[..len])?;
                left -= len as u64;
            }
            Ok(())
        };
        Ok(write().with_path("writing", path)?)
    }

    /// Writes a file of `size` bytes down to the disk, and returns its digest. No two pages of it
    /// are alike: each begins with its number.
    pub(crate) fn write(&mut self, path: &Path, size: u64) -> Result<String> {
        let mut write = || -> io::Result<String> {
            let mut file = File::create(path)?;
            let mut hasher = Sha256::new();
            let (mut page, mut left) = (0_u64, size);
            while left > 0 {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.block.len());
                for bytes in self.block[..len].chunks_exact_mut(PAGE) {
                    bytes[..8].copy_from_slice(&page.to_le_bytes());
                    page += 1;
                }
                file.write_all(&self.block[..len])?;
                hasher.update(&self.block[..len]);
                left -= len as u64;
            }
            file.sync_all()?;
            Ok(hex(&hasher.finalize()))
        };
        Ok(write().with_path("writing", path)?)
    }
}

/// Makes a sparse file with a page of bytes at the start of each MiB, by which its parts differ.
pub(crate) fn sparse(path: &Path, size: u64) -> Result<()> {
    let write = || -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(size)?;
        for part in 0..size.div_ceil(MEBI as u64) {
            let offset = part * MEBI as u64;
            let mark = (part + 1).to_le_bytes().repeat(PAGE / 8);
            let len = usize::try_from(size - offset).unwrap_or(PAGE).min(PAGE);
            file.write_all_at(&mark[..len], offset)?;
        }
        file.sync_all()
    };
    Ok(write().with_path("writing", path)?)
}

pub(crate) fn digest(path: &Path) -> Result<String> {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hex(&hasher.finalize())),
                len => hasher.update(&buffer[..len]),
            }
        }
    };
    Ok(read().with_path("reading", path)?)
}

/// Drops a file, which has been written to disk, from the page cache.
pub(crate) fn drop_cached(path: &Path) -> Result<()> {
    let dropped = File::open(path).and_then(|file| Ok(fadvise(file, 0, None, Advice::DontNeed)?));
    Ok(dropped.with_path("dropping from the page cache", path)?)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The size of the block of random bytes: larger than the cache of one core.
const BLOCK: usize = 16 << 20;

/// The length of a page, and the minimum space of a file on the disk.
pub(crate) const PAGE: usize = 4 << 10;

const MEBI: usize = 1 << 20;

/// Bytes left free in addition to the files of a run.
const SPARE: u64 = 16 << 20;
