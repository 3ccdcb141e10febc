//! Decides which connection fetches which bytes.
//!
//! Segments are assigned by guided self-scheduling: large ones first, smaller ones towards the end,
//! so that all connections finish at about the same time. When nothing is left, an idle connection
//! takes over a part of the segment of a slower one. To make this possible, a connection claims its
//! segment one chunk at a time; unclaimed chunks can be taken from it. A connection that receives
//! nothing at all is cut off, and its chunk is reassigned, too.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use underpass_engine::wait::{lock, unpoison};

use crate::journal::without;

/// Decides which connection fetches which bytes.
#[derive(Debug)]
pub(super) struct SegmentScheduler {
    inner: Mutex<SchedulerState>,
    /// Signals that a segment was given back or finished, or the download ended.
    changed: Condvar,
}

#[derive(Debug)]
struct SchedulerState {
    /// Unassigned ranges, in ascending order.
    free: Vec<Range<u64>>,
    /// The state of each connection.
    workers: Vec<WorkerState>,
    is_over: bool,
}

/// The state of one connection.
#[derive(Debug, Default)]
struct WorkerState {
    /// Its segment: the claimed part, and the rest.
    work: Option<Assignment>,
    /// Whether it has stopped.
    is_gone: bool,
    /// The idle connection for which it was cut off, if it was.
    cut_for: Option<usize>,
    /// The rate of its last segment in bytes per second.
    rate: Option<f64>,
    /// A range reserved for it.
    promised: Option<Range<u64>>,
}

#[derive(Debug)]
struct Assignment {
    /// The start of the chunk that is being moved.
    at: u64,
    /// The end of that chunk, after which other connections may take over.
    claimed: u64,
    /// The end of the segment.
    end: u64,
    started: Instant,
    moved: u64,
    /// When bytes last arrived.
    last: Instant,
}

impl Assignment {
    fn new(piece: &Range<u64>, now: Instant) -> Self {
        let Range { start, end } = *piece;
        Self { at: start, claimed: start, end, started: now, moved: 0, last: now }
    }

    /// Returns the bytes per second so far, if any have arrived.
    fn rate(&self, now: Instant) -> Option<f64> {
        let seconds = now.duration_since(self.started).as_secs_f64();
        (self.moved > 0 && seconds > 0.0).then(|| self.moved as f64 / seconds)
    }
}

/// The next task of an idle connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SegmentTask {
    /// Fetch these bytes.
    Fetch(Range<u64>),
    /// Stop: nothing is left, or the download was cancelled.
    Leave,
}

impl SegmentScheduler {
    /// Creates a scheduler of these missing ranges for a number of connections.
    pub(super) fn new(missing: Vec<Range<u64>>, connections: usize) -> Self {
        let workers = (0..connections.max(1)).map(|_| WorkerState::default()).collect();
        let inner = SchedulerState { free: missing, workers, is_over: false };
        Self { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    /// Assigns the range that is already arriving over this connection.
    pub(super) fn assign(&self, me: usize, piece: &Range<u64>) {
        let mut inner = lock(&self.inner);
        inner.free = without(&inner.free, piece);
        inner.workers[me].work = Some(Assignment::new(piece, Instant::now()));
    }

    /// Returns the next segment for this connection; waits while others may give one back.
    pub(super) fn next_segment(&self, me: usize, cuts: &[AtomicBool]) -> SegmentTask {
        let mut inner = lock(&self.inner);
        loop {
            if inner.is_over {
                return SegmentTask::Leave;
            }
            let now = Instant::now();
            if let Some(piece) = inner.next(me, now) {
                inner.workers[me].work = Some(Assignment::new(&piece, now));
                return SegmentTask::Fetch(piece);
            }
            if inner.workers.iter().all(|worker| worker.work.is_none() && worker.promised.is_none())
            {
                inner.is_over = true;
                self.changed.notify_all();
                return SegmentTask::Leave;
            }
            inner.cut_stalled(me, now, cuts);
            let waited = self.changed.wait_timeout(inner, POLL_INTERVAL);
            inner = unpoison(waited).0;
        }
    }

    /// Claims the next chunk of this connection's segment; `None` once the segment is finished.
    pub(super) fn claim(&self, me: usize) -> Option<Range<u64>> {
        let mut inner = lock(&self.inner);
        let is_alone = inner.workers.iter().filter(|worker| !worker.is_gone).count() == 1;
        if inner.is_over {
            return None;
        }
        let worker = &mut inner.workers[me];
        let work = worker.work.as_mut()?;
        let left = work.end - work.claimed;
        if left == 0 {
            worker.rate = work.rate(Instant::now()).or(worker.rate);
            worker.work = None;
            self.changed.notify_all();
            return None;
        }
        let wanted = match work.rate(Instant::now()) {
            _ if is_alone => MAX_CHUNK,
            Some(rate) => ((rate * CHUNK_SECONDS) as u64).clamp(MIN_CHUNK, MAX_CHUNK),
            None => FIRST_CHUNK,
        };
        // A small remainder is included, so that it does not become a separate chunk.
        let len = if left < wanted + MIN_CHUNK { left } else { wanted };
        work.at = work.claimed;
        work.claimed += len;
        Some(work.at..work.claimed)
    }

    /// Claims all of this connection's segment, so that no other connection can take over.
    pub(super) fn claim_all(&self, me: usize) -> Option<Range<u64>> {
        let mut inner = lock(&self.inner);
        let work = inner.workers[me].work.as_mut()?;
        work.at = work.claimed;
        work.claimed = work.end;
        Some(work.at..work.end)
    }

    /// Shortens this connection's segment to `end`; the rest is free for others.
    pub(super) fn limit(&self, me: usize, end: u64) {
        let mut inner = lock(&self.inner);
        let Some(work) = &mut inner.workers[me].work else { return };
        if end < work.end {
            let rest = end..work.end;
            work.end = end;
            inner.add_free(rest);
            self.changed.notify_all();
        }
    }

    /// Records that more bytes of the chunk have been written.
    pub(super) fn moved(&self, me: usize, bytes: u64) {
        let mut inner = lock(&self.inner);
        if let Some(work) = &mut inner.workers[me].work {
            work.at += bytes;
            work.moved += bytes;
            work.last = Instant::now();
        }
    }

    /// Gives back the rest of this connection's segment.
    pub(super) fn give_back(&self, me: usize) {
        let mut inner = lock(&self.inner);
        let worker = &mut inner.workers[me];
        let cut_for = worker.cut_for.take();
        if let Some(work) = worker.work.take() {
            worker.rate = work.rate(Instant::now());
            let left = work.at..work.end;
            match cut_for.filter(|other| !inner.workers[*other].is_gone) {
                _ if left.is_empty() => {}
                Some(other) => inner.workers[other].promised = Some(left),
                None => inner.add_free(left),
            }
        }
        self.changed.notify_all();
    }

    /// Stops this connection; returns `true` if it was the last.
    pub(super) fn leave(&self, me: usize) -> bool {
        self.give_back(me);
        let mut inner = lock(&self.inner);
        inner.workers[me].is_gone = true;
        if let Some(left) = inner.workers[me].promised.take() {
            inner.add_free(left);
        }
        self.changed.notify_all();
        inner.workers.iter().all(|worker| worker.is_gone)
    }

    /// Stops all connections.
    pub(super) fn end(&self) {
        lock(&self.inner).is_over = true;
        self.changed.notify_all();
    }

    /// Returns whether all connections are to stop.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.inner).is_over
    }

    /// Returns whether every byte has been fetched.
    pub(super) fn is_done(&self) -> bool {
        let inner = lock(&self.inner);
        let is_idle = |worker: &WorkerState| worker.work.is_none() && worker.promised.is_none();
        inner.free.is_empty() && inner.workers.iter().all(is_idle)
    }

    /// Waits until all connections have stopped, at most for this time; returns whether they have.
    pub(super) fn wait_until_empty(&self, time: Duration) -> bool {
        let has_workers = |inner: &mut SchedulerState| !inner.workers.iter().all(|it| it.is_gone);
        let waited = self.changed.wait_timeout_while(lock(&self.inner), time, has_workers);
        !unpoison(waited).1.timed_out()
    }

    /// Returns the number of busy connections.
    pub(super) fn busy(&self) -> usize {
        lock(&self.inner).workers.iter().filter(|worker| worker.work.is_some()).count()
    }
}

impl SchedulerState {
    /// Adds a range that is free again.
    fn add_free(&mut self, range: Range<u64>) {
        let place = self.free.partition_point(|other| other.start < range.start);
        self.free.insert(place, range);
    }

    /// Returns the next segment for an idle connection, if there is any.
    fn next(&mut self, me: usize, now: Instant) -> Option<Range<u64>> {
        if let Some(promised) = self.workers[me].promised.take() {
            return Some(promised);
        }
        self.next_free().or_else(|| self.steal(me, now))
    }

    /// Takes the next segment of the free ranges.
    fn next_free(&mut self) -> Option<Range<u64>> {
        let left: u64 = self.free.iter().map(|range| range.end - range.start).sum();
        let here = self.workers.iter().filter(|worker| !worker.is_gone).count() as u64;
        let wanted = match here {
            0 | 1 => u64::MAX,
            _ => (left / (2 * here)).clamp(MIN_PIECE, MAX_PIECE),
        };
        let first = self.free.first_mut()?;
        let len = wanted.min(first.end - first.start);
        let piece = first.start..first.start + len;
        first.start += len;
        if first.is_empty() {
            self.free.remove(0);
        }
        Some(piece)
    }

    /// Takes over a part of the segment that would take longest: as much as makes both connections
    /// finish at the same time, if that is worth a request.
    fn steal(&mut self, me: usize, now: Instant) -> Option<Range<u64>> {
        let my_rate = self.workers[me].rate;
        let left = |work: &Assignment| work.end - work.claimed;
        let time = |work: &Assignment| left(work) as f64 / work.rate(now).unwrap_or(1.0);
        let works = self.workers.iter_mut().filter_map(|worker| worker.work.as_mut());
        let slowest = works
            .filter(|work| now.duration_since(work.started) > MIN_GAIN)
            .max_by(|a, b| time(a).total_cmp(&time(b)))?;
        if time(slowest) < MIN_GAIN.as_secs_f64() {
            return None;
        }
        let share = match (my_rate, slowest.rate(now)) {
            (Some(mine), Some(theirs)) => mine / (mine + theirs),
            (_, None) => 1.0,
            (None, _) => 0.5,
        };
        let len = (left(slowest) as f64 * share) as u64;
        if len < MIN_CHUNK {
            return None;
        }
        let piece = slowest.end - len..slowest.end;
        slowest.end = piece.start;
        Some(piece)
    }

    /// Cuts off a connection that receives nothing, in favour of an idle one.
    fn cut_stalled(&mut self, me: usize, now: Instant, cuts: &[AtomicBool]) {
        let is_waited_for = self.workers.iter().any(|worker| worker.cut_for == Some(me));
        let is_slow = self.workers[me].rate.is_none();
        if is_waited_for || is_slow {
            return;
        }
        let stalled = self.workers.iter_mut().enumerate().find(|(_, worker)| {
            let is_stalled = |work: &Assignment| now.duration_since(work.last) >= STALL_TIMEOUT;
            worker.cut_for.is_none() && worker.work.as_ref().is_some_and(is_stalled)
        });
        if let Some((victim, worker)) = stalled {
            worker.cut_for = Some(me);
            cuts[victim].store(true, Ordering::Relaxed);
        }
    }
}

/// The minimum size of a segment in bytes: less is not worth a request.
const MIN_PIECE: u64 = 1 << 20;

/// The maximum size of a segment in bytes, if there are several connections.
const MAX_PIECE: u64 = 64 << 20;

/// The minimum size of a chunk in bytes; less is not taken over.
const MIN_CHUNK: u64 = 256 << 10;

/// The size of the first chunk in bytes, while the rate is unknown.
const FIRST_CHUNK: u64 = 1 << 20;

/// The maximum size of a chunk in bytes.
const MAX_CHUNK: u64 = 64 << 20;

/// The time that a chunk should take, in seconds.
const CHUNK_SECONDS: f64 = 0.25;

/// The minimum time saved by taking over a part of a segment.
const MIN_GAIN: Duration = Duration::from_millis(300);

/// The time without a byte after which a connection is cut off in favour of an idle one.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

/// The interval at which an idle connection looks for work.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn cuts(count: usize) -> Vec<AtomicBool> {
        (0..count).map(|_| AtomicBool::new(false)).collect()
    }

    /// Fetches all of a piece.
    fn fetch(scheduler: &SegmentScheduler, me: usize) -> Vec<Range<u64>> {
        let chunks = std::iter::from_fn(|| {
            let chunk = scheduler.claim(me)?;
            scheduler.moved(me, chunk.end - chunk.start);
            Some(chunk)
        });
        chunks.collect()
    }

    #[test]
    fn pieces_become_smaller_and_cover_everything_once() {
        let scheduler = SegmentScheduler::new(vec![0..100 * MIB, 150 * MIB..500 * MIB], 2);
        let mut seen = Vec::new();
        let cuts = cuts(2);
        let mut me = 0;
        while let SegmentTask::Fetch(piece) = scheduler.next_segment(me, &cuts) {
            assert!(piece.end - piece.start <= MAX_PIECE);
            let chunks = fetch(&scheduler, me);
            assert_eq!(chunks.first().map(|chunk| chunk.start), Some(piece.start));
            assert_eq!(chunks.last().map(|chunk| chunk.end), Some(piece.end));
            assert!(chunks.windows(2).all(|pair| pair[0].end == pair[1].start));
            seen.push(piece);
            me = 1 - me;
        }
        assert!(scheduler.is_done() && scheduler.is_over());
        let sizes: Vec<_> = seen.iter().map(|piece| piece.end - piece.start).collect();
        assert_eq!(sizes[0], 64 * MIB);
        assert!(*sizes.last().expect("some") <= 2 * MIB, "{sizes:?}");
        assert_eq!(sizes.iter().sum::<u64>(), 450 * MIB);
        let left = seen.iter().fold(vec![0..500 * MIB], |left, piece| without(&left, piece));
        assert_eq!(left, [100 * MIB..150 * MIB]);
    }

    #[test]
    fn one_connection_takes_all_at_once() {
        let scheduler = SegmentScheduler::new(vec![0..10_000 * MIB], 1);
        assert_eq!(scheduler.next_segment(0, &cuts(1)), SegmentTask::Fetch(0..10_000 * MIB));
        assert_eq!(scheduler.claim(0), Some(0..MAX_CHUNK));
    }

    #[test]
    fn segments_of_a_failed_worker_are_fetched_by_another() {
        let scheduler = SegmentScheduler::new(vec![0..2 * MIB], 2);
        let cuts = cuts(2);
        assert_eq!(scheduler.next_segment(0, &cuts), SegmentTask::Fetch(0..MIB));
        assert_eq!(scheduler.claim(0), Some(0..MIB));
        scheduler.moved(0, 1000);
        assert!(!scheduler.leave(0));
        assert_eq!(scheduler.next_segment(1, &cuts), SegmentTask::Fetch(1000..MIB));
        fetch(&scheduler, 1);
        assert_eq!(scheduler.next_segment(1, &cuts), SegmentTask::Fetch(MIB..2 * MIB));
    }

    #[test]
    fn the_end_of_a_slow_piece_is_taken_over() {
        let scheduler = SegmentScheduler::new(vec![0..64 * MIB], 2);
        let cuts = cuts(2);
        scheduler.assign(0, &(0..64 * MIB));
        let chunk = scheduler.claim(0).expect("a chunk");
        std::thread::sleep(MIN_GAIN + Duration::from_millis(10));
        scheduler.moved(0, 1000);
        let SegmentTask::Fetch(piece) = scheduler.next_segment(1, &cuts) else { panic!("nothing") };
        assert_eq!(piece.end, 64 * MIB);
        let half = (64 * MIB - chunk.end) / 2;
        assert_eq!(piece.start, 64 * MIB - half, "nothing is known of the one who takes: half");
        let mut own = vec![chunk];
        own.extend(fetch(&scheduler, 0));
        assert_eq!(own.last().map(|chunk| chunk.end), Some(piece.start));
    }

    #[test]
    fn a_stalled_connection_is_cut_off_and_its_part_reassigned() {
        let scheduler = SegmentScheduler::new(vec![0..2 * MIB], 2);
        let cuts = cuts(2);
        scheduler.assign(0, &(0..MIB));
        assert_eq!(scheduler.claim(0), Some(0..MIB));
        assert_eq!(scheduler.next_segment(1, &cuts), SegmentTask::Fetch(MIB..2 * MIB));
        std::thread::sleep(Duration::from_millis(1));
        fetch(&scheduler, 1);
        std::thread::scope(|scope| {
            let task = scope.spawn(|| scheduler.next_segment(1, &cuts));
            while !cuts[0].load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
            scheduler.moved(0, 10);
            scheduler.give_back(0);
            assert_eq!(task.join().ok(), Some(SegmentTask::Fetch(10..MIB)));
        });
    }

    #[test]
    fn removed_bytes_are_missing_from_the_ranges() {
        assert_eq!(without(&[0..10, 20..30], &(5..25)), [0..5, 25..30]);
        assert_eq!(without(&[5..10], &(0..20)), []);
        assert_eq!(without(&[5..10], &(6..8)), [5..6, 8..10]);
        assert_eq!(without(&[5..10], &(20..30)), [5..10]);
    }
}
