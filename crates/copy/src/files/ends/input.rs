//! A file to read, or standard input.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, fstat, seek};
use underpass_engine::hint::{Action, PathError, WithPath};
use underpass_engine::{Kind, Source};

use super::is_dash;
use super::open::{Opener, cursor, open, standard};

/// A file to read, or standard input.
#[derive(Debug)]
pub struct Input {
    file: File,
    path: PathBuf,
    /// The offset at which reading begins: another process may have read some of standard input.
    at: u64,
    shares_cursor: bool,
}

impl Input {
    /// Opens what `path` names; `-` is standard input.
    ///
    /// # Errors
    ///
    /// As open(2), and `EBADF` if standard input was closed when the program began.
    pub fn open(path: &Path, opener: Opener<'_>) -> Result<Self, PathError> {
        if !is_dash(path) {
            let file = open(path, OpenOptions::new().read(true), opener);
            return Ok(Self::of(file.with_path("opening", path)?, path));
        }
        let path = PathBuf::from("standard input");
        let file = standard(&io::stdin(), OpenOptions::new().read(true));
        let file = file.with_path("opening", &path)?;
        let at = cursor(&file).with_path("looking at", &path)?;
        Ok(Self { file, path, at, shares_cursor: true })
    }

    /// Returns the open file of a path.
    #[must_use]
    pub fn of(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), at: 0, shares_cursor: false }
    }

    /// Returns the unread rest of the file as a source.
    ///
    /// # Errors
    ///
    /// As [`Source::of`].
    pub fn source(&self) -> Result<Source<&File>, PathError> {
        Ok(Source::of(&self.file).with_path(Action::Reading, &self.path)?.at(self.at))
    }

    /// Returns the file itself.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns its name for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether it is a file that was named, and not standard input.
    #[must_use]
    pub fn has_name(&self) -> bool {
        !self.shares_cursor
    }

    /// Leaves the cursor of a standard input that is a file after the bytes that were read, as
    /// any reader would, so that the next command of a script continues there.
    pub fn finish(&self, bytes: u64) {
        if self.shares_cursor {
            // Pipes and terminals have no cursor.
            let _ = seek(&self.file, SeekFrom::Start(self.at + bytes));
        }
    }

    /// Returns whether `source`, which is this file, has holes that a copy should keep.
    pub(super) fn is_sparse(&self, source: &Source<&File>) -> bool {
        let allocated = |stat: rustix::fs::Stat| u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        source.kind() == Kind::Regular
            && fstat(&self.file)
                .is_ok_and(|stat| source.promised().is_some_and(|len| allocated(stat) < len))
    }
}
