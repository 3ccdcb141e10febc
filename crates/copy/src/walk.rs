//! From a folder to what is in it.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RawDir, Stat, StatxFlags, fremovexattr, fstat, mkdirat,
    openat, statx,
};
use rustix::io::Errno;

use underpass_engine::atomic_file;

use crate::crew::Task;
use crate::error::At;
use crate::error::{CopyError, Refusal};
use crate::folder::{Entry, Folder, Heritage, State, Trail};
use crate::names;
use crate::options::Follow;
use crate::worker::Worker;
use crate::{marker, metadata, system};
use underpass_engine::hint::Action;

/// A part of what is in a folder.
#[derive(Debug, Default)]
struct Listing {
    /// What is no folder, or may be none.
    files: Vec<Entry>,
    folders: Vec<Entry>,
    is_last: bool,
}

/// A target that was made or found.
struct Made {
    folder: OwnedFd,
    state: State,
    is_trusted: bool,
    hidden: Option<CString>,
}

impl Worker<'_> {
    /// Copies a folder: makes the new one, and leaves to all what is in it.
    pub(crate) fn enter(&mut self, parent: &Arc<Folder>, entry: &Entry) -> Result<(), CopyError> {
        let from = || parent.source_path(&entry.name);
        let nofollow = if entry.follows { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | nofollow;
        let source =
            openat(&parent.source, &entry.name, flags, Mode::empty()).at("opening", from)?;
        let stat = fstat(&source).at("looking at", from)?;
        self.refuse_circles(parent, entry, &stat)?;
        let device = parent.device.unwrap_or(stat.st_dev);
        let is_elsewhere = self.job.settings.one_file_system && device != stat.st_dev;
        let is_too_deep = self.is_too_deep(parent);
        let listing = match is_elsewhere || is_too_deep {
            true => Listing { is_last: true, ..Listing::default() },
            false => {
                let is_top = parent.trail_is_top();
                let below = |name: &CStr| path_below(parent, is_top, entry, name);
                self.list(&source, below).at(Action::Reading, from)?
            }
        };
        let is_plain = listing.is_last && listing.files.is_empty();
        let made = self.make(parent, entry, &source, is_plain)?;
        self.refuse_itself(parent, entry, &stat, &made)?;
        let heritage = self.heritage(parent, &made);
        let system = match made.state {
            State::Existing => system::name(&made.folder),
            _ => parent.system,
        };
        let trail = Trail {
            parent: Some(Arc::clone(&parent.trail)),
            source: entry.name.clone(),
            target: entry.target().to_owned(),
            hidden: Mutex::new(made.hidden),
        };
        parent.hold(false);
        let is_put_off = is_too_deep && !is_elsewhere;
        let folder = Arc::new(Folder {
            source,
            target: made.folder,
            trail: Arc::new(trail),
            parent: Some(Arc::clone(parent)),
            top: None,
            depth: parent.depth + 1,
            // Who copies its entries finishes it.
            stat: Some(stat).filter(|_| !is_put_off),
            state: made.state,
            is_trusted: made.is_trusted,
            system,
            device: Some(device),
            heritage,
            own: AtomicUsize::new(1),
            all: AtomicUsize::new(1),
        });
        self.totals.folders += 1;
        self.push(&folder, listing);
        let put_off = if is_put_off { self.put_off(&folder, &stat) } else { Ok(()) };
        self.job.release(&folder, true);
        put_off
    }

    /// Goes on with a listing, or begins with it.
    pub(crate) fn read(&mut self, folder: &Arc<Folder>) -> Result<(), CopyError> {
        let listing = self
            .list(&folder.source, |name| folder.path_below(name))
            .at(Action::Reading, || folder.source_path(c""))?;
        self.push(folder, listing);
        Ok(())
    }

    /// Puts a part of a listing on the stack, so that files come first, and the rest of the listing
    /// last.
    fn push(&self, folder: &Arc<Folder>, mut listing: Listing) {
        // On a disk that has to seek, files lie in the order of their numbers, more or less.
        listing.files.sort_unstable_by_key(|entry| entry.number);
        let mut tasks = Vec::new();
        if !listing.is_last {
            tasks.push(Task::Read(Arc::clone(folder)));
        }
        let folders = listing.folders.into_iter().rev();
        tasks.extend(folders.map(|entry| Task::Enter(Arc::clone(folder), entry)));
        let mut files = listing.files.into_iter();
        let mut batches = Vec::with_capacity(files.len().div_ceil(BATCH));
        while files.len() > 0 {
            // Not split off, which would leave each of them the room of all.
            let batch = files.by_ref().take(BATCH).collect();
            batches.push(Task::Entries(Arc::clone(folder), batch));
        }
        tasks.extend(batches.into_iter().rev());
        for task in &tasks {
            let (folder, is_own) = task.folder();
            folder.hold(is_own);
        }
        self.job.stack.push(tasks);
    }

    /// Reads the next part of a folder.
    fn list(
        &mut self,
        source: &OwnedFd,
        path_below: impl Fn(&CStr) -> Vec<u8>,
    ) -> Result<Listing, Errno> {
        let mut listing = Listing::default();
        let job = self.job;
        let settings = &job.settings;
        let follows = settings.follow == Follow::Always;
        let mut folder = RawDir::new(source, self.listing.spare_capacity_mut());
        let mut found = 0;
        loop {
            // What the kernel has handed over has to be taken; what it has not can wait.
            if found >= PART && folder.is_buffer_empty() {
                return Ok(listing);
            }
            let Some(next) = folder.next() else { break };
            let next = next?;
            let name = next.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            found += 1;
            let kind = next.file_type();
            if !settings.exclude.is_empty() {
                let is_folder = kind == FileType::Directory;
                let is_out = settings.exclude.iter().any(|pattern| match pattern.is_path() {
                    true => pattern.matches(&path_below(name), is_folder),
                    false => pattern.matches(name.to_bytes(), is_folder),
                });
                if is_out {
                    self.totals.excluded += 1;
                    continue;
                }
            }
            let (name, number) = (name.to_owned(), next.ino());
            let entry = Entry { name, new_name: None, kind, follows, number };
            match kind {
                FileType::Directory => listing.folders.push(entry),
                _ => listing.files.push(entry),
            }
        }
        listing.is_last = true;
        Ok(listing)
    }

    /// Makes the target of a folder, or finds it.
    fn make(
        &self,
        parent: &Folder,
        entry: &Entry,
        source: &OwnedFd,
        is_plain: bool,
    ) -> Result<Made, CopyError> {
        let target = entry.target();
        let path = || parent.target_path(target);
        let open = |name: &CStr| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent.target, name, flags, Mode::empty())
        };
        if self.job.settings.dry_run {
            let (folder, state) =
                match open(target).ok().filter(|_| parent.state == State::Existing) {
                    Some(found) => (found, State::Existing),
                    None => (
                        parent.target.as_fd().try_clone_to_owned().at("opening", path)?,
                        State::Fresh,
                    ),
                };
            return Ok(Made { folder, state, is_trusted: false, hidden: None });
        }
        let is_marked = self.job.settings.resume && parent.trail_is_top();
        if parent.state != State::Fresh {
            match open(target) {
                Ok(folder) => {
                    let is_trusted = match is_marked {
                        // One that cannot be marked is one whose files are compared.
                        true => self.mark(&folder, source, false).unwrap_or(false),
                        false => parent.is_trusted,
                    };
                    // In what a killed run has left, everything is ours.
                    return Ok(Made { folder, state: parent.state, is_trusted, hidden: None });
                }
                Err(Errno::NOENT) => {}
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return Err(Errno::NOTDIR).at(Action::ReplacingByFolder, path);
                }
                Err(errno) => return Err(errno).at("opening", path),
            }
        }
        // Nobody else is to look in before it has its owner and mode.
        let mode = Mode::RWXU;
        let is_trusted = parent.is_trusted;
        if (is_plain && !is_marked) || self.job.settings.in_place {
            mkdirat(&parent.target, target, mode).at(Action::Creating, path)?;
            let folder = open(target).at("opening", path)?;
            return Ok(Made { folder, state: State::Fresh, is_trusted, hidden: None });
        }
        let (folder, state, hidden) = self.make_hidden(parent, target, source)?;
        let is_trusted = match is_marked {
            true => self.mark(&folder, source, true).at(Action::Creating, path)?,
            false => is_trusted,
        };
        Ok(Made { folder, state, is_trusted, hidden: Some(hidden) })
    }

    /// Marks a folder that was named; returns whether everything in it was written in this session.
    fn mark(&self, folder: &OwnedFd, source: &OwnedFd, always: bool) -> Result<bool, Errno> {
        marker::set(folder, source, self.job.boot.as_deref(), always)
    }

    /// Makes the target of a folder under a name that it has until its own entries are whole, or
    /// goes on with what a killed run has left.
    fn make_hidden(
        &self,
        parent: &Folder,
        target: &CStr,
        source: &OwnedFd,
    ) -> Result<(OwnedFd, State, CString), CopyError> {
        let path = || parent.target_path(target);
        let mode = Mode::RWXU;
        let open = |name: &CStr| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&parent.target, name, flags, Mode::empty())
        };
        let hidden = names::hidden(target, Some(identity(source)));
        let state = match mkdirat(&parent.target, &hidden, mode) {
            Err(Errno::EXIST) => State::Adopted,
            made => made.map(|()| State::Fresh).at(Action::Creating, path)?,
        };
        let opened = open(&hidden);
        if let Ok(folder) = &opened
            && self.is_ours(parent, folder, &hidden)
        {
            let folder = opened.at("opening", path)?;
            return Ok((folder, state, hidden));
        }
        // Another process is at it, which is alive.
        let claimed = names::claim(target, |hidden| {
            mkdirat(&parent.target, hidden, mode)?;
            let folder = open(hidden)?;
            // Whoever sweeps up may have taken it for a dead one's before it was locked.
            let is_ours = atomic_file::take(&folder, &parent.target, hidden);
            is_ours.then_some(folder).ok_or(Errno::EXIST)
        });
        let (folder, hidden) = claimed.at(Action::Creating, path)?;
        Ok((folder, State::Fresh, hidden))
    }

    /// Whether a hidden folder is one of this user's, at which nobody else is.
    fn is_ours(&self, parent: &Folder, folder: &OwnedFd, hidden: &CStr) -> bool {
        let (owner, _) = self.job.settings.owner;
        fstat(folder).is_ok_and(|stat| stat.st_uid == owner)
            && atomic_file::take(folder, &parent.target, hidden)
    }

    /// What entries of a folder get from it.
    fn heritage(&self, parent: &Folder, made: &Made) -> Heritage {
        match made.state {
            State::Existing => metadata::heritage(made.folder.as_fd()),
            // As the one above, unless exactly what the original has is to be kept.
            _ if parent.heritage.acl && self.job.settings.preserve => {
                for name in [c"system.posix_acl_default", c"system.posix_acl_access"] {
                    let _ = fremovexattr(&made.folder, name);
                }
                Heritage { acl: false, ..parent.heritage }
            }
            _ => parent.heritage,
        }
    }

    /// Refuses to copy a folder onto itself, and remembers where copies are.
    fn refuse_itself(
        &self,
        parent: &Folder,
        entry: &Entry,
        stat: &Stat,
        made: &Made,
    ) -> Result<(), CopyError> {
        let is_top = parent.trail_is_top() && !self.job.settings.dry_run;
        if made.state == State::Fresh && !is_top {
            return Ok(());
        }
        let path = || parent.target_path(entry.target());
        let target = fstat(&made.folder).at("looking at", path)?;
        if made.state == State::Existing
            && (target.st_dev, target.st_ino) == (stat.st_dev, stat.st_ino)
        {
            let from = parent.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::SameFolder { from, to: path() }));
        }
        if is_top {
            let mut made = self.job.made.lock().unwrap_or_else(PoisonError::into_inner);
            made.push((target.st_dev, target.st_ino));
        }
        Ok(())
    }

    /// Refuses to copy a folder into itself, and to follow links in circles.
    fn refuse_circles(
        &self,
        parent: &Arc<Folder>,
        entry: &Entry,
        stat: &Stat,
    ) -> Result<(), CopyError> {
        let own = (stat.st_dev, stat.st_ino);
        let made = self.job.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.contains(&own) {
            let from = parent.source_path(&entry.name);
            return Err(CopyError::Refused(Refusal::IsTarget { from }));
        }
        drop(made);
        let mut above = Some(parent).filter(|_| entry.follows);
        while let Some(folder) = above {
            if folder.stat.is_some_and(|stat| (stat.st_dev, stat.st_ino) == own) {
                return Err(Errno::LOOP).at(Action::Following, || parent.source_path(&entry.name));
            }
            above = folder.parent.as_ref();
        }
        Ok(())
    }
}

impl Folder {
    /// Whether it is the one in which what was named is put.
    fn trail_is_top(&self) -> bool {
        self.trail.parent.is_none()
    }
}

/// What a folder is known by, so that nobody goes on with the copy of another one. A number may be
/// given away again, but not together with the time at which it was made.
pub(crate) fn identity(source: &OwnedFd) -> u32 {
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let facts = match statx(source, c"", AtFlags::EMPTY_PATH, wanted) {
        Ok(known) => format!(
            "{}:{}:{}:{}.{}",
            known.stx_dev_major,
            known.stx_dev_minor,
            known.stx_ino,
            known.stx_btime.tv_sec,
            known.stx_btime.tv_nsec
        ),
        // A kernel or a filter without the call.
        Err(_) => fstat(source)
            .map_or_else(|_| String::new(), |stat| format!("{}:{}", stat.st_dev, stat.st_ino)),
    };
    atomic_file::fingerprint(facts.as_bytes()) as u32
}

/// The path of something in the folder `of`, below what was named.
fn path_below(parent: &Folder, is_top: bool, of: &Entry, name: &CStr) -> Vec<u8> {
    if is_top {
        return name.to_bytes().to_vec();
    }
    [&parent.path_below(&of.name), b"/".as_slice(), name.to_bytes()].concat()
}

/// Entries that are handed to a thread at a time.
const BATCH: usize = 32;

/// Entries of a folder that are in memory at a time, give or take a buffer.
const PART: usize = 4096;
