//! Removes from the targets of folders what their sources do not have, once everything is copied.
//!
//! Everything is checked before anything is removed: if a source cannot be read, nothing is.
//! No link of a target is followed, and no other file system is entered.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat, fchmod, fstat, futimens, statat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, folder_at};
use underpass_engine::hint::Action;
use underpass_engine::{FileId, is_folder};

use crate::attributes::times;
use crate::context::CopyContext;
use crate::error::{At, Overlap, Result};
use crate::files::folder::{open_folder, open_source};
use crate::options::Follow;
use crate::options::exclude::is_excluded;
use crate::tree::dir_pair::DirPair;
use crate::tree::entry::SourceEntry;
use crate::tree::marker;
use crate::tree::merge::{self, Leftover};

/// Removes entries that the sources `entries` do not have from their targets in `top`, and returns
/// the number of removed entries.
pub(crate) fn mirror(context: &CopyContext<'_>, top: &DirPair, entries: &[SourceEntry]) -> u64 {
    let mut mirror = Mirror { context, deletes: false, removed: 0 };
    for deletes in [false, true] {
        mirror.deletes = deletes;
        if let Err(failure) = mirror.mirror_targets(top, entries) {
            context.record_failure(failure);
            break;
        }
    }
    mirror.removed
}

struct Mirror<'a, 'c> {
    context: &'a CopyContext<'c>,
    /// Whether entries are removed, or reported in a dry run; otherwise they are only checked.
    deletes: bool,
    removed: u64,
}

/// Names in sources, by the file in the target that each of them leads to.
type OtherNames = BTreeMap<FileId, Vec<CString>>;

/// Folders of sources, by their copies.
type OtherFolders = BTreeMap<FileId, Vec<OwnedFd>>;

/// A folder of a target, with all folders that were copied to it.
struct TargetLevel<'e> {
    sources: Vec<OwnedFd>,
    /// Other sources that were copied into the folder by their own names.
    named: Vec<&'e CStr>,
    target: OwnedFd,
    /// The paths of both, for messages.
    from: PathBuf,
    to: PathBuf,
    /// The path below the source that was named, with a slash at its end, or empty.
    below: Vec<u8>,
    depth: usize,
}

impl Mirror<'_, '_> {
    /// Checks all targets that are folders, or removes what their sources do not have.
    fn mirror_targets(&mut self, top: &DirPair, entries: &[SourceEntry]) -> Result<()> {
        let mut targets = BTreeMap::<FileId, TargetLevel>::new();
        for entry in entries.iter().filter(|entry| entry.kind == FileType::Directory) {
            let to = top.target_path(entry.target());
            let source = self.source(top, entry)?;
            let target = match open_folder(&top.target, entry.target()) {
                // A dry run has not made it.
                Err(Errno::NOENT) if self.context.settings.dry_run => continue,
                opened => opened.at("opening", || to.as_path())?,
            };
            let own = FileId::of(&fstat(&target).at("looking at", || to.as_path())?);
            self.refuse_around(top, entries, own, &to)?;
            // Other sources are copied next to the entries of this one.
            let is_beside = |it: &&SourceEntry| entry.target() == c"." && it.target() != c".";
            let named = entries.iter().filter(is_beside);
            let level = targets.entry(own).or_insert_with(|| TargetLevel {
                sources: Vec::new(),
                named: named.map(SourceEntry::target).collect(),
                target,
                from: top.source_path(&entry.name),
                to,
                below: Vec::new(),
                depth: 0,
            });
            level.sources.push(source);
        }
        // Targets shared with other sources come first: they may have the same folders.
        let (mut first, mut rest): (Vec<_>, Vec<_>) =
            targets.into_iter().partition(|(_, level)| !level.named.is_empty());
        let mut shared = OtherFolders::new();
        for (_, level) in &mut first {
            self.level(level, &mut shared)?;
        }
        for (own, level) in &mut rest {
            level.sources.extend(shared.remove(own).unwrap_or_default());
            self.level(level, &mut OtherFolders::new())?;
        }
        Ok(())
    }

    /// Opens a source, which has to be the folder that was copied.
    fn source(&self, top: &DirPair, entry: &SourceEntry) -> Result<OwnedFd> {
        let path = || top.source_path(&entry.name);
        let source = open_source(&top.source, &entry.name, entry.follows).at("opening", path)?;
        let own = FileId::of(&fstat(&source).at("looking at", path)?);
        if self.context.has_entered(own) {
            Ok(source)
        } else {
            // For example the empty folder under a file system that was unmounted meanwhile.
            Err(Errno::STALE).at("reading again", path)
        }
    }

    /// Refuses a target that has a source in it, which could be removed.
    fn refuse_around(
        &self,
        top: &DirPair,
        entries: &[SourceEntry],
        own: FileId,
        to: &Path,
    ) -> Result<()> {
        for entry in entries {
            let path = || top.source_path(&entry.name);
            let name = Path::new(OsStr::from_bytes(entry.name.to_bytes()));
            let start = match entry.kind {
                FileType::Directory => name,
                _ => atomic_file::folder_of(name),
            };
            let mut at = folder_at(&top.source, start).at("opening", path)?;
            let mut last = None;
            loop {
                let here = FileId::of(&fstat(&at).at("looking at", path)?);
                if here == own {
                    let (from, to) = (path(), to.to_owned());
                    return Err(Overlap::InTarget { from, to }.into());
                }
                // The root is its own parent.
                if last == Some(here) {
                    break;
                }
                last = Some(here);
                at = folder_at(&at, "..").at("opening", path)?;
            }
        }
        Ok(())
    }

    /// Processes one folder of a target and those below it.
    ///
    /// `shared` gets the folders of its sources that have the same target as a named source.
    fn level(&mut self, at: &TargetLevel<'_>, shared: &mut OtherFolders) -> Result<()> {
        let to = || at.to.as_path();
        if at.depth > MAX_DEPTH {
            return Err(Errno::NAMETOOLONG).at(Action::ReadingFolder, to);
        }
        let before = fstat(&at.target).at("looking at", to)?;
        let mut has_changed = false;
        let mut found = Vec::new();
        for name in atomic_file::names(&at.target).at(Action::ReadingFolder, to)? {
            match lstat(&at.target, &name) {
                // Another process has just removed it, or given it another name.
                Err(Errno::NOENT) => {}
                there => {
                    found.push((name.clone(), there.at("looking at", || join(&at.to, &name))?))
                }
            }
        }
        let other_names = self.other_names(at, &found)?;
        for (name, there) in found {
            if self.context.skips() {
                break;
            }
            let others = other_names.get(&FileId::of(&there)).map_or(&[][..], Vec::as_slice);
            let mut names = others.iter().chain([&name]).map(CString::as_c_str);
            let Some(_lock) = lock_unfinished(&at.target, &name) else { continue };
            let is_folder = is_folder(&there);
            if names.any(|name| at.named.contains(&name)) {
                let folders = self.found(at, &name, others, is_folder)?;
                shared.insert(FileId::of(&there), folders.unwrap_or_default());
                continue;
            }
            // Its original was not copied, so neither it nor anything in it is a copy.
            if self.is_excluded(&at.below, &name, is_folder) {
                continue;
            }
            let Some(folders) = self.found(at, &name, others, is_folder)? else {
                has_changed |= self.remove_from(at, &name)?;
                continue;
            };
            if folders.is_empty() {
                continue;
            }
            let target = open_folder(&at.target, &name).at("opening", || join(&at.to, &name))?;
            let level = TargetLevel {
                sources: folders,
                named: Vec::new(),
                target,
                from: join(&at.from, &name),
                to: join(&at.to, &name),
                below: [&longer(&at.below, &name), b"/".as_slice()].concat(),
                depth: at.depth + 1,
            };
            self.level(&level, shared)?;
        }
        if has_changed && fstat(&at.target).is_ok_and(|now| now.st_mode != before.st_mode) {
            let _ = fchmod(&at.target, Mode::from_raw_mode(before.st_mode));
        }
        let settings = &self.context.settings;
        if has_changed && settings.preserve.keeps_times_of_folder(settings.resume) {
            // The target has the times of its source by now.
            let _ = futimens(&at.target, &times(&before));
        }
        Ok(())
    }

    /// Returns the names in the sources that lead to an entry of the target which is listed under
    /// another name, as on file systems that ignore case, by the id of that entry.
    fn other_names(&self, at: &TargetLevel<'_>, found: &[(CString, Stat)]) -> Result<OtherNames> {
        let listed: HashSet<&CStr> = found.iter().map(|(name, _)| name.as_c_str()).collect();
        let mut names: BTreeSet<CString> = at.named.iter().map(|&name| name.to_owned()).collect();
        for source in &at.sources {
            names.extend(
                atomic_file::names(source).at(Action::ReadingFolder, || at.from.as_path())?,
            );
        }
        let mut others = OtherNames::new();
        for name in names {
            if listed.contains(name.as_c_str()) {
                continue;
            }
            match lstat(&at.target, &name) {
                Ok(there) => others.entry(FileId::of(&there)).or_default().push(name),
                // It was left out, or a dry run has not made it.
                Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL) => {}
                Err(errno) => return Err(errno).at("looking at", || join(&at.to, &name)),
            }
        }
        // Some file systems that ignore case change inode numbers when memory is short.
        let listed: HashSet<FileId> = found.iter().map(|(_, stat)| FileId::of(stat)).collect();
        if others.keys().all(|own| listed.contains(own)) {
            Ok(others)
        } else {
            Err(Errno::STALE).at(Action::ReadingFolder, || at.to.as_path())
        }
    }

    /// Looks for a name, or other names of the same entry, in all sources. Returns `None` if no
    /// source has it, or else those that are folders, opened, if their copy is one.
    fn found(
        &self,
        at: &TargetLevel<'_>,
        name: &CStr,
        others: &[CString],
        is_folder: bool,
    ) -> Result<Option<Vec<OwnedFd>>> {
        let settings = &self.context.settings;
        let follows = settings.follow == Follow::Always;
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let (mut is_there, mut folders, mut devices) = (false, Vec::new(), Vec::new());
        for source in &at.sources {
            for name in others.iter().map(CString::as_c_str).chain([name]) {
                let from = || join(&at.from, name);
                let stat = match statat(source, name, flags) {
                    Err(Errno::NOENT) => continue,
                    stat => stat.at("looking at", from)?,
                };
                is_there = true;
                let device = fstat(source).at("looking at", from)?.st_dev;
                let is_elsewhere = settings.one_file_system && stat.st_dev != device;
                devices.push(stat.st_dev);
                if is_folder && self::is_folder(&stat) && !is_elsewhere {
                    let folder = open_source(source, name, follows).at("opening", from)?;
                    devices.push(fstat(&folder).at("looking at", from)?.st_dev);
                    folders.push(folder);
                }
            }
        }
        if self.context.misses_mount(&join(&at.to, name), &devices) {
            // It was unmounted, and its mount point may be gone, too.
            return Err(Errno::STALE).at("reading again", || join(&at.from, name));
        }
        Ok(is_there.then_some(folders))
    }

    /// Removes an entry of a target that the sources do not have; returns whether the target may
    /// have changed. A failed removal is recorded as a problem; a failed check is an error.
    fn remove_from(&mut self, at: &TargetLevel<'_>, name: &CStr) -> Result<bool> {
        let (to, below) = (join(&at.to, name), longer(&at.below, name));
        match self.remove(&at.target, name, &to, &below, at.depth + 1) {
            Err(failure) if self.deletes => {
                self.context.record_failure(failure);
                Ok(false)
            }
            removed => removed.map(|_| self.unlinks()),
        }
    }

    /// Removes an entry with everything in it, and returns whether it is gone: excluded and
    /// incomplete entries stay. The first pass only checks everything in it, and a dry run only
    /// reports it.
    fn remove(
        &mut self,
        folder: &OwnedFd,
        name: &CStr,
        to: &Path,
        below: &[u8],
        depth: usize,
    ) -> Result<bool> {
        let (context, path) = (self.context, || to);
        let stat = match lstat(folder, name) {
            // Another process has removed it.
            Err(Errno::NOENT) => return Ok(true),
            stat => stat.at("looking at", path)?,
        };
        let mut how = AtFlags::empty();
        if is_folder(&stat) {
            how = AtFlags::REMOVEDIR;
            let inner = open_folder(folder, name).at("opening", path)?;
            if atomic_file::is_mounted(&inner, folder).at("looking at", path)? {
                // Everything else can be removed.
                let busy = Err(Errno::BUSY).at("removing", path);
                return if self.deletes { busy } else { Ok(false) };
            }
            if depth > MAX_DEPTH {
                return Err(Errno::NAMETOOLONG).at("removing", path);
            }
            let (mut is_empty, folder_below) = (true, [below, b"/"].concat());
            // Its lock also covers the marker in it.
            let is_leftover = merge::meant(name).is_some();
            for name in atomic_file::names(&inner).at(Action::ReadingFolder, path)? {
                if context.skips() {
                    is_empty = false;
                    break;
                }
                let is_folder = lstat(&inner, &name).is_ok_and(|stat| is_folder(&stat));
                let lock = lock_unfinished(&inner, &name);
                let is_used = lock.is_none() && !(is_leftover && marker::is_name(&name));
                let is_kept = is_used || self.is_excluded(&folder_below, &name, is_folder);
                let below = longer(&folder_below, &name);
                let path = join(to, &name);
                is_empty &= !is_kept && self.remove(&inner, &name, &path, &below, depth + 1)?;
            }
            if !is_empty {
                if self.unlinks() && stat.st_mode & 0o200 == 0 {
                    let _ = fchmod(&inner, Mode::from_raw_mode(stat.st_mode));
                }
                return Ok(false);
            }
        }
        if !self.unlinks() {
            if self.deletes {
                context.observer.would_remove(to);
                self.removed += 1;
            }
            return Ok(true);
        }
        match unlink(folder, name, how) {
            Err(Errno::NOENT) => return Ok(true),
            removed => removed.at("removing", path)?,
        }
        self.removed += 1;
        if context.observer.lists() {
            context.observer.removed(to, is_folder(&stat));
        }
        Ok(true)
    }

    /// Returns whether entries are really removed.
    fn unlinks(&self) -> bool {
        self.deletes && !self.context.settings.dry_run
    }

    /// Returns whether the options leave an entry out, so that it is not removed either.
    fn is_excluded(&self, below: &[u8], name: &CStr, is_folder: bool) -> bool {
        let name = name.to_bytes();
        let path = || [below, name].concat();
        is_excluded(&self.context.settings.exclude, name, path, is_folder)
    }
}

fn unlink(folder: &OwnedFd, name: &CStr, how: AtFlags) -> Result<(), Errno> {
    match unlinkat(folder, name, how) {
        // The folder is not writable, perhaps like its original.
        Err(Errno::ACCESS) => {
            atomic_file::make_writable(folder)?;
            unlinkat(folder, name, how)
        }
        removed => removed,
    }
}

/// Keeps other processes from resuming the entry of this name; `None` if another copy is still
/// writing it.
fn lock_unfinished(folder: &OwnedFd, name: &CStr) -> Option<Leftover> {
    if marker::is_name(name) {
        return None;
    }
    match merge::meant(name) {
        Some(_) => merge::lock_leftover(folder, name),
        None => Some(Leftover::Unlockable),
    }
}

fn lstat(folder: &OwnedFd, name: &CStr) -> Result<Stat, Errno> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn join(path: &Path, name: &CStr) -> PathBuf {
    path.join(OsStr::from_bytes(name.to_bytes()))
}

/// Returns the path of an entry below the source.
fn longer(below: &[u8], name: &CStr) -> Vec<u8> {
    [below, name.to_bytes()].concat()
}

/// The maximum depth of a tree that is searched; each level needs a few descriptors.
const MAX_DEPTH: usize = 1000;
