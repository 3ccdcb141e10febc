//! Copies trees with more levels than descriptors: a folder that is too deep is created, and its
//! entries are copied after all others, when its path is opened again.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use underpass_engine::FileId;
use underpass_engine::hint::Action;

use crate::attributes;
use crate::attributes::inherited::InheritedAttrs;
use crate::error::{At, Result};
use crate::options::Follow;
use crate::tree::dir_pair::{DirOrigin, DirPair};
use crate::tree::path_chain::open_named;
use crate::tree::task::{DeferredDir, FolderTask};
use crate::worker::CopyWorker;

impl CopyWorker<'_> {
    /// Returns whether the entries of a folder in this one are deferred. They are not if links are
    /// followed, because the open folders above reveal loops, nor in a dry run, which makes no
    /// folders.
    pub(crate) fn is_too_deep(&self, parent: &DirPair) -> bool {
        let settings = &self.context.settings;
        parent.depth >= self.context.levels
            && settings.follow != Follow::Always
            && !settings.dry_run
    }

    /// Defers the entries of a folder that was made.
    pub(crate) fn defer(&self, folder: &DirPair, stat: &Stat) -> Result<()> {
        let mut top = folder.parent.as_ref();
        while let Some(above) = top.and_then(|top| top.parent.as_ref()) {
            top = Some(above);
        }
        let Some(top) = top.map(|top| Arc::clone(top.top.as_ref().unwrap_or(top))) else {
            return Ok(());
        };
        let target = fstat(&folder.target).at("looking at", || folder.target_path(c""))?;
        // It has its name already: its entries may be parts of an earlier run.
        let origin = match folder.origin {
            DirOrigin::Fresh => DirOrigin::Adopted,
            origin => origin,
        };
        top.hold(false);
        self.context.queue.push_last(FolderTask::Deferred(Box::new(DeferredDir {
            top,
            chain: Arc::clone(&folder.chain),
            stat: *stat,
            target: FileId::of(&target),
            origin,
            is_trusted: folder.is_trusted,
            is_closed: folder.is_closed,
            system: folder.system,
            device: folder.device,
        })));
        Ok(())
    }

    /// Copies the entries of a deferred folder.
    pub(crate) fn resume_deferred(&mut self, later: &DeferredDir) -> Result<()> {
        let chain = &later.chain;
        let from = || chain.path(|chain| Some(chain.source.clone()));
        let to = || chain.path(|chain| Some(chain.target.clone()));
        let source = open(&later.top.source, &chain.sources(), true).at("opening", from)?;
        same(&source, FileId::of(&later.stat), from)?;
        let target = open_named(|| open(&later.top.target, &chain.names(), false));
        let target = target.at("opening", to)?;
        same(&target, later.target, to)?;
        let inherited = match later.origin {
            DirOrigin::Existing => attributes::inherited::inherited(target.as_fd()),
            _ if self.context.settings.preserve.keeps_mode() => InheritedAttrs::default(),
            _ => attributes::inherited::inherited(target.as_fd()),
        };
        let folder = Arc::new(DirPair {
            source,
            target,
            chain: Arc::clone(chain),
            parent: None,
            top: Some(Arc::clone(&later.top)),
            depth: 0,
            stat: Some(later.stat),
            origin: later.origin,
            is_trusted: later.is_trusted,
            is_closed: later.is_closed,
            system: later.system,
            device: later.device,
            inherited,
            made: later.origin.nothing_made(),
            is_refused: AtomicBool::new(false),
            own: AtomicUsize::new(1),
            all: AtomicUsize::new(1),
        });
        let names = self.list(&folder.source).at(Action::Reading, from);
        let listed = names.map(|names| self.read(&folder, names));
        self.context.release(&folder, true);
        listed
    }
}

/// Opens a folder, one path component after the other. The first one of a source may be a link.
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

/// Refuses a folder with which another process has replaced the original one.
fn same(folder: &OwnedFd, wanted: FileId, path: impl Fn() -> PathBuf) -> Result<()> {
    let found = fstat(folder).at("looking at", &path)?;
    if FileId::of(&found) == wanted { Ok(()) } else { Err(Errno::STALE).at("going on with", path) }
}
