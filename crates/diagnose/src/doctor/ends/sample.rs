//! The source of a trial: a named file, or a temporary one.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, OFlags, Stat, fstat, memfd_create};
use underpass_engine::hint::Action;
use underpass_engine::{Kind, Source, Version};

use crate::doctor::ends::scratch::{NAME, Scratch};
use crate::doctor::error::{DoctorError, Result, UnsuitableEnd, WithPath};

/// The source of a trial: its first bytes are moved to see which mechanism works. It is only read.
#[derive(Debug)]
pub(crate) struct TrialFile {
    file: File,
    name: String,
    folder: Option<PathBuf>,
}

impl TrialFile {
    /// Opens the named file, or one like those in the named folder; without a name, one in the
    /// current folder or, where nothing can be written, in memory.
    pub(crate) fn open(from: Option<&Path>) -> Result<Self> {
        let Some(path) = from else {
            return Self::made(Path::new(".")).or_else(|_| Self::in_memory()).map_err(|source| {
                DoctorError::System { action: "creating a file for the trials", source }
            });
        };
        let found = fs::metadata(path).with_path("opening", path)?;
        if found.is_dir() {
            return match Self::made(path) {
                Ok(sample) => Ok(sample),
                Err(error) => match largest(path) {
                    Some(file) => Self::named(&file),
                    None => Err(error).with_path("creating a file for the trials in", path)?,
                },
            };
        }
        let kind = found.file_type();
        let is_stream = !kind.is_file() && !std::os::unix::fs::FileTypeExt::is_block_device(&kind);
        if is_stream {
            return Err(UnsuitableEnd::StreamSource(path.to_owned()).into());
        }
        Self::named(path)
    }

    /// Opens an existing file.
    fn named(path: &Path) -> Result<Self> {
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path);
        let file = file.with_path("opening", path)?;
        let name = path.display().to_string();
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let sample = Self { file, name, folder: Some(folder) };
        if sample.source()?.promised() == Some(0) {
            return Err(UnsuitableEnd::EmptySource(path.to_owned()).into());
        }
        Ok(sample)
    }

    /// Creates an unnamed file (`O_TMPFILE`) in this folder.
    fn made(folder: &Path) -> io::Result<Self> {
        let scratch = Scratch::file(&folder.join(NAME))?;
        let file = scratch.dest_file().ok_or(rustix::io::Errno::BADF)?;
        file.write_all_at(&sample_bytes(), 0)?;
        // A process that has it open for writing gets no lease on it, so it is opened again.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = File::open(path).or_else(|_| file.try_clone())?;
        let name = format!("a new file in {}", folder.display());
        Ok(Self { file, name, folder: Some(folder.to_owned()) })
    }

    fn in_memory() -> io::Result<Self> {
        let file: File = memfd_create(NAME, MemfdFlags::CLOEXEC)?.into();
        file.write_all_at(&sample_bytes(), 0)?;
        Ok(Self { file, name: "a file in memory".to_owned(), folder: None })
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the folder that it is in, if any.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns its metadata.
    pub(crate) fn stat(&self) -> Result<Stat> {
        Ok(fstat(&self.file).with_path("looking at", &self.name)?)
    }

    /// Returns its first bytes as a source.
    pub(crate) fn source(&self) -> Result<Source<&File>> {
        let source = Source::of(&self.file).with_path(Action::Reading, &self.name)?;
        Ok(match source.promised() {
            Some(len) if len > LEN => source.len(LEN),
            _ => source,
        })
    }

    /// Returns whether the file begins with these bytes. A file that is not regular, or has
    /// changed meanwhile, cannot be compared, and passes.
    pub(crate) fn begins_with(&self, bytes: &[u8], before: Option<Version>) -> bool {
        let is_regular = self.source().is_ok_and(|source| source.kind() == Kind::Regular);
        let mut own = vec![0; bytes.len()];
        let read = self.file.read_exact_at(&mut own, 0);
        let is_same = Version::of(&self.file).ok() == before;
        !is_regular || !is_same || read.is_err() || own == bytes
    }
}

/// Returns the largest file of a folder in which none can be created.
fn largest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.take(ENTRIES).flatten();
    let files = entries.filter_map(|entry| {
        let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        (found.len() > 0).then(|| (found.len(), entry.path()))
    });
    files.filter(|(_, path)| File::open(path).is_ok()).max().map(|(_, path)| path)
}

/// Returns the bytes of a sample: multiples of an odd number, so that no two words are equal.
fn sample_bytes() -> Vec<u8> {
    (1..=LEN / 8)
        .flat_map(|index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// The number of bytes moved in a trial: more than a small file that is copied through a buffer,
/// and a multiple of any file system's blocks.
pub(crate) const LEN: u64 = 256 << 10;

/// The maximum number of a folder's entries that are examined.
const ENTRIES: usize = 1_000;
