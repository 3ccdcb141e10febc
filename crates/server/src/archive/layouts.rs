//! Keeps the layouts of archives: each is made once for all simultaneous requests, and kept for a
//! while in case a client requests many ranges.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;
use underpass_engine::{FileId, Version};

use crate::archive::{ArchiveError, ArchiveFormat, Layout};
use crate::files::open_files::LIFETIME;
use crate::server::limits::batches::Batches;
use crate::server::limits::client_budget::{ClientBudget, Reservation};
use crate::server::limits::disk_queue::DiskQueue;
use underpass_protocol::request::ClientNet;

/// The folder and format of a layout, the names that it is limited to, and the user whose rights it
/// reflects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LayoutKey {
    /// The number of the site.
    pub(crate) site: u64,
    pub(crate) folder: FileId,
    pub(crate) path: Vec<u8>,
    pub(crate) user: Option<Arc<str>>,
    pub(crate) format: ArchiveFormat,
    /// The names in the folder that are archived; `None` for all of them.
    pub(crate) only: Option<ChosenNames>,
}

/// Sorted names in a folder, in one piece of memory: there may be hundreds of thousands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChosenNames(Arc<[u8]>);

impl ChosenNames {
    /// Joins sorted names, none of which contains a NUL.
    pub(crate) fn of<T: Borrow<[u8]>>(names: &[T]) -> Self {
        Self(names.join(&0).into())
    }

    /// Returns the names.
    pub(crate) fn to_vec(&self) -> Vec<Vec<u8>> {
        self.0.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
    }
}

impl LayoutKey {
    /// Returns the key of an open folder at a path of a site.
    pub(crate) fn of(
        folder: impl AsFd,
        site: u64,
        path: &[u8],
        user: Option<&Arc<str>>,
        format: ArchiveFormat,
        only: Option<ChosenNames>,
    ) -> Self {
        // statx(2) of an open folder succeeds, or else the walk fails too and reports the error.
        let folder = Version::in_memory(folder).map(|now| now.file()).unwrap_or_default();
        Self { site, folder, path: path.to_vec(), user: user.cloned(), format, only }
    }

    /// Returns the number of bytes that the names take.
    pub(crate) fn memory(&self) -> usize {
        self.only.as_ref().map_or(0, |names| names.0.len())
    }
}

/// A layout and its folder.
#[derive(Debug)]
pub(crate) struct FolderLayout {
    pub(crate) layout: Arc<Layout>,
    pub(crate) folder: Arc<OwnedFd>,
    /// Whether a transfer of it broke off: its client may have read bytes of a file that changed
    /// during the transfer.
    is_broken: AtomicBool,
    /// The change counter of the [`Layouts`].
    changes: Arc<AtomicU64>,
    _held: Reservation,
}

impl FolderLayout {
    /// Records that a transfer of it broke off: no later request gets this layout, nor the result
    /// of a walk that began before.
    pub(crate) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Returns whether it can be sent in place of a later one.
    fn is_same(&self, later: &Self) -> bool {
        self.layout.etag() == later.layout.etag() && !self.is_broken()
    }
}

/// The result of laying out a folder.
pub(crate) type LayoutResult = Result<Arc<FolderLayout>, Arc<ArchiveError>>;

/// The layouts that are being made, were made recently, or are being sent.
#[derive(Debug)]
pub(crate) struct Layouts {
    pub(crate) batches: Batches<LayoutKey, LayoutResult>,
    pub(crate) queue: Arc<DiskQueue>,
    pub(crate) memory: Arc<ClientBudget>,
    /// The files that archives have open while they are sent.
    files: Arc<ClientBudget>,
    kept: Mutex<HashMap<LayoutKey, CachedLayout>>,
    /// Counts how often all layouts were forgotten or a transfer broke off.
    changes: Arc<AtomicU64>,
}

/// The requests that a layout is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LayoutUse {
    /// One that wants the whole archive.
    Whole,
    /// One that wants ranges of it.
    Range,
    /// Any that wait for it.
    Either,
}

#[derive(Debug)]
struct CachedLayout {
    made: Instant,
    /// The number of changes before the walk.
    changes: u64,
    /// The time that the walk took.
    cost: Duration,
    /// The layout for later requests.
    fresh: Option<Arc<FolderLayout>>,
    /// The layout while it is being sent: a later walk with the same result shares its memory.
    used: Weak<FolderLayout>,
}

impl Layouts {
    /// Creates an empty store for archives of up to `max_members`, sent over up to
    /// `max_connections`. There is one descriptor for a file to every two connections, and archives
    /// may use half of them.
    pub(crate) fn new(max_members: usize, max_connections: usize) -> Self {
        let files = (max_connections as u64 / 4).max(2 * MIN_FILES);
        let share = (max_members as u64).saturating_mul(MEMBER_BYTES).max(MEMORY / 2);
        let max = share.saturating_add(share / 2).max(MEMORY);
        Self {
            batches: Batches::default(),
            queue: DiskQueue::new("archive", THREADS, MAX_WAITING),
            memory: ClientBudget::new(max, share),
            files: ClientBudget::new(files, files / 2),
            kept: Mutex::default(),
            changes: Arc::default(),
        }
    }

    /// Returns the archive of a folder, if it was laid out recently. A file that was changed since
    /// then aborts the transfer, so a response cannot mix two versions. If a walk is cheap, only
    /// ranges get an earlier layout, since they continue the version that their client has.
    /// A range may continue a response that broke off, whose client may have read bytes of a file
    /// that changed during the transfer. So a range causes a new walk, which computes the ETag
    /// again, if a transfer of the layout broke off or is still under way.
    pub(crate) fn get(&self, key: &LayoutKey, usage: LayoutUse) -> Option<Arc<FolderLayout>> {
        let kept = lock(&self.kept);
        let lifetime = |kept: &CachedLayout| {
            if usage == LayoutUse::Range { LIFETIME } else { LIFETIME.min(kept.cost * WALKS_KEPT) }
        };
        let kept = kept.get(key).filter(|kept| kept.made.elapsed() < lifetime(kept))?;
        let kept = Some(kept).filter(|kept| kept.changes == self.changes())?;
        let fresh = kept.fresh.as_ref().filter(|fresh| !fresh.is_broken())?;
        // The cache itself holds one reference.
        let is_sent = Arc::strong_count(fresh) > 1;
        (usage == LayoutUse::Whole || !is_sent).then(|| Arc::clone(fresh))
    }

    /// Reserves descriptors for an archive; the more archives are being sent to a client, the fewer
    /// each gets. `None` if there are too many.
    pub(crate) fn reserve_files(&self, client: ClientNet) -> Option<Reservation> {
        let mut files = self.files.reserve(client);
        let wanted = (self.files.room(client) / DIVISOR).clamp(MIN_FILES, MAX_FILES);
        files.resize(wanted).then_some(files)
    }

    /// Forgets all layouts before the response to a change is sent, so that archives requested
    /// after it include the change.
    pub(crate) fn forget_all(&self) {
        let mut kept = lock(&self.kept);
        self.changes.fetch_add(1, Ordering::Relaxed);
        kept.values_mut().for_each(|kept| kept.fresh = None);
    }

    /// Returns the number of changes so far, for [`keep`](Self::keep).
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Gives back the memory of layouts that were not requested recently.
    pub(crate) fn expire(&self) {
        lock(&self.kept).retain(|_, kept| {
            if kept.made.elapsed() >= LIFETIME {
                kept.fresh = None;
            }
            kept.used.strong_count() > 0
        });
    }

    /// Returns the layout of an open folder, which is not kept yet.
    pub(crate) fn of(&self, layout: Layout, folder: OwnedFd, held: Reservation) -> FolderLayout {
        FolderLayout {
            layout: Arc::new(layout),
            folder: Arc::new(folder),
            is_broken: AtomicBool::new(false),
            changes: Arc::clone(&self.changes),
            _held: held,
        }
    }

    /// Keeps a layout, or returns the one with the same contents that is being sent. `changes` was
    /// the change counter before the folder was walked, at `began`: if it has grown since, later
    /// requests need another walk.
    pub(crate) fn keep(
        &self,
        key: &LayoutKey,
        laid_out: FolderLayout,
        changes: u64,
        began: Instant,
    ) -> Arc<FolderLayout> {
        let mut kept = lock(&self.kept);
        let used = kept.get(key).and_then(|kept| kept.used.upgrade());
        let laid_out = match used {
            Some(used) if used.is_same(&laid_out) => used,
            _ => Arc::new(laid_out),
        };
        let used = Arc::downgrade(&laid_out);
        let (made, cost) = (Instant::now(), began.elapsed());
        let fresh = (self.changes() == changes).then(|| Arc::clone(&laid_out));
        // Each layout holds a descriptor.
        kept.retain(|_, kept| kept.fresh.is_some() || kept.used.strong_count() > 0);
        if kept.values().filter(|kept| kept.fresh.is_some()).count() >= MAX_FRESH {
            let fresh = kept.values_mut().filter(|kept| kept.fresh.is_some());
            fresh.min_by_key(|kept| kept.made).into_iter().for_each(|oldest| oldest.fresh = None);
        }
        kept.insert(key.clone(), CachedLayout { made, changes, cost, fresh, used });
        laid_out
    }
}

/// A layout is kept for whole archives this many times as long as its walk took.
const WALKS_KEPT: u32 = 10;

/// The maximum number of layouts that are kept for later requests.
const MAX_FRESH: usize = 64;

/// The number of folders that are walked at once.
const THREADS: usize = 2;

/// The maximum number of folders that wait to be walked.
const MAX_WAITING: usize = 64;

/// The maximum number of bytes of all layouts kept or sent, unless those of one client may need
/// more than two thirds of it.
const MEMORY: u64 = 512 << 20;

/// The bytes of a member with a name of 255 bytes and a short link, or with an ordinary name twice.
const MEMBER_BYTES: u64 = 320;

/// The minimum number of files that an archive may have open: one that is sent, and one that the
/// client still has to read.
const MIN_FILES: u64 = 2;

/// The maximum number of files that an archive has open at once.
const MAX_FILES: u64 = 128;

/// Another archive may have open one eighth of the files that are left.
const DIVISOR: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use underpass_protocol::archive::Builder;

    fn key(name: &str) -> LayoutKey {
        let folder = std::fs::File::open("/").unwrap();
        LayoutKey::of(&folder, 0, name.as_bytes(), None, ArchiveFormat::Tar, None)
    }

    /// Lays out an empty folder by a walk that began at this number of changes.
    fn keep(layouts: &Layouts, name: &str, changes: u64) -> (LayoutKey, Arc<FolderLayout>) {
        let (folder, key) = (std::fs::File::open("/").unwrap(), key(name));
        let held = layouts.memory.reserve(ClientNet::of(None));
        let layout = Builder::new(ArchiveFormat::Tar, b"").finish();
        let laid_out = layouts.of(layout, folder.into(), held);
        let began = Instant::now() - LIFETIME;
        let kept = layouts.keep(&key, laid_out, changes, began);
        (key, kept)
    }

    #[test]
    fn no_walk_that_began_before_a_transfer_broke_off_continues_it() {
        let layouts = Layouts::new(1, 100);
        let (_, broken) = keep(&layouts, "folder", 0);
        // One walk ends before the transfer breaks off, the other one later.
        drop(keep(&layouts, "ended", 0));
        broken.break_off();
        drop(keep(&layouts, "folder", 0));
        for name in ["folder", "ended"] {
            assert!(layouts.get(&key(name), LayoutUse::Range).is_none(), "{name}");
        }
        let (key, _) = keep(&layouts, "folder", layouts.changes());
        assert!(layouts.get(&key, LayoutUse::Range).is_some());
    }

    #[test]
    fn few_unused_layouts_keep_a_descriptor() {
        let layouts = Layouts::new(1, 100);
        let keys: Vec<_> =
            (0..MAX_FRESH + 9).map(|at| keep(&layouts, &at.to_string(), 0).0).collect();
        let kept: Vec<_> =
            keys.iter().map(|key| layouts.get(key, LayoutUse::Range).is_some()).collect();
        assert_eq!(kept.iter().filter(|is_kept| **is_kept).count(), MAX_FRESH);
        assert!(kept.ends_with(&[true; 50]));
    }

    #[test]
    fn one_client_leaves_memory_to_others() {
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        for max_members in [1, 1_000_000, 50_000_000] {
            let layouts = Layouts::new(max_members, 100);
            let mut largest = layouts.memory.reserve(client(1));
            assert!(largest.resize(max_members as u64 * MEMBER_BYTES));
            let mut more = layouts.memory.reserve(client(1));
            assert!(more.resize(layouts.memory.room(client(1))));
            let room = layouts.memory.room(client(2));
            assert!(room >= MEMORY / 3, "{max_members}: {room}");
        }
    }
}
