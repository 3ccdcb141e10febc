//! Copies folders: makes the target, and adds tasks for the entries.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use rustix::fs::{AtFlags, Mode, Stat, fstat, mkdirat, unlinkat};
use rustix::io::Errno;
use underpass_engine::atomic_file::remove_attribute;
use underpass_engine::hint::Action;
use underpass_engine::wait::lock;
use underpass_engine::{FileId, atomic_file};

use crate::attributes;
use crate::attributes::inherited::InheritedAttrs;
use crate::error::{At, Overlap, Result};
use crate::files::file_system::{self, FUSE};
use crate::files::folder::{open_folder, open_unlisted};
use crate::options::ExistingFiles;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::entry::SourceEntry;
use crate::tree::hidden_names::{self, NameUse, identity};
use crate::tree::path_chain::PathChain;
use crate::tree::{marker, merge};
use crate::worker::CopyWorker;
use crate::worker::listing::EntryBatch;

/// The target of a folder, made or found.
struct MadeDir {
    folder: OwnedFd,
    origin: DirOrigin,
    is_trusted: bool,
    hidden: Option<CString>,
    /// Whether it existed before this run.
    was_there: bool,
}

impl CopyWorker<'_> {
    /// Makes the target of a folder, and adds tasks for its entries.
    pub(crate) fn enter(&mut self, parent: &Arc<DirPair>, entry: &SourceEntry) -> Result<()> {
        self.take_name(parent, entry)?;
        let from = || parent.source_path(&entry.name);
        let is_listed = entry.only.is_none();
        let source = open_unlisted(&parent.source, &entry.name, entry.follows, is_listed);
        let source = source.at("opening", from)?;
        let stat = fstat(&source).at("looking at", from)?;
        self.refuse_circles(parent, entry, &stat)?;
        self.remember_source(parent, entry, &stat);
        let device = parent.device.unwrap_or(stat.st_dev);
        let is_elsewhere = self.context.settings.one_file_system && device != stat.st_dev;
        let is_too_deep = entry.only.is_none() && self.is_too_deep(parent);
        let chain = chain_of(parent, entry);
        let listing = match (&entry.only, is_elsewhere || is_too_deep) {
            (Some(entries), _) => EntryBatch::only(entries),
            (None, true) => EntryBatch::default(),
            (None, false) => {
                let below = |name: &CStr| chain.path_below(name);
                let names = self.list(&source).at(Action::Reading, from)?;
                let path = |name: &CStr| from().join(OsStr::from_bytes(name.to_bytes()));
                self.entries(&source, names, below, path)
            }
        };
        let is_plain = listing.rest.is_empty() && listing.files.is_empty();
        let made = self.make(parent, entry, &source, is_plain)?;
        self.refuse_itself(parent, entry, &stat, &made)
            .inspect_err(|_| self.unmake(parent, &made))?;
        let inherited = self.inherited(parent, &made);
        let is_new = made.origin.is_new();
        let system = if is_new { parent.system } else { file_system::name(&made.folder) };
        *lock(&chain.hidden) = made.hidden;
        parent.hold(false);
        let is_closed =
            parent.is_closed || made.is_trusted && hidden_names::is_closed(&made.folder);
        let is_put_off = is_too_deep && !is_elsewhere;
        let folder = Arc::new(DirPair {
            source,
            target: made.folder,
            chain: Arc::new(chain),
            parent: Some(Arc::clone(parent)),
            top: None,
            depth: parent.depth + 1,
            // The thread that copies the deferred entries sets the attributes.
            stat: Some(stat).filter(|_| !is_put_off),
            origin: made.origin,
            is_trusted: made.is_trusted,
            is_closed,
            system,
            // The file system to stay on is that of the source.
            device: Some(device).filter(|_| entry.only.is_none()),
            inherited,
            made: made.origin.nothing_made(),
            is_refused: AtomicBool::new(false),
            own: AtomicUsize::new(1),
            all: AtomicUsize::new(1),
        });
        self.totals.folders += 1;
        if is_new {
            self.name_made(parent, entry, None)
        } else {
            // Another file system may be mounted there.
            self.context.open_for_sync(&folder)
        }
        self.push(&folder, listing);
        let defer = if is_put_off { self.defer(&folder, &stat) } else { Ok(()) };
        self.context.release(&folder, true);
        defer
    }

    /// Remembers the entries that must still exist when something is removed from the target: the
    /// sources, and the file systems that are mounted in them.
    fn remember_source(&self, parent: &DirPair, entry: &SourceEntry, stat: &Stat) {
        if !self.context.settings.delete {
            return;
        }
        if parent.is_top() {
            self.context.note_source_folder(FileId::of(stat));
        } else if fstat(&parent.source).is_ok_and(|above| above.st_dev != stat.st_dev) {
            self.context.note_mount(parent.target_path(entry.target()), stat.st_dev);
        }
    }

    /// Remembers all copies from here on if another source may have the same target.
    fn prepare_for_twins(&self, parent: &DirPair, entry: &SourceEntry, made: &MadeDir) {
        let name = made.hidden.as_deref().unwrap_or(entry.target());
        if !self.context.settings.dry_run
            && atomic_file::ignores_case(&parent.target, name.to_bytes()) == Some(true)
        {
            self.context.begin_to_remember();
        }
    }

    /// Makes or opens the target of a folder, which another process may make at the same time.
    fn make(
        &self,
        parent: &DirPair,
        entry: &SourceEntry,
        source: &OwnedFd,
        is_plain: bool,
    ) -> Result<MadeDir> {
        match self.make_once(parent, entry, source, is_plain) {
            Err(failure) if failure.is_taken() => self.make_once(parent, entry, source, is_plain),
            made => made,
        }
    }

    fn make_once(
        &self,
        parent: &DirPair,
        entry: &SourceEntry,
        source: &OwnedFd,
        is_plain: bool,
    ) -> Result<MadeDir> {
        let target = entry.target();
        let path = || parent.target_path(target);
        if self.context.settings.dry_run {
            return self.would_make(parent, target);
        }
        let is_marked = self.context.settings.resume && parent.is_top();
        if parent.origin != DirOrigin::Fresh
            && let Some(folder) = self.existing(parent, target)?
        {
            let is_trusted = if is_marked {
                // The files of a folder that cannot be marked are compared.
                self.mark(&folder, source, false).unwrap_or(false)
            } else {
                parent.is_trusted && (parent.is_closed || hidden_names::is_own_folder(&folder))
            };
            let origin = if parent.origin == DirOrigin::Adopted {
                // Everything in a folder of a killed run is ours, and gets its mode again at the
                // end.
                atomic_file::make_writable(&folder).at("opening", path)?;
                DirOrigin::Adopted
            } else {
                DirOrigin::Existing
            };
            let (hidden, was_there) = (None, true);
            return Ok(MadeDir { folder, origin, is_trusted, hidden, was_there });
        }
        let renames = !must_not_rename(parent);
        let mut made = if renames && (is_marked || !is_plain) {
            self.make_hidden(parent, target, source)?
        } else {
            // No other user may look in before it has its owner and mode.
            mkdirat(&parent.target, target, Mode::RWXU).at(Action::Creating, path)?;
            let folder = open_folder(&parent.target, target).at("opening", path)?;
            let (from, to) = (source.as_fd(), folder.as_fd());
            attributes::open_to_others(&self.context.settings, from, to, parent.inherited);
            let origin = if renames { DirOrigin::Fresh } else { DirOrigin::Named };
            let (is_trusted, hidden, was_there) = (parent.is_trusted, None, false);
            MadeDir { folder, origin, is_trusted, hidden, was_there }
        };
        if is_marked {
            let marked = self.mark(&made.folder, source, true).inspect_err(|_| {
                self.unmake(parent, &made);
            });
            made.is_trusted = marked.at(Action::Creating, path)?;
        }
        Ok(made)
    }

    /// Opens the folder with the name of a copy; `None` if the name is free.
    fn existing(&self, parent: &DirPair, target: &CStr) -> Result<Option<OwnedFd>> {
        let settings = &self.context.settings;
        let needs_attributes =
            settings.preserve.changes_folders() || settings.resume || settings.delete;
        let path = || parent.target_path(target);
        match open_unlisted(&parent.target, target, false, needs_attributes) {
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                Err(Errno::NOTDIR).at(Action::ReplacingByFolder, path)
            }
            opened => opened.map(Some).at("opening", path),
        }
    }

    /// Returns the target of a folder in a dry run: its parent stands for one that would be made.
    fn would_make(&self, parent: &DirPair, target: &CStr) -> Result<MadeDir> {
        let found = match parent.origin {
            DirOrigin::Existing => self.existing(parent, target)?,
            _ => None,
        };
        let was_there = found.is_some();
        let (folder, origin) = match found {
            Some(found) => (found, DirOrigin::Existing),
            None => {
                let parent_itself = parent.target.as_fd().try_clone_to_owned();
                let path = || parent.target_path(target);
                (parent_itself.at("opening", path)?, DirOrigin::Fresh)
            }
        };
        Ok(MadeDir { folder, origin, is_trusted: false, hidden: None, was_there })
    }

    /// Removes a new folder with a hidden name, which is still empty, as nothing is copied to it.
    fn unmake(&self, parent: &DirPair, made: &MadeDir) {
        if let Some(hidden) = made.hidden.as_ref().filter(|_| made.origin == DirOrigin::Fresh) {
            // If it cannot be removed, the next run removes it.
            let _ = unlinkat(&parent.target, hidden, AtFlags::REMOVEDIR);
            self.context.hidden_names.give_back(&parent.target, hidden);
        }
    }

    /// Marks the target of a source, and returns whether everything in it was written in this
    /// mount epoch.
    fn mark(&self, folder: &OwnedFd, source: &OwnedFd, always: bool) -> Result<bool, Errno> {
        marker::set(folder, source, self.context.boot.as_deref(), always)
    }

    /// Makes the target of a folder under a hidden name, or resumes that of a killed run.
    fn make_hidden(&self, parent: &DirPair, target: &CStr, source: &OwnedFd) -> Result<MadeDir> {
        let path = || parent.target_path(target);
        let names = &self.context.hidden_names;
        let is_trusted = parent.is_trusted;
        let hidden = hidden_names::hidden(target, Some(identity(source)));
        if names.take_hidden(parent, &hidden) {
            let made = match mkdirat(&parent.target, &hidden, Mode::RWXU) {
                Err(Errno::EXIST) => self.adopt(parent, &hidden, source),
                made => {
                    made.at(Action::Creating, path)?;
                    match lock_made(parent, &hidden) {
                        Ok(folder) => Some((folder, DirOrigin::Fresh, false)),
                        Err(Errno::EXIST) => None,
                        Err(errno) => {
                            names.give_back(&parent.target, &hidden);
                            return Err(errno).at("opening", path);
                        }
                    }
                }
            };
            if let Some((folder, origin, was_there)) = made {
                let hidden = Some(hidden);
                return Ok(MadeDir { folder, origin, is_trusted, hidden, was_there });
            }
            names.give_back(&parent.target, &hidden);
        }
        // A live process uses it, or it is no leftover, or cannot be emptied.
        let claimed = hidden_names::claim(&parent.target, target, |hidden| {
            if !names.take_hidden(parent, hidden) {
                return Err(Errno::EXIST);
            }
            let made = mkdirat(&parent.target, hidden, Mode::RWXU)
                .and_then(|()| lock_made(parent, hidden));
            made.inspect_err(|_| names.give_back(&parent.target, hidden))
        });
        let (folder, hidden) = claimed.at(Action::Creating, path)?;
        let (origin, hidden, was_there) = (DirOrigin::Fresh, Some(hidden), false);
        Ok(MadeDir { folder, origin, is_trusted, hidden, was_there })
    }

    /// Opens the leftover of a killed run with a hidden name; `None` if it is not of this user, or
    /// another process uses it.
    fn adopt(
        &self,
        parent: &DirPair,
        hidden: &CStr,
        source: &OwnedFd,
    ) -> Option<(OwnedFd, DirOrigin, bool)> {
        let settings = &self.context.settings;
        let folder = open_folder(&parent.target, hidden).ok()?;
        let is_left = merge::is_left_folder(settings, &folder, &parent.target, hidden)
            && atomic_file::try_lock(&folder, &parent.target, hidden);
        // A part in it would be mistaken for a copy once the folder has its final name.
        let origin = is_left.then(|| merge::prune(settings, source, &folder))?.ok()?;
        // The process may have been killed before it could mark the folder.
        hidden_names::mark(&folder, hidden);
        Some((folder, origin, true))
    }

    /// Takes the name of an entry if it has the form of a hidden one, and removes the leftover of a
    /// killed run that has it.
    ///
    /// # Errors
    ///
    /// `EEXIST` if this run or another process uses it as a hidden name.
    pub(crate) fn take_name(&self, parent: &DirPair, entry: &SourceEntry) -> Result<()> {
        let (context, name) = (self.context, entry.target());
        if !hidden_names::is_hidden(name) || context.settings.dry_run {
            return Ok(());
        }
        let is_free = context.hidden_names.take(&parent.target, name, NameUse::Entry)
            && (parent.origin == DirOrigin::Fresh
                || merge::clear_name(&context.settings, &parent.target, name));
        if is_free {
            Ok(())
        } else {
            Err(Errno::EXIST).at(Action::Creating, || parent.target_path(name))
        }
    }

    /// Returns the attributes that new entries inherit from the target of a folder.
    fn inherited(&self, parent: &DirPair, made: &MadeDir) -> InheritedAttrs {
        let found = if made.was_there {
            attributes::inherited::inherited(made.folder.as_fd())
        } else {
            // A new folder inherits the same as its parent.
            parent.inherited
        };
        let settings = &self.context.settings;
        let is_new = made.origin.is_new() && !settings.dry_run;
        if !is_new || !found.acl || !settings.preserve.keeps_mode() {
            return found;
        }
        // The copy is to have exactly the ACLs of the original.
        for name in [c"system.posix_acl_default", c"system.posix_acl_access"] {
            // The removal is tried once more at the end.
            if remove_attribute(&made.folder, name).is_err() {
                return found;
            }
        }
        InheritedAttrs { acl: false, ..found }
    }

    /// Refuses to copy a folder onto itself, and remembers the folders of the copies.
    fn refuse_itself(
        &self,
        parent: &DirPair,
        entry: &SourceEntry,
        stat: &Stat,
        made: &MadeDir,
    ) -> Result<()> {
        self.prepare_for_twins(parent, entry, made);
        let is_top = parent.is_top() && !self.context.settings.dry_run;
        if made.origin == DirOrigin::Fresh && !is_top {
            return Ok(());
        }
        let path = || parent.target_path(entry.target());
        let target = fstat(&made.folder).at("looking at", path)?;
        // With -n nothing is written, so nothing is lost.
        let is_kept = self.context.settings.existing == ExistingFiles::Keep;
        let is_itself =
            made.origin == DirOrigin::Existing && FileId::of(&target) == FileId::of(stat);
        if is_itself && !is_kept {
            let from = parent.source_path(&entry.name);
            return Err(Overlap::SameFolder { from, to: path() }.into());
        }
        if is_top {
            lock(&self.context.made).push(FileId::of(&target));
            self.context.sole_folder.get_or_init(|| made.folder.try_clone().ok());
        }
        Ok(())
    }

    /// Refuses to copy a folder into itself, and to follow links in circles.
    fn refuse_circles(
        &self,
        parent: &Arc<DirPair>,
        entry: &SourceEntry,
        stat: &Stat,
    ) -> Result<()> {
        let own = FileId::of(stat);
        if lock(&self.context.made).contains(&own) {
            let from = parent.source_path(&entry.name);
            return Err(Overlap::IsTarget { from }.into());
        }
        let mut above = Some(parent).filter(|_| entry.follows);
        while let Some(folder) = above {
            if folder.stat.is_some_and(|stat| FileId::of(&stat) == own) {
                return Err(Errno::LOOP).at(Action::Following, || parent.source_path(&entry.name));
            }
            above = folder.parent.as_ref();
        }
        Ok(())
    }
}

/// Returns whether a new folder in this one must have its final name from the start. On FUSE a file
/// may be stored only after it was closed, and rclone then loses it if a folder above it has been
/// renamed; file systems on object stores copy each file for a rename, or refuse it.
fn must_not_rename(parent: &DirPair) -> bool {
    parent.system == FUSE || parent.origin != DirOrigin::Fresh && atomic_file::only_adds(parent)
}

/// Opens and locks a folder that was just made under a hidden name, and marks it.
///
/// # Errors
///
/// `EEXIST` if another process has claimed it as a leftover, and as openat(2).
fn lock_made(parent: &DirPair, hidden: &CStr) -> Result<OwnedFd, Errno> {
    // It is empty, so it can be removed; if that fails, the next run removes it.
    let remove = |_: &Errno| _ = unlinkat(&parent.target, hidden, AtFlags::REMOVEDIR);
    let folder = match open_folder(&parent.target, hidden) {
        Err(Errno::NOENT) => return Err(Errno::EXIST),
        opened => opened.inspect_err(remove)?,
    };
    if !atomic_file::lock_named(&folder, &parent.target, hidden).inspect_err(remove)? {
        return Err(Errno::EXIST);
    }
    hidden_names::mark(&folder, hidden);
    Ok(folder)
}

/// Returns the names that lead to a folder.
fn chain_of(parent: &DirPair, entry: &SourceEntry) -> PathChain {
    PathChain {
        parent: Some(Arc::clone(&parent.chain)),
        source: entry.name.clone(),
        target: entry.target().to_owned(),
        hidden: Mutex::default(),
        is_above: entry.only.is_some(),
    }
}
