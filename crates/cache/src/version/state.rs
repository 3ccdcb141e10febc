//! The state of a version: the ranges that are present or being fetched, and its readers.

use std::net::IpAddr;
use std::ops::Range;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use super::active_fill::ActiveFill;
use crate::error::{CacheError, CacheErrorKind, ConnectionFault};
use crate::pool::JobOwner;
use crate::ranges::RangeSet;

/// The state of a version.
#[derive(Debug, Default)]
pub(super) struct VersionState {
    pub(super) len: Option<u64>,
    pub(super) present: RangeSet,
    pub(super) fills: Vec<ActiveFill>,
    next_fill: u64,
    /// The reason why no more bytes will arrive.
    pub(super) broken: Option<CacheErrorKind>,
    /// The readers, ordered by number.
    pub(super) readers: Vec<ActiveReader>,
    next_reader: u64,
    /// The range that is being removed from the file.
    pub(super) leaving: Option<Range<u64>>,
    /// Whether another response can be proved to have the same version.
    has_validator: bool,
    /// If the origin ignores or refuses ranges, the time from which a range is requested again.
    pub(super) no_ranges_until: Option<Instant>,
    /// The time since which all responses were 200s without a validator.
    pub(super) unvalidated_since: Option<Instant>,
    /// Whether none of it is stored.
    pub(super) is_relayed: bool,
    /// The end of the last requested range, and how much was fetched beyond it.
    window: (u64, u64),
}

/// A reader, from the point of view of the version.
#[derive(Debug)]
pub(super) struct ActiveReader {
    number: u64,
    client: Option<IpAddr>,
    /// The bytes that it may read, which are kept in the file.
    pub(super) pin: Range<u64>,
    /// The part of its range that is left since its last call; `None` before the first.
    rest: Option<Range<u64>>,
    /// Whether it waits for the first byte of `rest`.
    is_waiting: bool,
    /// The waker, if it waits.
    waker: Option<Waker>,
    /// The reason why the fill for which it waited has failed.
    failure: Option<CacheError>,
}

/// The next step of a reader.
#[derive(Debug)]
pub(crate) enum ReadStep<P> {
    /// The bytes before this offset are present. At the reader's own offset the object ends.
    Available(u64),
    /// Wait: the reader will be woken.
    Wait {
        /// Whether the fill may begin earlier because of it: its pool must admit it.
        has_joined: bool,
    },
    /// Start this fill of this range with this permit, then call again.
    StartFill(u64, Range<u64>, P, JobOwner),
    /// The byte will not arrive.
    Fail(CacheError),
}

impl VersionState {
    pub(super) fn new(len: Option<u64>, present: RangeSet, has_validator: bool) -> Self {
        Self { len, present, has_validator, ..Self::default() }
    }

    /// Adds a reader of a client; returns its number.
    pub(super) fn enter(&mut self, client: Option<IpAddr>) -> u64 {
        self.next_reader += 1;
        let number = self.next_reader;
        let pin = 0..u64::MAX;
        self.readers.push(ActiveReader {
            number,
            client,
            pin,
            rest: None,
            is_waiting: false,
            waker: None,
            failure: None,
        });
        number
    }

    /// Removes a reader.
    pub(super) fn leave(&mut self, number: u64) {
        self.readers.retain(|reader| reader.number != number);
    }

    /// Returns the reader of this number.
    pub(super) fn reader(&mut self, number: u64) -> Option<&mut ActiveReader> {
        let index = self.readers.binary_search_by_key(&number, |reader| reader.number).ok()?;
        self.readers.get_mut(index)
    }

    /// Returns whether all bytes come from one response, because no other one can continue it.
    pub(super) fn has_one_fill(&self) -> bool {
        self.no_ranges_until.is_some() || !self.has_validator
    }

    /// Decides the next step of a reader at the offset `at`, which reads up to `end`. `permit` is
    /// called to obtain the permit for a fill.
    pub(super) fn step<P>(
        &mut self,
        number: u64,
        at: u64,
        end: u64,
        waker: &Waker,
        permit: impl FnOnce() -> Poll<Result<P, CacheError>>,
    ) -> ReadStep<P> {
        let present = self.present.end_of(at);
        let is_missing = present.is_none();
        let failure = self.reader(number).and_then(|reader| reader.turn_to(at..end, is_missing));
        if let Some(present) = present {
            return ReadStep::Available(present.min(end));
        }
        if self.len.is_some_and(|len| at >= len) {
            return ReadStep::Available(at);
        }
        if self.leaving.as_ref().is_some_and(|leaving| leaving.contains(&at)) {
            return self.wait(number, waker, false);
        }
        let has_one_fill = self.has_one_fill();
        let is_coming = self.fills.iter().any(|fill| fill.brings(at, has_one_fill));
        // The bytes of a running fill stay valid after another version has replaced this one.
        let broken = self.broken.filter(|why| !is_coming || *why != CacheErrorKind::Changed);
        if let Some(kind) = broken {
            return ReadStep::Fail(kind.into());
        }
        if !is_coming {
            let relayed = self.is_relayed.then(|| CacheErrorKind::NoRoom.into());
            if let Some(error) = relayed.or(failure) {
                return ReadStep::Fail(error);
            }
            // Without a length or validator there is only one fill, which cannot be resumed.
            let len = match self.len.filter(|_| self.has_validator) {
                Some(len) => len,
                None if self.fills.is_empty() => {
                    return ReadStep::Fail(ConnectionFault::CutOff.into());
                }
                None => u64::MAX,
            };
            if len < u64::MAX && self.fills.len() < MAX_FILLS {
                match permit() {
                    Poll::Ready(Ok(permit)) => {
                        let range = self.fetch_range(at, end.min(len), len);
                        let owner = JobOwner::new(self.client(number));
                        let id = self.begin(range.start, Some(range.end), &owner);
                        return ReadStep::StartFill(id, range, permit, owner);
                    }
                    Poll::Ready(Err(error)) => return ReadStep::Fail(error),
                    // The fill of another client may bring the byte meanwhile.
                    Poll::Pending => {}
                }
            }
        }
        let client = self.client(number);
        let coming = self.fills.iter().filter(|fill| fill.brings(at, has_one_fill));
        let has_joined = coming.fold(false, |any, fill| any | fill.owner.join(client));
        self.wait(number, waker, has_joined)
    }

    /// Makes a reader wait until the next change.
    fn wait<P>(&mut self, number: u64, waker: &Waker, has_joined: bool) -> ReadStep<P> {
        if let Some(reader) = self.reader(number)
            && !reader.waker.as_ref().is_some_and(|known| known.will_wake(waker))
        {
            reader.waker = Some(waker.clone());
        }
        ReadStep::Wait { has_joined }
    }

    /// Returns the client of a reader.
    fn client(&mut self, number: u64) -> Option<IpAddr> {
        self.reader(number).and_then(|reader| reader.client)
    }

    /// Ends a fill. With an error, readers that wait for its bytes fail; those that reach them
    /// later start another one.
    pub(super) fn end_fill(&mut self, id: u64, error: Option<CacheError>) {
        let Some(index) = self.fills.iter().position(|fill| fill.id == id) else { return };
        let fill = self.fills.swap_remove(index);
        let Some(error) = error else { return };
        let has_one_fill = self.has_one_fill();
        for reader in &mut self.readers {
            if reader.waits_for().is_some_and(|at| fill.brings(at, has_one_fill)) {
                reader.failure = Some(error.clone());
            }
        }
    }

    /// Returns how long the fills that bring a byte have all been waiting for a thread; `None` if
    /// there are none.
    pub(super) fn queued_for(&self, at: u64) -> Option<Duration> {
        let has_one_fill = self.has_one_fill();
        let coming = self.fills.iter().filter(|fill| fill.brings(at, has_one_fill));
        coming.map(|fill| fill.owner.waited()).min()
    }

    /// Returns whether it is being read or filled.
    pub(super) fn is_busy(&self) -> bool {
        !self.fills.is_empty() || !self.readers.is_empty()
    }

    /// Returns whether a range is being read or filled, another one is being removed, or it is the
    /// last one of an object in use.
    pub(super) fn is_pinned(&self, range: &Range<u64>) -> bool {
        let is_filled = |fill: &ActiveFill| {
            fill.start < range.end && fill.end.is_none_or(|end| range.start < end)
        };
        let is_read = |pin: &Range<u64>| pin.start < range.end && range.start < pin.end;
        self.readers.iter().any(|reader| is_read(&reader.pin))
            || self.fills.iter().any(is_filled)
            || self.leaving.is_some()
            || (self.is_busy() && self.present.count_in(range) == self.present.count())
    }

    /// Returns whether a reader reads the bytes of a fill, or will next.
    pub(super) fn is_read(&self, id: u64) -> bool {
        let is_only = self.has_one_fill() || self.len.is_none();
        let Some(fill) = self.fills.iter().find(|fill| fill.id == id && !is_only) else {
            return !self.readers.is_empty();
        };
        self.readers.iter().any(|reader| {
            // A reader that has just arrived may read any of it.
            reader.rest.as_ref().is_none_or(|rest| {
                let next = self.present.end_of(rest.start).unwrap_or(rest.start);
                next < rest.end && fill.brings(next, false)
            })
        })
    }

    /// Returns whether a reader waits for another fill to end, so that its own can begin.
    pub(super) fn is_crowded(&self) -> bool {
        let is_coming = |at| self.fills.iter().any(|fill| fill.brings(at, self.has_one_fill()));
        self.fills.len() >= MAX_FILLS
            && self.readers.iter().filter_map(ActiveReader::waits_for).any(|at| !is_coming(at))
    }

    /// Registers a fill of a client; returns its number.
    pub(super) fn begin(&mut self, at: u64, end: Option<u64>, owner: &JobOwner) -> u64 {
        if self.fills.is_empty() && self.no_ranges_until.is_some_and(|it| it <= Instant::now()) {
            self.no_ranges_until = None;
        }
        self.next_fill += 1;
        self.fills.push(ActiveFill::new(self.next_fill, at, end, owner.clone()));
        self.next_fill
    }

    /// Returns the wakers of the waiting readers.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        self.readers.iter_mut().filter_map(|reader| reader.waker.take()).collect()
    }

    /// Returns the range to fetch for a reader that misses the byte `at` and reads up to `end`:
    /// whole MiB, with read-ahead for sequential readers.
    fn fetch_range(&mut self, at: u64, end: u64, len: u64) -> Range<u64> {
        let (last, ahead) = self.window;
        let is_next = at <= last && last <= at + FILL_ALIGNMENT;
        let ahead = if is_next { (2 * ahead).clamp(FILL_ALIGNMENT, MAX_AHEAD) } else { 0 };
        self.window = (end, ahead);
        let start = (at / FILL_ALIGNMENT * FILL_ALIGNMENT).max(self.present.hole_start(at));
        let end = end.next_multiple_of(FILL_ALIGNMENT).saturating_add(ahead).min(len);
        let end = self.present.next_start(at).map_or(end, |next| end.min(next));
        let others = self.fills.iter().map(|fill| fill.at).filter(|other| *other > at);
        // Bytes that another fill will soon fetch are not fetched twice.
        let end = others.fold(end, u64::min);
        let leaving = self.leaving.iter().map(|leaving| leaving.start);
        let end = leaving.filter(|leaving| *leaving > at).fold(end, u64::min);
        let running = self.fills.iter().map(|fill| fill.at).filter(|other| *other <= at);
        running.fold(start, u64::max).min(at)..end
    }
}

impl ActiveReader {
    /// Records what it reads next; returns why the fill for which it waited has failed. After a
    /// disk error the reader does not try again.
    fn turn_to(&mut self, rest: Range<u64>, is_missing: bool) -> Option<CacheError> {
        self.rest = Some(rest);
        self.is_waiting = is_missing;
        let is_of_disk = self.failure.as_ref().is_some_and(|error| error.kind().is_of_disk());
        if !is_missing && !is_of_disk {
            self.failure = None;
        }
        self.failure.clone()
    }

    /// Returns the byte for which it waits.
    fn waits_for(&self) -> Option<u64> {
        self.rest.as_ref().filter(|_| self.is_waiting).map(|rest| rest.start)
    }
}

/// The time after which ranges are requested from an origin again.
pub(super) const NO_RANGES_TIME: Duration = Duration::from_secs(60);

/// How long a version is kept while the origin only sends 200s without a validator.
pub(super) const UNVALIDATED_TIME: Duration = Duration::from_secs(60);

/// Fills start and end at multiples of this, unless a hole is smaller.
const FILL_ALIGNMENT: u64 = 1 << 20;

/// The maximum read-ahead for sequential readers, in bytes.
const MAX_AHEAD: u64 = 64 << 20;

/// The maximum number of simultaneous fills of one object.
const MAX_FILLS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(state: &mut VersionState, range: Range<u64>) -> u64 {
        state.begin(range.start, Some(range.end), &JobOwner::default())
    }

    #[test]
    fn ranges_are_requested_again_after_a_while_unless_the_whole_is_coming() {
        let mut state = VersionState::new(Some(1 << 30), RangeSet::default(), true);
        state.no_ranges_until = Some(Instant::now() + NO_RANGES_TIME);
        let whole = begin(&mut state, 0..1 << 30);
        assert!(state.has_one_fill());
        state.no_ranges_until = Some(Instant::now());
        begin(&mut state, 1 << 20..2 << 20);
        assert!(state.has_one_fill());
        [whole, whole + 1].into_iter().for_each(|id| state.end_fill(id, None));
        begin(&mut state, 1 << 20..2 << 20);
        assert!(!state.has_one_fill());
    }

    #[test]
    fn a_reader_that_has_left_is_not_woken() {
        let mut state = VersionState::new(Some(10), RangeSet::default(), true);
        begin(&mut state, 0..10);
        let readers = [state.enter(None), state.enter(None)];
        for reader in readers.into_iter().chain(readers) {
            let step = state.step(reader, 0, 10, Waker::noop(), || Poll::<Result<(), _>>::Pending);
            assert!(matches!(step, ReadStep::Wait { .. }));
        }
        state.leave(readers[0]);
        assert_eq!(state.take_wakers().len(), 1);
        assert!(state.take_wakers().is_empty());
    }
}
