//! One version of an object: its file, what of it is there, and what is on its way.

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use underpass_client::download::interpret::Version;
use underpass_client::journal::Journal;

use crate::failure::Failure;
use crate::ranges::RangeSet;
use crate::store::Head;

/// One version of an object.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The bytes of the object, at their offsets.
    pub(crate) file: Arc<OwnedFd>,
    version: Option<Version>,
    head: Mutex<Arc<Head>>,
    /// `None` once it is not stored any more, or if it never was.
    journal: Mutex<Option<Journal<Head>>>,
    state: Mutex<State>,
    readers: AtomicUsize,
    /// Whether the journal says less than what is on the disk.
    is_dirty: AtomicBool,
    /// Whether nothing of it is kept.
    is_relayed: bool,
}

#[derive(Debug, Default)]
struct State {
    len: Option<u64>,
    present: RangeSet,
    fills: Vec<Running>,
    next_fill: u64,
    /// Why nothing more will come.
    broken: Option<Failure>,
    /// How many fills have failed for good, and why the last one did.
    failures: (u64, Option<Failure>),
    wakers: Vec<Waker>,
    /// Whether the origin sends the whole, whatever is asked for.
    has_no_ranges: bool,
    /// Where the last range ended that was asked for, and how much was fetched beyond it.
    window: (u64, u64),
}

/// A fill that runs, or waits for its turn.
#[derive(Debug)]
struct Running {
    id: u64,
    at: u64,
    /// `None` for everything up to the end.
    end: Option<u64>,
}

/// What a reader has to do about a byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send up to here. If that is where it is, the object ends here.
    Send(u64),
    /// Wait: the reader is woken.
    Wait,
    /// Begin the fill of this number, for this range; then wait.
    Begin(u64, Range<u64>),
    /// It will not come.
    Fail(Failure),
}

impl Generation {
    pub(crate) fn new(
        file: File,
        head: Head,
        journal: Option<Journal<Head>>,
        present: RangeSet,
    ) -> Self {
        let state = State { len: head.size, present, ..State::default() };
        Self {
            file: Arc::new(file.into()),
            version: head.version.clone(),
            head: Mutex::new(Arc::new(head)),
            journal: Mutex::new(journal),
            state: Mutex::new(state),
            readers: AtomicUsize::new(0),
            is_dirty: AtomicBool::new(false),
            is_relayed: false,
        }
    }

    /// A version of which nothing is kept: each client gets what it wants from the origin.
    pub(crate) fn relayed(file: Arc<OwnedFd>, head: Head) -> Self {
        let mut state = State { len: head.size, ..State::default() };
        state.failures = (1, Some(Failure::NoRoom));
        Self {
            file,
            version: head.version.clone(),
            head: Mutex::new(Arc::new(head)),
            journal: Mutex::new(None),
            state: Mutex::new(state),
            readers: AtomicUsize::new(0),
            is_dirty: AtomicBool::new(false),
            is_relayed: true,
        }
    }

    /// Returns what tells the version from others.
    pub(crate) fn version(&self) -> Option<&Version> {
        self.version.as_ref()
    }

    /// Returns what is known about the object.
    pub(crate) fn head(&self) -> Arc<Head> {
        Arc::clone(&lock(&self.head))
    }

    /// Returns its length, once it is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.state().len
    }

    /// Returns how many bytes of a range are there.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> u64 {
        self.state().present.count_in(range)
    }

    /// Returns how many bytes are there.
    pub(crate) fn count(&self) -> u64 {
        self.state().present.count()
    }

    /// Returns why nothing more will come, if that is so.
    pub(crate) fn broken(&self) -> Option<Failure> {
        self.state().broken
    }

    /// Returns whether a fill runs or waits for its turn.
    pub(crate) fn is_filling(&self) -> bool {
        !self.state().fills.is_empty()
    }

    /// Returns how many fills have failed for good before a reader begins.
    pub(crate) fn failures(&self) -> u64 {
        if self.is_relayed { 0 } else { self.state().failures.0 }
    }

    /// Returns the number of readers.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Counts one reader more.
    pub(crate) fn enter(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one reader less.
    pub(crate) fn leave(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Decides what a reader does that has sent everything before `at` and wants what is before
    /// `end`. `seen` is how many fills had failed when it began.
    pub(crate) fn step(&self, at: u64, end: u64, seen: u64, waker: &Waker) -> Step {
        let mut state = self.state();
        if let Some(present) = state.present.end_of(at) {
            return Step::Send(present.min(end));
        }
        if state.len.is_some_and(|len| at >= len) {
            return Step::Send(at);
        }
        if let Some(failure) = state.broken {
            return Step::Fail(failure);
        }
        let near = if state.has_no_ranges { u64::MAX } else { NEAR };
        let is_coming = state.fills.iter().any(|fill| {
            let is_ahead = at >= fill.at && at - fill.at <= near;
            is_ahead && fill.end.is_none_or(|end| at < end)
        });
        if !is_coming {
            if let (true, Some(failure)) = (state.failures.0 > seen, state.failures.1) {
                return Step::Fail(failure);
            }
            // Of an unknown length there is one fill, and nothing resumes it.
            let len = match state.len {
                Some(len) => len,
                None if state.fills.is_empty() => return Step::Fail(Failure::TimedOut),
                None => u64::MAX,
            };
            if len < u64::MAX && state.fills.len() < MAX_FILLS {
                let range = state.wanted(at, end.min(len), len);
                let id = state.begin(range.start, Some(range.end));
                state.wake_with(waker);
                return Step::Begin(id, range);
            }
        }
        state.wake_with(waker);
        Step::Wait
    }

    /// Registers a fill that begins here; returns its number.
    pub(crate) fn begin_fill(&self, at: u64, end: Option<u64>) -> u64 {
        self.state().begin(at, end)
    }

    /// Registers what a journal calls the pieces of a fill.
    pub(crate) fn begin_piece(&self, range: &Range<u64>) -> Option<usize> {
        lock(&self.journal).as_ref().map(|journal| journal.begin(range))
    }

    /// Notes that the bytes of a range have arrived, the last of them just now.
    pub(crate) fn arrived(&self, id: u64, range: Range<u64>) {
        let wakers = {
            let mut state = self.state();
            if let Some(fill) = state.fills.iter_mut().find(|fill| fill.id == id) {
                fill.at = fill.at.max(range.end);
            }
            state.present.add(range);
            std::mem::take(&mut state.wakers)
        };
        self.is_dirty.store(true, Ordering::Relaxed);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Writes to the journal how much of a piece is there.
    pub(crate) fn note(&self, piece: Option<usize>, done: u64) {
        if let (Some(journal), Some(piece)) = (&*lock(&self.journal), piece) {
            journal.note(piece, done);
        }
    }

    /// Ends a fill; with a failure, what it was to bring will not come by it.
    pub(crate) fn end_fill(&self, id: u64, failure: Option<Failure>) {
        let wakers = {
            let mut state = self.state();
            state.fills.retain(|fill| fill.id != id);
            if failure.is_some() {
                state.failures = (state.failures.0 + 1, failure);
            }
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets the length, which only the end of the body has shown.
    pub(crate) fn set_len(&self, len: u64) {
        self.state().len = Some(len);
        self.describe(|head| head.size = Some(len));
        self.wake();
    }

    /// Changes what is known about the object, in memory and on the disk.
    pub(crate) fn describe(&self, change: impl FnOnce(&mut Head)) {
        let mut journal = lock(&self.journal);
        let head = {
            let mut head = lock(&self.head);
            change(Arc::make_mut(&mut head));
            Arc::clone(&head)
        };
        if let Some(journal) = &mut *journal {
            // If that fails, a later process validates it once more.
            let _ = journal.describe(Head::clone(&head));
        }
    }

    /// Notes that nothing more will come of this version; it is not stored any more. Readers go on
    /// with what is there. Returns whether it was stored.
    pub(crate) fn retire(&self, why: Failure) -> bool {
        let was_stored = lock(&self.journal).take().is_some();
        self.state().broken.get_or_insert(why);
        self.wake();
        was_stored
    }

    /// Notes that it is not stored any more, and that more may come for its readers.
    pub(crate) fn detach(&self) {
        *lock(&self.journal) = None;
    }

    /// Notes that the origin sends the whole, whatever is asked for.
    pub(crate) fn set_no_ranges(&self) {
        self.state().has_no_ranges = true;
    }

    /// Returns where the bytes end that follow `at` and are here already; `at` if there are none.
    pub(crate) fn present_end(&self, at: u64) -> u64 {
        self.state().present.end_of(at).unwrap_or(at)
    }

    /// Returns where the next bytes after a missing one are here, at most `end`.
    pub(crate) fn hole_end(&self, at: u64, end: u64) -> u64 {
        self.state().present.next_start(at).map_or(end, |next| next.min(end))
    }

    /// Returns whether it is stored.
    pub(crate) fn is_stored(&self) -> bool {
        lock(&self.journal).is_some()
    }

    /// Brings what has arrived to the disk, and notes that in the journal.
    pub(crate) fn save(&self) {
        if self.is_dirty.swap(false, Ordering::Relaxed) {
            // What fails here shows when the file is read; the journal says less.
            let Ok(file) = self.file.try_clone() else { return };
            if let Some(journal) = &*lock(&self.journal) {
                let _ = journal.save(&File::from(file));
            }
        }
    }

    fn wake(&self) {
        let wakers = std::mem::take(&mut self.state().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn begin(&mut self, at: u64, end: Option<u64>) -> u64 {
        self.next_fill += 1;
        self.fills.push(Running { id: self.next_fill, at, end });
        self.next_fill
    }

    fn wake_with(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// Returns the range to fetch for a reader that misses the byte `at` and wants what is before
    /// `end`: whole MiB, and more than it wants if it reads one range after another.
    fn wanted(&mut self, at: u64, end: u64, len: u64) -> Range<u64> {
        let (last, ahead) = self.window;
        let is_next = at <= last && last <= at + UNIT;
        let ahead = if is_next { (2 * ahead).clamp(UNIT, MAX_AHEAD) } else { 0 };
        self.window = (end, ahead);
        let start = (at / UNIT * UNIT).max(self.present.hole_start(at));
        let end = end.next_multiple_of(UNIT).saturating_add(ahead).min(len);
        let end = self.present.next_start(at).map_or(end, |next| end.min(next));
        let others = self.fills.iter().map(|fill| fill.at).filter(|other| *other > at);
        // What another fill is going to bring is not fetched twice, unless that is far away.
        let end = others.fold(end, u64::min);
        let running = self.fills.iter().map(|fill| fill.at).filter(|other| *other <= at);
        running.fold(start, u64::max).min(at)..end
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fills begin and end at multiples of this, where nothing else is known.
const UNIT: u64 = 1 << 20;

/// The most that is fetched ahead of readers that read one range after another.
const MAX_AHEAD: u64 = 64 << 20;

/// A reader waits for a fill that is at most this far behind.
const NEAR: u64 = 8 << 20;

/// The maximum number of fills of one object at a time.
const MAX_FILLS: usize = 8;
