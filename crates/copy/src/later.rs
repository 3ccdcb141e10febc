//! Trees with more levels than descriptors: a folder that lies too deep is made, and its entries are
//! copied when all others are, from a path that is opened anew.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::crew::Task;
use crate::error::At;
use crate::error::CopyError;
use crate::folder::{Folder, Heritage, State, Trail};
use crate::metadata;
use crate::options::Follow;
use crate::worker::Worker;

/// A folder whose entries are still to be copied, without its descriptors.
#[derive(Debug)]
pub(crate) struct Later {
    /// Where the trail begins.
    pub(crate) top: Arc<Folder>,
    trail: Arc<Trail>,
    stat: Stat,
    /// Device and number of the target.
    target: (u64, u64),
    state: State,
    is_trusted: bool,
    system: &'static str,
    device: Option<u64>,
}

impl Worker<'_> {
    /// Whether the entries of a folder in this one have to wait. Where links are followed they do
    /// not, for circles are found by the folders above; nor in a dry run, which makes no folders.
    pub(crate) fn is_too_deep(&self, parent: &Folder) -> bool {
        let settings = &self.job.settings;
        parent.depth >= self.job.levels && settings.follow != Follow::Always && !settings.dry_run
    }

    /// Leaves the entries of a folder that was made for later.
    pub(crate) fn put_off(&self, folder: &Folder, stat: &Stat) -> Result<(), CopyError> {
        let mut top = folder.parent.as_ref();
        while let Some(above) = top.and_then(|top| top.parent.as_ref()) {
            top = Some(above);
        }
        let Some(top) = top.map(|top| Arc::clone(top.top.as_ref().unwrap_or(top))) else {
            return Ok(());
        };
        let target = fstat(&folder.target).at("looking at", || folder.target_path(c""))?;
        // It has its name already: what is in it may be a part of an earlier run.
        let state = match folder.state {
            State::Fresh => State::Adopted,
            state => state,
        };
        top.hold(false);
        self.job.stack.push_last(Task::Later(Box::new(Later {
            top,
            trail: Arc::clone(&folder.trail),
            stat: *stat,
            target: (target.st_dev, target.st_ino),
            state,
            is_trusted: folder.is_trusted,
            system: folder.system,
            device: folder.device,
        })));
        Ok(())
    }

    /// Copies what is in such a folder.
    pub(crate) fn go_on(&mut self, later: &Later) -> Result<(), CopyError> {
        let trail = &later.trail;
        let from = || trail.path(|trail| Some(trail.source.clone()));
        let to = || trail.path(|trail| Some(trail.target.clone()));
        let source = open(&later.top.source, &trail.sources(), true).at("opening", from)?;
        same(&source, (later.stat.st_dev, later.stat.st_ino), from)?;
        let target = open(&later.top.target, &trail.names(), false).at("opening", to)?;
        same(&target, later.target, to)?;
        let heritage = match later.state {
            State::Existing => metadata::heritage(target.as_fd()),
            _ if self.job.settings.preserve => Heritage::default(),
            _ => metadata::heritage(target.as_fd()),
        };
        let folder = Arc::new(Folder {
            source,
            target,
            trail: Arc::clone(trail),
            parent: None,
            top: Some(Arc::clone(&later.top)),
            depth: 0,
            stat: Some(later.stat),
            state: later.state,
            is_trusted: later.is_trusted,
            system: later.system,
            device: later.device,
            heritage,
            own: AtomicUsize::new(1),
            all: AtomicUsize::new(1),
        });
        let listed = self.read(&folder);
        self.job.release(&folder, true);
        listed
    }
}

/// Opens a folder, one name after the other; the first name of a source may be that of a link.
fn open(top: &OwnedFd, names: &[impl AsRef<CStr>], is_source: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(top, c".", flags | OFlags::PATH, Mode::empty())?;
    for (index, name) in names.iter().enumerate() {
        let path = if index + 1 == names.len() { OFlags::RDONLY } else { OFlags::PATH };
        let follow = if is_source && index == 0 { OFlags::empty() } else { OFlags::NOFOLLOW };
        at = openat(&at, name.as_ref(), flags | path | follow, Mode::empty())?;
    }
    Ok(at)
}

/// Refuses a folder that has taken the place of the one that was there.
fn same(folder: &OwnedFd, wanted: (u64, u64), path: impl Fn() -> PathBuf) -> Result<(), CopyError> {
    let found = fstat(folder).at("looking at", &path)?;
    match (found.st_dev, found.st_ino) == wanted {
        true => Ok(()),
        false => Err(Errno::STALE).at("going on with", path),
    }
}

/// How many levels of a tree may be open at a time and how many threads there are, with so many
/// descriptors.
pub(crate) fn levels(descriptors: u64, jobs: usize) -> (usize, usize) {
    let free = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(OTHERS);
    let jobs = jobs.min(free / LEAST).max(1);
    let levels = (free / jobs).saturating_sub(AT_WORK) / 2;
    (levels.max(2), jobs)
}

/// Descriptors that the process has anyway.
const OTHERS: usize = 32;

/// Descriptors that a thread is worth.
const LEAST: usize = 32;

/// Descriptors that a thread needs for what it is at.
const AT_WORK: usize = 10;
