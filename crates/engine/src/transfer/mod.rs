//! One transfer: the only loop that moves bytes.
//!
//! Mechanisms take steps; this module decides which one is next, counts what it did, keeps to the
//! promised lengths and falls back at the exact byte where the kernel declined. It never waits:
//! `drive` does, for callers that have nothing else to do.

pub mod buffered;
mod capabilities;
mod drive;
mod hold_back;
pub(crate) mod options;
mod small;
mod watch;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::io::Errno;
use underpass_sys::Kind;

use crate::atomic_file;
use crate::chain::sink::Sink;
use crate::chain::{Chain, ChainPosition, Segment};
use crate::error::Error;
use crate::integrity::{Guard, Integrity, WriterCheck};
use crate::mechanisms::mechanism::Mechanism;
use crate::mechanisms::memory::SMALL_TRANSFER;
use crate::mechanisms::policy::{Candidates, Policy};
use crate::mechanisms::step::{DeclineReason, Ends, Step, Wait};
use crate::mechanisms::{Active, StepMeter, largest_step, memory, read_write};
use crate::report::{Decline, Declined, Report};
use crate::socket;
use crate::socket::tls_transport::TlsTransport;
use options::TurnLimit;

pub use capabilities::Capabilities;
pub use options::{Confirm, Options, PeerMessage, Progress};
pub use small::{FilePart, send_small, send_with_head};

/// The state after a call of [`Transfer::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every byte is in the sink and the file is known to be in one version.
    Done,
    /// The transfer is waiting for this.
    Waiting(Wait),
    /// The bytes of one turn are moved; the caller may advance other transfers now.
    Yielded,
}

/// One transfer of a [`Chain`] into a [`Sink`].
///
/// Either [`run`](Transfer::run) it to the end, or call [`advance`](Transfer::advance) whenever
/// the ends are ready; both are the same loop.
///
/// ```
/// use std::fs::File;
/// use underpass_engine::{Sink, Source, Transfer};
///
/// let source = File::open("/proc/self/exe")?;
/// let sink = File::options().write(true).open("/dev/null")?;
/// let report = Transfer::new(Source::of(&source)?, Sink::of(&sink)?).run()?;
/// assert_eq!(report.bytes(), source.metadata()?.len());
/// assert_eq!(report.user_space_bytes(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Transfer<'a, F, S> {
    chain: Chain<F>,
    pub(crate) sink: Sink<S>,
    pub(crate) options: Options<'a>,
    position: ChainPosition,
    /// The guard of each source, from the first step on.
    guards: Vec<Guard>,
    /// The sources whose versions cannot be compared yet.
    checks: Vec<(usize, WriterCheck)>,
    /// The position at which to stop until everything before is known to be of one version.
    held_back_from: Option<ChainPosition>,
    /// Whether the peer has had time to acknowledge the bytes before that position.
    has_waited: bool,
    candidates: Option<Candidates>,
    active: Option<Active>,
    /// The buffer for header bytes and small files.
    buffer: Vec<u8>,
    is_corked: bool,
    /// Whether the sink is a pipe that has lost its reader, so that the transfer succeeds only if
    /// the source is at its end.
    is_abandoned: bool,
    /// The most bytes of a step, which overrides the options.
    largest_step: usize,
    /// Whether the space for the segment at the front has been reserved.
    is_reserved: bool,
    pub(crate) started: Option<Instant>,
    /// When the observer was last called, and with how many bytes.
    last_observed: Option<(Instant, u64)>,
    is_done: bool,
    pub(crate) report: Report,
}

impl<'a, F: AsFd, S: AsFd> Transfer<'a, F, S> {
    /// Creates a transfer of one source, or of a whole chain.
    pub fn new(chain: impl Into<Chain<F>>, sink: Sink<S>) -> Self {
        Self {
            chain: chain.into(),
            sink,
            options: Options::default(),
            position: ChainPosition::default(),
            guards: Vec::new(),
            checks: Vec::new(),
            held_back_from: None,
            has_waited: false,
            candidates: None,
            active: None,
            buffer: Vec::new(),
            is_corked: false,
            is_abandoned: false,
            largest_step: usize::MAX,
            is_reserved: false,
            started: None,
            last_observed: None,
            is_done: false,
            report: Report::default(),
        }
    }

    /// Sets the options of the transfer.
    #[must_use]
    pub fn options(mut self, options: Options<'a>) -> Self {
        self.options = options;
        self
    }

    /// Moves as many bytes as the ends take without waiting, at most those of one turn.
    ///
    /// Streams have to be non-blocking, or this call waits inside the kernel.
    ///
    /// # Errors
    ///
    /// See [`Error`]. After an error the transfer is over.
    ///
    /// # On failure
    ///
    /// [`Error::bytes`] bytes are in the sink; another transfer can continue a file from there. A
    /// stream may have given up to one step more, which is lost. If the sink is a socket that has
    /// received some of the bytes, closing it resets the connection.
    pub fn advance(&mut self) -> Result<Status, Error> {
        self.begin()?;
        if self.awaits_writers()? {
            return Ok(Status::Waiting(Wait::Writer));
        }
        let mut turn = self.options.turn.0;
        while let Some(segment) = self.chain.segments.get(self.position.index) {
            if segment.len() == Some(self.position.offset) {
                self.next_segment();
                continue;
            }
            if self.held_back_from == Some(self.position) {
                match self.confirm()? {
                    Status::Done => continue,
                    status => return Ok(status),
                }
            }
            if turn == 0 {
                return Ok(Status::Yielded);
            }
            self.check_leases()?;
            match self.step() {
                Ok((Step::Moved(bytes), mechanism)) => {
                    self.moved(bytes.get(), mechanism)?;
                    turn = turn.saturating_sub(bytes.get() as u64);
                }
                Ok((Step::Copied(bytes, reason), mechanism)) => {
                    self.moved(bytes.get(), Mechanism::ReadWrite)?;
                    turn = turn.saturating_sub(bytes.get() as u64);
                    // No further step would show that these bytes are not of the promised version.
                    if self.is_segment_done() {
                        self.fall_back(mechanism, reason)?;
                    }
                }
                Ok((Step::Changed, _)) => return Err(self.changed(Integrity::Detect)),
                Ok((Step::Eof, _)) => self.source_ended()?,
                Ok((Step::NotReady(wait), _)) => {
                    self.report.waits += 1;
                    if !self.can_wait(wait) {
                        // poll(2) always reports files as ready, even if a call returns `EAGAIN`.
                        return Err(self.failed(Errno::AGAIN));
                    }
                    // The source may take long: let the peer have the bytes so far.
                    let is_held = wait == Wait::Source && !self.is_flushed()?;
                    return Ok(Status::Waiting(if is_held { Wait::Sink } else { wait }));
                }
                Ok((Step::Declined(reason), mechanism)) => self.fall_back(mechanism, reason)?,
                // Interrupted by a signal: the caller may want to check the transfer.
                Err(Errno::INTR) => return Ok(Status::Yielded),
                Err(Errno::PIPE) if self.holds_nothing() && self.may_be_complete() => {
                    self.is_abandoned = true;
                }
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        self.confirm_delivery()
    }

    /// Limits each call of [`advance`](Self::advance), and each system call, to this many bytes
    /// from now on: for a thread whose load varies.
    pub fn set_turn(&mut self, bytes: usize) {
        let bytes = bytes.max(1);
        self.options.turn = TurnLimit(bytes as u64);
        self.largest_step = bytes;
    }

    /// Returns the chain.
    pub fn chain(&self) -> &Chain<F> {
        &self.chain
    }

    /// Returns the report of what was done so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Returns the descriptor of the source at the front; `None` if the front is memory or nothing
    /// is left.
    pub(crate) fn source(&self) -> Option<BorrowedFd<'_>> {
        match self.chain.segments.get(self.position.index)? {
            Segment::Bytes(_) | Segment::Payload(_) => None,
            Segment::Source(source) => Some(source.fd.as_fd()),
        }
    }

    /// Returns the TLS transport of the sink; `None` without TLS or a socket.
    pub(crate) fn sink_tls(&self) -> Option<&'a dyn TlsTransport> {
        self.options.sink_tls.filter(|_| self.sink.kind == Kind::Socket)
    }

    /// Returns each stream among the sources.
    pub(crate) fn streams(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.chain.segments.iter().filter_map(|segment| match segment {
            Segment::Source(source) if source.kind.can_wait() => Some(source.fd.as_fd()),
            _ => None,
        })
    }

    /// Prepares the first step: starts the clock, sets the guards, corks the socket.
    fn begin(&mut self) -> Result<(), Error> {
        if self.started.is_some() {
            return Ok(());
        }
        self.started = Some(Instant::now());
        self.report.integrity = Some(self.options.integrity);
        if self.options.integrity != Integrity::Fast {
            self.set_guards()?;
            self.held_back_from = self.hold_back();
        }
        // TLS in this process already cuts its output into packets.
        let is_ours = self.sink_tls().is_some_and(|tls| !tls.is_in_kernel());
        if self.sink.kind == Kind::Socket && !is_ours && self.chain.wants_cork() {
            self.is_corked = socket::cork(&self.sink.fd);
        }
        Ok(())
    }

    /// Takes one step of the segment at the front, and returns the mechanism that took it.
    fn step(&mut self) -> Result<(Step, Mechanism), Errno> {
        let end = self.visible_segments();
        let Segment::Source(source) = &self.chain.segments[self.position.index] else {
            return self.memory_step().map(|step| (step, Mechanism::ReadWrite));
        };
        let rest = self.visible_len(source.len).map(|len| len - self.position.offset);
        let sink_tls = self.sink_tls();
        let active = match &mut self.active {
            Some(active) => active,
            none => {
                let candidates = &mut self.candidates;
                match self.options.next_candidate(candidates, source.kind, &self.sink) {
                    Some(first) => none.insert(Active::new(first)),
                    None => return Ok(self.options.no_candidate()),
                }
            }
        };
        let mechanism = active.mechanism();
        let file = match self.guards.get(self.position.index) {
            Some(Guard::Snapshot(clone)) => clone.as_fd(),
            _ => source.fd.as_fd(),
        };
        let ends = Ends {
            source: file,
            source_kind: source.kind,
            source_at: source.at.map(|at| at + self.position.offset),
            source_tls: self.options.source_tls.filter(|_| source.kind == Kind::Socket),
            sink: self.sink.fd.as_fd(),
            sink_kind: self.sink.kind,
            sink_at: self.sink.at,
            sink_tls,
            rest,
            is_followed: self.position.index + 1 < end,
        };
        if self.is_abandoned {
            return read_write::check_end(&ends).map(|step| (step, mechanism));
        }
        // A clone needs no space; every other mechanism may need all of it.
        if self.options.reserve && !self.is_reserved && mechanism != Mechanism::Reflink {
            self.is_reserved = true;
            if let (Kind::Regular, Some(at), Some(rest)) = (ends.sink_kind, ends.sink_at, ends.rest)
                && let Err(errno) = atomic_file::reserve(ends.sink, at, rest)
            {
                // No mechanism was tried, so none has failed.
                self.active = None;
                return Err(errno);
            }
        }
        let wanted = self.options.step.unwrap_or(active.default_step(&ends));
        let len = wanted.min(largest_step(mechanism)).min(self.largest_step);
        let mut meter = StepMeter::default();
        let step = active.step(&ends, len, self.options.pool(), &mut meter);
        self.report.mechanisms[mechanism as usize].calls += meter.calls;
        self.report.user_space_bytes += meter.user_space_bytes;
        let is_empty = source.kind == Kind::Virtual && ends.source_at == Some(0);
        Ok(match step? {
            // On FUSE the pages end at the file's size, although read(2) may return more.
            Step::Eof if is_empty && mechanism != Mechanism::ReadWrite => {
                (Step::Declined(DeclineReason::Nothing), mechanism)
            }
            step => (step, mechanism),
        })
    }

    /// Takes one step of the memory at the front, with the small files that follow it.
    fn memory_step(&mut self) -> Result<Step, Errno> {
        // Including files costs nothing extra if every byte is read to be encrypted here.
        let is_read = self.options.policy == Policy::Require(Mechanism::ReadWrite)
            && self.sink_tls().is_some_and(|tls| !tls.is_in_kernel());
        let is_free = (self.options.policy == Policy::Auto || is_read)
            && self.sink.kind == Kind::Socket
            && self.options.integrity != Integrity::Snapshot;
        let small = if is_free { self.options.max_small.unwrap_or(SMALL_TRANSFER) } else { 0 };
        let mut meter = StepMeter::default();
        let front = memory::ChainHead {
            segments: &self.chain.segments[..self.visible_memory()],
            position: self.position,
            is_followed: self.visible_memory() < self.visible_segments(),
        };
        let sink = (&self.sink, self.sink_tls());
        let (guards, buffer) = (&mut self.guards, &mut self.buffer);
        let step = memory::step(front, sink, guards, small, buffer, &mut meter);
        self.report.memory.calls += meter.memory_calls;
        self.report.count_read(meter.user_space_bytes, meter.calls);
        step
    }

    /// Counts delivered bytes for the segments that they belong to.
    fn moved(&mut self, moved: usize, mechanism: Mechanism) -> Result<(), Error> {
        let mut bytes = moved as u64;
        if let Some(at) = &mut self.sink.at {
            *at += bytes;
        }
        let from_memory = self.active.is_none();
        while let Some(segment) = self.chain.segments.get(self.position.index) {
            let rest = segment.len().map_or(u64::MAX, |len| len - self.position.offset);
            let part = bytes.min(rest);
            match segment {
                Segment::Bytes(_) => self.report.memory.bytes += part,
                Segment::Payload(_) => {
                    self.report.mechanisms[Mechanism::ReadWrite as usize].bytes += part;
                    self.report.user_space_bytes += 2 * part;
                }
                Segment::Source(_) => {
                    self.report.mechanisms[mechanism as usize].bytes += part;
                    if from_memory {
                        // The second crossing; the first was counted when the file was read.
                        self.report.user_space_bytes += part;
                    }
                }
            }
            self.position.offset += part;
            bytes -= part;
            if bytes == 0 {
                break;
            }
            self.next_segment();
        }
        self.report_progress();
        match self.sink_tls().filter(|tls| tls.is_in_kernel()) {
            Some(tls) => tls.sent(self.sink.fd.as_fd(), moved).map_err(|errno| self.failed(errno)),
            None => Ok(()),
        }
    }

    /// Returns whether the segment at the front has delivered all that it promised.
    fn is_segment_done(&self) -> bool {
        let segment = self.chain.segments.get(self.position.index);
        segment.is_some_and(|segment| segment.len() == Some(self.position.offset))
    }

    /// Proceeds to the next segment, for which every mechanism is tried again.
    fn next_segment(&mut self) {
        if let Some(active) = self.active.take() {
            active.release(self.options.pool());
        }
        self.candidates = None;
        self.is_reserved = false;
        self.position = ChainPosition { index: self.position.index + 1, offset: 0 };
    }

    /// Ends the segment whose source has no more bytes, or fails if more were promised.
    fn source_ended(&mut self) -> Result<(), Error> {
        let Some(expected) = self.expected() else {
            self.next_segment();
            return Ok(());
        };
        Err(Error::SourceEnded { expected, report: self.stop() })
    }

    /// Returns the length of the chain, or, if a later segment has no length, that up to the end of
    /// this segment; `None` if this one has none.
    fn expected(&self) -> Option<u64> {
        let missing = self.chain.segments[self.position.index].len()? - self.position.offset;
        Some(self.chain.len().unwrap_or(self.report.bytes() + missing))
    }

    /// Continues with the next candidate at the byte where this one declined.
    fn fall_back(&mut self, mechanism: Mechanism, reason: DeclineReason) -> Result<(), Error> {
        if reason == DeclineReason::Errno(Errno::NOSYS)
            && let Some(capabilities) = self.options.capabilities
        {
            capabilities.set_missing(mechanism);
        }
        let at = self.report.bytes();
        let what = Declined::Mechanism(mechanism);
        self.report.add_decline(Decline { what, reason, at, times: 1 });
        if let Some(active) = self.active.take() {
            active.release(self.options.pool());
        }
        let next = match &self.chain.segments[self.position.index] {
            Segment::Bytes(_) | Segment::Payload(_) => None,
            Segment::Source(source) => {
                self.options.next_candidate(&mut self.candidates, source.kind, &self.sink)
            }
        };
        let Some(next) = next else {
            let report = self.stop();
            return Err(Error::Declined { mechanism, reason, report });
        };
        self.active = Some(Active::new(next));
        Ok(())
    }

    fn failed(&mut self, errno: Errno) -> Error {
        let mechanism = self.active.as_ref().map(Active::mechanism);
        if (mechanism, errno) == (Some(Mechanism::Mmap), Errno::FAULT) {
            if self.sink.kind == Kind::Socket {
                // Bytes past the new end of the file are not counted, but the peer has them.
                let _ = socket::arm_reset(&self.sink.fd);
            }
            let expected = self.expected().unwrap_or(self.report.bytes());
            return Error::SourceEnded { expected, report: self.stop() };
        }
        Error::Io { mechanism, source: errno.into(), report: self.stop() }
    }

    /// Ends a failed transfer: a socket's peer must not mistake a part for the whole.
    pub(crate) fn stop(&mut self) -> Box<Report> {
        if self.sink.kind == Kind::Socket && self.report.bytes() > 0 {
            // A socket that cannot be reset is closed already.
            let _ = socket::arm_reset(&self.sink.fd);
        }
        if let Some(active) = self.active.take() {
            active.release(self.options.pool());
        }
        self.guards.clear();
        self.report.elapsed = self.elapsed();
        Box::new(self.report.clone())
    }

    fn elapsed(&self) -> std::time::Duration {
        self.started.map_or_else(Default::default, |started| started.elapsed())
    }

    /// Calls the observer, unless it was called too recently.
    fn report_progress(&mut self) {
        let Some(observer) = &mut self.options.observer else { return };
        let now = Instant::now();
        let bytes = self.report.bytes();
        let is_early = self.last_observed.is_some_and(|(last, observed)| {
            let is_due = self.options.observe_every.is_some_and(|every| bytes - observed >= every);
            !is_due && now.duration_since(last) < Progress::INTERVAL
        });
        if is_early {
            return;
        }
        self.last_observed = Some((now, bytes));
        let started = self.started.unwrap_or(now);
        observer(&Progress {
            bytes,
            expected: self.chain.len(),
            elapsed: now.duration_since(started),
            mechanism: self.report.main_mechanism(),
        });
    }
}
