//! Drives a transfer to completion, waiting through `wait` until its ends are ready.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, pread};
use underpass_sys::Kind;
use underpass_sys::Usage;

use crate::chain::Segment;
use crate::error::Error;
use crate::mechanisms::step::Wait;
use crate::report::Report;
use crate::socket;
use crate::transfer::options::{PeerMessage, TurnLimit};
use crate::transfer::{Status, Transfer};
use crate::wait::{self, StallDetector};

impl<F: AsFd, S: AsFd> Transfer<'_, F, S> {
    /// Moves every byte, waiting whenever an end is not ready.
    ///
    /// While it runs, the streams among the ends are non-blocking; their flags are restored
    /// afterwards. The bytes are those in the file when the kernel reads each page, which over a
    /// socket may be after this returns: see [`Integrity`](crate::Integrity).
    ///
    /// # Errors
    ///
    /// See [`Error`].
    ///
    /// # On failure
    ///
    /// As [`advance`](Transfer::advance).
    pub fn run(mut self) -> Result<Report, Error> {
        let before = (!self.options.unmetered).then(Usage::of_this_thread);
        let outcome = self.drive();
        let usage = before.map(|before| Box::new(Usage::of_this_thread() - before));
        match outcome {
            Ok(()) => {
                self.report.usage = usage;
                Ok(self.report)
            }
            Err(mut error) => {
                error.report_mut().usage = usage;
                Err(error)
            }
        }
    }

    /// Returns whether an end that this wait concerns can be polled; files cannot.
    pub(super) fn can_wait(&self, wait: Wait) -> bool {
        let source = match self.chain.segments.get(self.position.index) {
            Some(Segment::Source(source)) => Some(source.kind),
            _ => None,
        };
        match wait {
            Wait::Source => source.is_none_or(Kind::can_wait),
            // One call may have tried both ends, so the source may be the one that was not ready.
            Wait::Sink => self.sink.kind.can_wait() || source.is_some_and(Kind::can_wait),
            Wait::Acknowledgement | Wait::Writer => true,
        }
    }

    fn drive(&mut self) -> Result<(), Error> {
        let blocking = self.set_nonblocking();
        let outcome = self.drive_nonblocking();
        self.set_blocking(&blocking);
        outcome
    }

    fn drive_nonblocking(&mut self) -> Result<(), Error> {
        if self.options.cancel.is_some() || self.options.listener.is_some() {
            // Endless sources such as /dev/zero never wait: check the flag after each step.
            self.options.turn = TurnLimit(1);
        }
        let mut last_look = Instant::now();
        let mut idle = StallDetector::new(self.options.timeout, 0);
        let mut seen = (0, 0);
        let mut spin = Spin::default();
        loop {
            if self.options.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                let report = self.stop();
                return Err(Error::Cancelled { report });
            }
            let wait = match self.advance()? {
                Status::Done => {
                    // The detector may go on to the next transfer, such as that of another chunk.
                    if let Some(stall) = self.options.stall.as_mut() {
                        stall.moved(self.report.bytes() - seen.0);
                    }
                    return Ok(());
                }
                Status::Yielded => {
                    if self.options.listener.is_some() && last_look.elapsed() >= LISTEN_INTERVAL {
                        last_look = Instant::now();
                        self.listen()?;
                    }
                    continue;
                }
                Status::Waiting(wait) => wait,
            };
            let (started, is_peer) = (Instant::now(), self.is_peer(wait));
            if wait == Wait::Sink && spin.is_endless(self.report.bytes()) {
                if self.is_source_refused() {
                    return Err(self.failed(Errno::AGAIN));
                }
                // poll(2) reports nothing useful until the kernel has memory for the socket again.
                wait::poll(&mut [], Some(STARVED_INTERVAL));
            }
            let limit = self.count_progress(wait, &mut idle, &mut seen)?;
            self.wait(wait, limit)?;
            idle.waited(started.elapsed());
            if let Some(stall) = self.options.stall.as_mut().filter(|_| is_peer) {
                stall.waited(started.elapsed());
            }
        }
    }

    /// Counts what has moved since it was `seen`, and returns how long to wait until the next count;
    /// fails if that is too little.
    fn count_progress(
        &mut self,
        wait: Wait,
        idle: &mut StallDetector,
        seen: &mut (u64, u64),
    ) -> Result<Option<Duration>, Error> {
        if self.options.timeout.is_none() && self.options.stall.is_none() {
            return Ok(None);
        }
        // A slow peer takes long to make room in a large buffer, but reads from it steadily.
        let in_flight = if wait == Wait::Source { seen.1 } else { self.in_flight() };
        let before = std::mem::replace(seen, (self.report.bytes(), in_flight));
        let moved = seen.0 - before.0 + before.1.saturating_sub(seen.1);
        idle.moved(u64::from(*seen != before));
        let stall = self.options.stall.as_deref_mut().map(|stall| {
            stall.moved(moved);
            *stall
        });
        let detectors = [Some(*idle), stall];
        if let Some(timeout) = detectors.iter().flatten().find_map(StallDetector::stalled) {
            let report = self.stop();
            return Err(Error::Stalled { timeout, report });
        }
        let limits = detectors.iter().flatten().filter_map(StallDetector::limit);
        Ok(limits.min())
    }

    /// Returns whether it is the peer of a socket that is waited for.
    fn is_peer(&self, wait: Wait) -> bool {
        match (wait, self.chain.segments.get(self.position.index)) {
            (Wait::Source, Some(Segment::Source(source))) => source.kind == Kind::Socket,
            (Wait::Sink | Wait::Acknowledgement, _) => self.sink.kind == Kind::Socket,
            (Wait::Source | Wait::Writer, _) => false,
        }
    }

    /// Returns whether the source at the front is the end that is not ready.
    fn is_source_refused(&self) -> bool {
        let Some(Segment::Source(source)) = self.chain.segments.get(self.position.index) else {
            return false;
        };
        let fd = source.fd.as_fd();
        match source.at {
            Some(at) => {
                // The kernel requests this many bytes; a smaller read might not be refused.
                let mut bytes = vec![0; PIPE_BYTES];
                pread(fd, &mut bytes[..], at + self.position.offset) == Err(Errno::AGAIN)
            }
            None => {
                let mut ends = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
                !wait::poll(&mut ends, Some(Duration::ZERO))
            }
        }
    }

    /// Waits until the transfer can continue, or until the clock, the lease or the cancel flag has
    /// to be checked.
    fn wait(&mut self, awaited: Wait, limit: Option<Duration>) -> Result<(), Error> {
        let look = self.options.cancel.is_some() || self.holds_lease();
        let bound = match awaited {
            Wait::Acknowledgement => Some(ACKNOWLEDGEMENT_INTERVAL),
            Wait::Writer => Some(WRITER_INTERVAL),
            Wait::Sink | Wait::Source => look.then_some(wait::POLL_INTERVAL),
        };
        let timeout = bound.into_iter().chain(limit).min();
        let mut sink_events =
            if awaited == Wait::Sink { PollFlags::OUT } else { PollFlags::empty() };
        if self.options.listener.is_some() {
            sink_events |= PollFlags::IN;
        }
        let sink = PollFd::from_borrowed_fd(self.sink.fd.as_fd(), sink_events);
        let source = self.source().filter(|_| awaited == Wait::Source);
        if let Some(source) = source.filter(|_| self.is_abandoned) {
            wait::poll(&mut [PollFd::from_borrowed_fd(source, PollFlags::IN)], timeout);
            return Ok(());
        }
        let (sink_failed, is_heard) = match source {
            None => {
                let mut ends = [sink];
                wait::poll(&mut ends, timeout);
                (
                    awaited != Wait::Sink && has_failed(&ends[0], PollFlags::empty()),
                    speaks(&ends[0]),
                )
            }
            Some(source) => {
                let mut ends = [sink, PollFd::from_borrowed_fd(source, PollFlags::IN)];
                wait::poll(&mut ends, timeout);
                // A peer that hangs up does not come back, unless only its response is awaited.
                (has_failed(&ends[0], PollFlags::HUP), speaks(&ends[0]))
            }
        };
        // A peer that is gone may have sent a reason first.
        if is_heard && self.options.listener.is_some() {
            self.hear()?;
        }
        // Nothing is written before the source has something, perhaps never, so only this shows
        // that the peer is gone. A pipe without a reader has accepted all bytes so far: the source
        // may be at its end.
        if sink_failed && awaited == Wait::Source && self.may_be_complete() {
            self.is_abandoned = true;
            return Ok(());
        }
        // A reader may leave a pipe once it has read all; bytes still in the pipe decide.
        if sink_failed && awaited == Wait::Acknowledgement && self.sink.kind == Kind::Pipe {
            return Ok(());
        }
        if sink_failed { Err(self.sink_failed()) } else { Ok(()) }
    }

    /// Checks whether the peer has sent something, and calls the listener if so.
    fn listen(&mut self) -> Result<(), Error> {
        let mut ends = [PollFd::from_borrowed_fd(self.sink.fd.as_fd(), PollFlags::IN)];
        wait::poll(&mut ends, Some(Duration::ZERO));
        if speaks(&ends[0]) { self.hear() } else { Ok(()) }
    }

    /// Calls the listener to read what the peer has sent.
    fn hear(&mut self) -> Result<(), Error> {
        match self.options.listener.as_mut().map(|listener| listener()) {
            Some(PeerMessage::Continue) | None => Ok(()),
            Some(PeerMessage::StopListening) => {
                self.options.listener = None;
                Ok(())
            }
            Some(PeerMessage::Abort) => {
                let report = self.stop();
                Err(Error::Answered { report })
            }
        }
    }

    /// Returns the error of a sink that failed while nothing was being written to it.
    fn sink_failed(&mut self) -> Error {
        let errno = match self.sink.kind {
            Kind::Socket => socket::pending_error(&self.sink.fd).unwrap_or(Errno::CONNRESET),
            _ => Errno::PIPE,
        };
        let report = self.stop();
        Error::Io { mechanism: None, source: errno.into(), report }
    }

    /// Makes the streams non-blocking, and returns which were not: sources in their order, the
    /// sink last.
    fn set_nonblocking(&self) -> Vec<bool> {
        let sink = Some(self.sink.fd.as_fd()).filter(|_| self.sink.kind.can_wait());
        self.streams().chain(sink).map(|stream| change_flag(stream, true)).collect()
    }

    fn set_blocking(&self, was_blocking: &[bool]) {
        let sink = Some(self.sink.fd.as_fd()).filter(|_| self.sink.kind.can_wait());
        for (stream, _) in
            self.streams().chain(sink).zip(was_blocking).filter(|(_, was_blocking)| **was_blocking)
        {
            change_flag(stream, false);
        }
    }
}

/// Counts waits that return at once although nothing moves: poll(2) reports the socket as ready,
/// but the file returns `EAGAIN`, as some on FUSE do, or the kernel has no memory for the socket.
#[derive(Default)]
struct Spin {
    bytes: u64,
    since: Option<Instant>,
    waits: u32,
}

impl Spin {
    /// Counts a wait after this number of bytes, and returns whether the transfer is spinning.
    fn is_endless(&mut self, bytes: u64) -> bool {
        if bytes != self.bytes || self.waits == MAX_WAITS {
            *self = Self { bytes, ..Self::default() };
        }
        self.waits += 1;
        let since = *self.since.get_or_insert_with(Instant::now);
        self.waits == MAX_WAITS && since.elapsed() < SPIN_TIME
    }
}

/// More waits without a byte in [`SPIN_TIME`] than anything but a spin can cause.
const MAX_WAITS: u32 = 100;

/// The usual capacity of a pipe, in bytes; sendfile(2) reads through one.
const PIPE_BYTES: usize = 64 << 10;

/// The pause before another attempt to get memory for a socket.
const STARVED_INTERVAL: Duration = Duration::from_millis(10);

const SPIN_TIME: Duration = Duration::from_secs(1);

/// Sets or clears `O_NONBLOCK`, and returns whether that changed anything.
fn change_flag(stream: BorrowedFd<'_>, nonblocking: bool) -> bool {
    let Ok(flags) = fcntl_getfl(stream) else { return false };
    if flags.contains(OFlags::NONBLOCK) == nonblocking {
        return false;
    }
    fcntl_setfl(stream, flags ^ OFlags::NONBLOCK).is_ok()
}

/// Returns whether there is something to read.
fn speaks(end: &PollFd<'_>) -> bool {
    end.revents().contains(PollFlags::IN)
}

fn has_failed(end: &PollFd<'_>, also: PollFlags) -> bool {
    end.revents().intersects(PollFlags::ERR | PollFlags::NVAL | also)
}

/// The interval of listening to a peer that accepts bytes without a pause.
const LISTEN_INTERVAL: Duration = Duration::from_millis(20);

/// The interval of checking whether a writer has stopped.
const WRITER_INTERVAL: Duration = Duration::from_millis(10);

/// The interval of counting the peer's acknowledgements, which no event announces.
const ACKNOWLEDGEMENT_INTERVAL: Duration = Duration::from_millis(1);
