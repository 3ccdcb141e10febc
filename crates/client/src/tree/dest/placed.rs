//! Remembers the files that a download has put in place on a file system that ignores case, where
//! two names may lead to one file.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, openat, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, fold_case};
use underpass_engine::wait::lock;
use underpass_engine::{FileId, is_file};

use crate::tree::error::CASE_CLASH;
use crate::tree::paths::PROBE;

/// The entries that a download has created or found; none where case matters.
#[derive(Debug)]
pub(super) struct PlacedFiles {
    files: Option<Mutex<KnownFiles>>,
    hasher: RandomState,
    /// Held while a file gets its name.
    naming: Mutex<()>,
}

/// Files, each with a hash of its path.
#[derive(Debug, Default)]
struct KnownFiles {
    by_id: HashMap<FileId, u64>,
    /// By a hash of the case-folded path: the kernel may have cached a name before the file got it.
    by_name: HashMap<u64, u64>,
}

impl PlacedFiles {
    pub(super) fn of(folder: &OwnedFd) -> Self {
        Self {
            files: ignores_case(folder).then(Mutex::default),
            hasher: RandomState::new(),
            naming: Mutex::default(),
        }
    }

    /// Blocks other threads that name files, on file systems that ignore case.
    pub(super) fn begin_naming(&self) -> Option<MutexGuard<'_, ()>> {
        self.files.as_ref()?;
        Some(lock(&self.naming))
    }

    /// Checks that the entry at a path was not made under another path.
    pub(super) fn check(&self, path: &[u8], there: &Stat) -> Result<(), Errno> {
        let Some(files) = &self.files else { return Ok(()) };
        let files = lock(files);
        let own = self.hasher.hash_one(path);
        let known = [
            files.by_id.get(&FileId::of(there)),
            files.by_name.get(&self.hasher.hash_one(fold_case(path))),
        ];
        if known.into_iter().flatten().any(|known| *known != own) {
            Err(CASE_CLASH)
        } else {
            Ok(())
        }
    }

    /// Remembers the entry at a path.
    pub(super) fn insert(&self, path: &[u8], there: &Stat) {
        let Some(files) = &self.files else { return };
        let mut files = lock(files);
        let own = self.hasher.hash_one(path);
        files.by_name.entry(self.hasher.hash_one(fold_case(path))).or_insert(own);
        // A file with several links may be found under each of its names.
        if there.st_nlink == 1 {
            files.by_id.insert(FileId::of(there), own);
        }
    }
}

/// Returns whether names in a folder are case-insensitive, by creating a file there and removing
/// it. `false` if none can be created, as it does not matter then.
pub(crate) fn ignores_case(folder: &OwnedFd) -> bool {
    // The probe could not be removed, and nothing is replaced there either.
    if atomic_file::only_adds(folder) {
        return false;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let made = openat(folder, PROBE, flags, Mode::RUSR | Mode::WUSR);
    if !matches!(made, Ok(_) | Err(Errno::EXIST)) {
        return false;
    }
    let outcome = atomic_file::ignores_case(folder, PROBE.as_bytes());
    // A probe left by a kill is empty, and the next download removes it.
    let probe = statat(folder, PROBE, AtFlags::SYMLINK_NOFOLLOW);
    if probe.is_ok_and(|stat| is_file(&stat) && stat.st_size == 0) {
        let _ = unlinkat(folder, PROBE, AtFlags::empty());
    }
    outcome == Some(true)
}
