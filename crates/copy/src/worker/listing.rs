//! Reads folders, and adds tasks for their entries in parts.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;

use crate::error::At;
use crate::options::Follow;
use crate::options::exclude::is_excluded;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::{ListedNames, SourceEntry};
use crate::tree::task::FolderTask;
use crate::worker::CopyWorker;

/// A part of a folder's entries.
#[derive(Debug, Default)]
pub(super) struct EntryBatch {
    /// Entries that are not folders, or whose type is unknown.
    pub(super) files: Vec<SourceEntry>,
    pub(super) folders: Vec<SourceEntry>,
    /// The names of further entries.
    pub(super) rest: ListedNames,
}

impl EntryBatch {
    /// Returns the listing of a folder of which only these entries are copied.
    pub(super) fn only(entries: &[SourceEntry]) -> Self {
        // A folder among them is entered only if folders are copied.
        Self { files: entries.to_vec(), ..Self::default() }
    }
}

impl CopyWorker<'_> {
    /// Adds tasks for the next part of a folder's entries.
    pub(crate) fn read(&mut self, folder: &Arc<DirPair>, names: ListedNames) {
        let below = |name: &CStr| folder.chain.path_below(name);
        let listing = self.entries(&folder.source, names, below, |name| folder.source_path(name));
        self.push(folder, listing);
    }

    /// Adds tasks for a part of a listing: files are copied first, and the rest of the listing
    /// comes last.
    pub(super) fn push(&self, folder: &Arc<DirPair>, mut listing: EntryBatch) {
        // On a disk that has to seek, files lie roughly in the order of their inode numbers.
        listing.files.sort_unstable_by_key(|entry| entry.number);
        let mut tasks = Vec::new();
        if !listing.rest.is_empty() {
            tasks.push(FolderTask::Read(Arc::clone(folder), listing.rest));
        }
        let folders = listing.folders.into_iter().rev();
        tasks.extend(folders.map(|entry| FolderTask::Enter(Arc::clone(folder), entry)));
        let mut files = listing.files.into_iter();
        let mut batches = Vec::with_capacity(files.len().div_ceil(BATCH_LEN));
        while files.len() > 0 {
            // Not split_off, which would leave each of them the capacity of all.
            let batch = files.by_ref().take(BATCH_LEN).collect();
            batches.push(FolderTask::Entries(Arc::clone(folder), batch));
        }
        tasks.extend(batches.into_iter().rev());
        for task in &tasks {
            let (folder, is_own) = task.folder();
            folder.hold(is_own);
        }
        self.context.queue.push(tasks);
    }

    /// Reads all names of a folder, before anything in it is copied: on btrfs and tmpfs, a name
    /// that is replaced during the listing moves to where a listing in parts may miss it.
    pub(super) fn list(&mut self, source: &OwnedFd) -> Result<ListedNames, Errno> {
        let mut names = ListedNames::default();
        let mut folder = RawDir::new(source, self.listing.spare_capacity_mut());
        while let Some(next) = folder.next() {
            let next = next?;
            let name = next.file_name();
            if name != c"." && name != c".." {
                names.push(next.ino(), next.file_type(), name);
            }
        }
        Ok(names)
    }

    /// Turns the next names of a folder into entries. One whose type cannot be looked up is recorded
    /// as a failure: another process may have removed it since the folder was listed.
    pub(super) fn entries(
        &mut self,
        source: &OwnedFd,
        mut names: ListedNames,
        path_below: impl Fn(&CStr) -> Vec<u8>,
        source_path: impl Fn(&CStr) -> PathBuf,
    ) -> EntryBatch {
        let mut listing = EntryBatch::default();
        let context = self.context;
        let settings = &context.settings;
        let follows = settings.follow == Follow::Always;
        for _ in 0..MAX_LISTED {
            let Some((number, mut kind, name)) = names.next() else { break };
            let filters = context.observer.filters();
            if kind == FileType::Unknown && (filters || !settings.exclude.is_empty()) {
                let stat = statat(source, &name, AtFlags::SYMLINK_NOFOLLOW);
                match stat.at("looking at", || source_path(&name)) {
                    Ok(stat) => kind = FileType::from_raw_mode(stat.st_mode),
                    Err(failure) => {
                        context.record_failure(failure);
                        continue;
                    }
                }
            }
            if filters && context.observer.excludes(&path_below(&name), kind) {
                self.totals.excluded += 1;
                continue;
            }
            if !settings.exclude.is_empty() {
                let is_folder = kind == FileType::Directory;
                let path = || path_below(&name);
                if is_excluded(&settings.exclude, name.to_bytes(), path, is_folder) {
                    self.totals.excluded += 1;
                    continue;
                }
            }
            let entry = SourceEntry { name, new_name: None, kind, follows, number, only: None };
            match kind {
                FileType::Directory => listing.folders.push(entry),
                _ => listing.files.push(entry),
            }
        }
        listing.rest = names;
        listing
    }
}

/// Entries that are handed to a thread at a time.
const BATCH_LEN: usize = 32;

/// The maximum number of a folder's names that are held as entries at a time.
const MAX_LISTED: usize = 4096;
