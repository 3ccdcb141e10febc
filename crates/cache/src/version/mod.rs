//! One version of an object: its file, the bytes that are present, and those being fetched.

mod active_fill;
mod state;

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate};
pub(crate) use state::ReadStep;
use state::{NO_RANGES_TIME, UNVALIDATED_TIME, VersionState};
use underpass_client::Response;
use underpass_client::download::interpret::{StrongValidator, lacks_validator};
use underpass_client::journal::{Journal, OpenPiece};
use underpass_engine::wait::lock;

use crate::error::{CacheError, CacheErrorKind};
use crate::pool::JobOwner;
use crate::ranges::RangeSet;
use crate::store::{HeldRoom, MAX_PAGE, StoredHead};

/// One version of an object.
#[derive(Debug)]
pub(crate) struct ObjectVersion {
    /// The bytes of the object, at their offsets.
    pub(crate) file: Arc<OwnedFd>,
    validator: Option<StrongValidator>,
    head: Mutex<Arc<StoredHead>>,
    /// `None` if the version is not stored, or no longer.
    journal: Mutex<Option<Arc<Journal<StoredHead>>>>,
    state: Mutex<VersionState>,
    /// Whether the journal lags behind the file.
    is_dirty: AtomicBool,
    /// Whether any of its bytes may be lost, because a sync has failed.
    is_lost: AtomicBool,
    /// The room of its bytes if it is not stored.
    held: Mutex<Vec<HeldRoom>>,
}

impl ObjectVersion {
    pub(crate) fn new(
        file: Arc<OwnedFd>,
        head: StoredHead,
        journal: Option<Journal<StoredHead>>,
        present: RangeSet,
    ) -> Self {
        let state = VersionState::new(head.size, present, head.validator.is_some());
        Self {
            file,
            validator: head.validator.clone(),
            head: Mutex::new(Arc::new(head)),
            journal: Mutex::new(journal.map(Arc::new)),
            state: Mutex::new(state),
            is_dirty: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
            held: Mutex::default(),
        }
    }

    /// Creates a version that is not stored: each client gets its range from the origin.
    pub(crate) fn relayed(file: Arc<OwnedFd>, head: StoredHead) -> Self {
        let version = Self::new(file, head, None, RangeSet::default());
        lock(&version.state).is_relayed = true;
        version
    }

    /// Holds the room of bytes that are not stored until nothing uses the version any more.
    pub(crate) fn hold(&self, room: HeldRoom) {
        lock(&self.held).push(room);
    }

    /// Returns whether it holds such room.
    pub(crate) fn holds_room(&self) -> bool {
        !lock(&self.held).is_empty()
    }

    /// Returns the validator of the version.
    pub(crate) fn validator(&self) -> Option<&StrongValidator> {
        self.validator.as_ref()
    }

    /// Returns whether another response can be proved to have the rest of it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.validator.is_some() && self.len().is_some()
    }

    /// Returns whether the version is kept despite this response: a 200 without a validator does not
    /// prove that the file has changed. If there is nothing else for [`UNVALIDATED_TIME`] from the
    /// first such response, it is what the origin has now.
    pub(crate) fn is_kept_despite(&self, response: &Response) -> bool {
        let head = self.head();
        let has_validator = ["etag", "last-modified"].iter().any(|name| head.field(name).is_some());
        if !has_validator || !lacks_validator(response) {
            return false;
        }
        let mut state = lock(&self.state);
        state.unvalidated_since.get_or_insert_with(Instant::now).elapsed() < UNVALIDATED_TIME
    }

    /// Returns the metadata of the object.
    pub(crate) fn head(&self) -> Arc<StoredHead> {
        Arc::clone(&lock(&self.head))
    }

    /// Returns the length, if known.
    pub(crate) fn len(&self) -> Option<u64> {
        lock(&self.state).len
    }

    /// Returns how many bytes of a range are present.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> u64 {
        lock(&self.state).present.count_in(range)
    }

    /// Returns how many bytes are present.
    pub(crate) fn count(&self) -> u64 {
        lock(&self.state).present.count()
    }

    /// Returns why no more bytes will arrive, if so.
    pub(crate) fn broken(&self) -> Option<CacheErrorKind> {
        lock(&self.state).broken
    }

    /// Returns whether it can answer requests: missing bytes are being fetched, or can be.
    pub(crate) fn is_servable(&self) -> bool {
        let state = lock(&self.state);
        let is_whole = state.len == Some(state.present.count());
        let may_go_on = self.validator.is_some() && state.len.is_some();
        state.broken.is_none() && (may_go_on || is_whole || !state.fills.is_empty())
    }

    /// Returns whether a fill is running or waiting for a thread.
    pub(crate) fn is_filling(&self) -> bool {
        !lock(&self.state).fills.is_empty()
    }

    /// Returns whether it is read or filled.
    pub(crate) fn is_busy(&self) -> bool {
        lock(&self.state).is_busy()
    }

    /// Returns the number of readers.
    pub(crate) fn readers(&self) -> usize {
        lock(&self.state).readers.len()
    }

    /// Returns whether a reader reads the bytes of a fill, or will next.
    pub(crate) fn is_read(&self, fill: u64) -> bool {
        lock(&self.state).is_read(fill)
    }

    /// Returns whether a reader waits for a fill to end, so that its own can begin.
    pub(crate) fn is_crowded(&self) -> bool {
        lock(&self.state).is_crowded()
    }

    /// Adds a reader of a client; returns its number. All bytes of the file are kept until the
    /// reader leaves, unless [`pin`](Self::pin) limits its range.
    pub(crate) fn enter(&self, client: Option<IpAddr>) -> u64 {
        lock(&self.state).enter(client)
    }

    /// Limits a reader to these bytes from now on.
    pub(crate) fn pin(&self, reader: u64, range: &Range<u64>) {
        if let Some(reader) = lock(&self.state).reader(reader) {
            reader.pin.clone_from(range);
        }
    }

    /// Removes a reader.
    pub(crate) fn leave(&self, reader: u64) {
        lock(&self.state).leave(reader);
    }

    /// Returns whether a range of the file must stay, because it is being read or filled.
    pub(crate) fn is_pinned(&self, range: &Range<u64>) -> bool {
        let state = lock(&self.state);
        if state.has_one_fill() {
            // No part could be fetched again.
            state.is_busy()
        } else {
            state.is_pinned(range)
        }
    }

    /// Removes a range from the file, which frees its space, unless the range is pinned by now.
    ///
    /// A hole reads as zeros. The bytes are therefore marked as missing before the hole is punched,
    /// under the lock under which readers are added: present readers read other bytes, and later
    /// ones wait until these bytes have been fetched again.
    ///
    /// # Errors
    ///
    /// If the range may still be in the journal or in the file: the whole file must be removed.
    pub(crate) fn evict(&self, range: &Range<u64>) -> io::Result<Eviction> {
        let (removed, is_empty) = {
            let mut state = lock(&self.state);
            if state.has_one_fill() {
                return Ok(if state.is_busy() { Eviction::Pinned } else { Eviction::Useless });
            }
            if state.is_pinned(range) {
                return Ok(Eviction::Pinned);
            }
            let removed: Vec<_> = state.present.within(range).collect();
            state.present.remove(range);
            state.leaving = Some(range.clone());
            (removed, state.present.count() == 0)
        };
        let outcome = self.punch(range);
        {
            let mut state = lock(&self.state);
            state.leaving = None;
            let is_unchanged = match &outcome {
                Ok(is_punched) => !is_punched,
                Err(error) => error.kind() == io::ErrorKind::ReadOnlyFilesystem,
            };
            if is_unchanged {
                removed.into_iter().for_each(|part| state.present.add(part));
            }
        }
        self.wake();
        outcome.map(
            |is_punched| {
                if is_punched && !is_empty { Eviction::Removed } else { Eviction::Useless }
            },
        )
    }

    /// Punches a hole; returns `false` if the version is no longer stored, so that the journal on
    /// the disk is that of another one.
    fn punch(&self, range: &Range<u64>) -> io::Result<bool> {
        let Some(journal) = self.journal() else { return Ok(false) };
        // A journal that survives a power failure must not list a hole as data.
        if let Err(error) = journal.forget(range) {
            return if self.is_stored() { Err(error) } else { Ok(false) };
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The kernel would zero part of a page, which may be on its way to a client.
        let end = range.end.next_multiple_of(MAX_PAGE);
        fallocate(&self.file, flags, range.start, end - range.start)?;
        Ok(true)
    }

    /// Decides the next step of a reader at the offset `at`, which reads up to `end`. `permit` is
    /// called to obtain the permit for a fill.
    pub(crate) fn step<P>(
        &self,
        reader: u64,
        at: u64,
        end: u64,
        waker: &Waker,
        permit: impl FnOnce() -> Poll<Result<P, CacheError>>,
    ) -> ReadStep<P> {
        lock(&self.state).step(reader, at, end, waker, permit)
    }

    /// Registers a fill of a client; returns its number.
    pub(crate) fn begin_fill(&self, at: u64, end: Option<u64>, owner: &JobOwner) -> u64 {
        lock(&self.state).begin(at, end, owner)
    }

    /// Returns the owner of this fill.
    pub(crate) fn owner_of(&self, fill: u64) -> JobOwner {
        let state = lock(&self.state);
        let fill = state.fills.iter().find(|known| known.id == fill);
        fill.map(|fill| fill.owner.clone()).unwrap_or_default()
    }

    /// Returns how long the fills that bring a byte have all been waiting for a thread; `None` if
    /// there are none.
    pub(crate) fn queued_for(&self, at: u64) -> Option<Duration> {
        lock(&self.state).queued_for(at)
    }

    /// Records that the bytes of a range have arrived, and wakes readers. Returns those that no
    /// other fill had brought before.
    pub(crate) fn arrived(&self, id: u64, range: Range<u64>) -> Vec<Range<u64>> {
        let (new, wakers) = {
            let mut state = lock(&self.state);
            if let Some(fill) = state.fills.iter_mut().find(|fill| fill.id == id) {
                fill.at = fill.at.max(range.end);
            }
            let new = state.present.missing_in(&range);
            state.present.add(range);
            state.unvalidated_since = None;
            (new, state.take_wakers())
        };
        self.is_dirty.store(true, Ordering::Relaxed);
        wakers.into_iter().for_each(Waker::wake);
        new
    }

    /// Records in the journal up to which offset a piece is present.
    pub(crate) fn record_progress(&self, piece: &mut OpenPiece, end: u64) {
        if let Some(journal) = self.journal() {
            journal.record_progress(piece, end);
        }
    }

    /// Ends a fill. With an error, readers that wait for its bytes fail.
    pub(crate) fn end_fill(&self, id: u64, error: Option<CacheError>) {
        lock(&self.state).end_fill(id, error);
        self.wake();
    }

    /// Sets the length, which was unknown until the end of the body.
    pub(crate) fn set_len(&self, len: u64) {
        lock(&self.state).len = Some(len);
        self.wake();
        self.describe(|head| head.size = Some(len));
    }

    /// Changes the metadata of the object, in memory and on the disk.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut StoredHead)) {
        self.change_head(change);
        self.write_head();
    }

    /// Changes the metadata of the object in memory.
    pub(crate) fn change_head(&self, change: impl FnOnce(&mut StoredHead)) {
        lock(&self.state).unvalidated_since = None;
        change(Arc::make_mut(&mut lock(&self.head)));
    }

    /// Writes the metadata of the object to the disk, and waits until it is synced.
    pub(crate) fn write_head(&self) {
        if let Some(journal) = self.journal() {
            // If this fails, a later process validates the object again.
            let _ = journal.describe(|| StoredHead::clone(&self.head()));
        }
    }

    /// Returns the journal, unless the version is not stored. The lock is not held during disk
    /// access.
    fn journal(&self) -> Option<Arc<Journal<StoredHead>>> {
        lock(&self.journal).clone()
    }

    /// Stops storing the version. No more bytes will arrive, except those of running fills if the
    /// reason is that it has changed. Readers still get the bytes that are present. Returns whether
    /// it was stored.
    pub(crate) fn retire(&self, why: CacheErrorKind) -> bool {
        let was_stored = self.detach();
        lock(&self.state).broken.get_or_insert(why);
        self.wake();
        was_stored
    }

    /// Stops storing the version and writing its journal; readers still get the rest. Returns
    /// whether it was stored.
    pub(crate) fn detach(&self) -> bool {
        let journal = lock(&self.journal).take();
        journal.inspect(|journal| journal.close()).is_some()
    }

    /// Records that the origin ignores or refuses ranges, or sends unusable parts, which may be
    /// temporary.
    pub(crate) fn set_no_ranges(&self) {
        lock(&self.state).no_ranges_until = Some(Instant::now() + NO_RANGES_TIME);
    }

    /// Returns whether the origin ignores ranges.
    pub(crate) fn has_no_ranges(&self) -> bool {
        lock(&self.state).no_ranges_until.is_some()
    }

    /// Returns the end of the present bytes from `at` on; `at` if there are none.
    pub(crate) fn present_end(&self, at: u64) -> u64 {
        lock(&self.state).present.end_of(at).unwrap_or(at)
    }

    /// Returns the end of the hole around a missing byte, at most `end`.
    pub(crate) fn hole_end(&self, at: u64, end: u64) -> u64 {
        lock(&self.state).present.next_start(at).map_or(end, |next| next.min(end))
    }

    /// Returns whether it is stored.
    pub(crate) fn is_stored(&self) -> bool {
        lock(&self.journal).is_some()
    }

    /// Marks bytes of an earlier process to be synced with the new ones.
    pub(crate) fn mark_dirty(&self) {
        self.is_dirty.store(true, Ordering::Relaxed);
    }

    /// Returns whether the journal lags behind the file.
    pub(crate) fn is_dirty(&self) -> bool {
        self.is_dirty.load(Ordering::Relaxed)
    }

    /// Syncs new bytes to the disk, and then records them in the journal.
    ///
    /// # Errors
    ///
    /// Those of fdatasync(2). Any of its bytes may be lost then: no reader gets more of them.
    pub(crate) fn save(&self) -> io::Result<()> {
        if !self.is_dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        // Without a sync, a power failure costs more bytes.
        let Ok(file) = self.file.try_clone() else { return Ok(()) };
        let saved = self.journal().map(|journal| journal.save(&File::from(file)));
        saved.unwrap_or(Ok(())).inspect_err(|_| {
            self.is_lost.store(true, Ordering::Relaxed);
            lock(&self.state).present = RangeSet::default();
        })
    }

    /// Returns whether any of its bytes may be lost, because a sync has failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let wakers = lock(&self.state).take_wakers();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The outcome of removing a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// It is being read or filled, and stays.
    Pinned,
    /// It was removed, and other bytes are left.
    Removed,
    /// The whole file can be removed: nothing is left, the rest is useless, or it is no longer
    /// stored.
    Useless,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(size: Option<u64>) -> ObjectVersion {
        let head = StoredHead {
            key: "/a".to_owned(),
            origins: Vec::new(),
            body: String::new(),
            inode: 0,
            validator: None,
            size,
            fields: Vec::new(),
            requested: 0,
            received: 0,
            epoch: 0,
        };
        let file = Arc::new(File::open("/dev/null").unwrap().into());
        ObjectVersion::new(file, head, None, RangeSet::default())
    }

    #[test]
    fn versions_that_no_fill_completes_are_not_servable() {
        for size in [Some(10), None] {
            let version = version(size);
            let fill = version.begin_fill(0, size, &JobOwner::default());
            version.arrived(fill, 0..5);
            assert!(version.is_servable());
            version.end_fill(fill, None);
            assert!(!version.is_servable());
            let fill = version.begin_fill(5, size, &JobOwner::default());
            version.arrived(fill, 5..10);
            version.set_len(10);
            version.end_fill(fill, None);
            assert!(version.is_servable());
        }
    }
}
