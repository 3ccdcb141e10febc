//! Receives heads and bodies over a connection: the engine moves bodies from the socket into their
//! file inside the kernel.
//!
//! The end of a head is known only once it has been read. So a head is read a few bytes at a time,
//! never more than are certain to belong to it. That takes some eighty short calls, worth it for a
//! body of a few hundred KiB; callers that expect small bodies set [`Incoming::is_eager`].
//!
//! With TLS the same holds if the kernel decrypts. If this process does, the bytes enter user
//! space anyway, and heads are read eagerly.

mod body;
mod chunks;
mod error;
mod head;
mod read_ahead;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use underpass_engine::Transfer;
use underpass_engine::wait::{Limits, StallDetector, WaitError};
use underpass_engine::{
    Chain, Error, Kind, Options, PipePool, Progress, Report, Sink, Source, TlsTransport,
};

use self::head::missing_of_head;
use self::read_ahead::ReadAhead;
use crate::tls::Session;

pub use body::{BodyFraming, ReceiveOptions, ReceivedBody};
pub use error::ReceiveError;

/// The file of a body, and the report of the bytes moved into it.
struct BodySink<'s> {
    file: &'s File,
    /// The offset of the body's first byte in the file.
    at: u64,
    options: ReceiveOptions<'s>,
    on_progress: &'s mut (dyn FnMut(&Progress) + Send),
    report: Report,
}

/// The receiving half of a non-blocking connection.
#[derive(Debug)]
pub struct Incoming<'a, S> {
    stream: S,
    /// The TLS session, if there is one.
    session: Option<Arc<Session>>,
    ahead: ReadAhead,
    timeout: Option<Duration>,
    /// What the peer has moved of what is received now.
    stall: StallDetector,
    deadline: Option<Instant>,
    cancel: Option<&'a AtomicBool>,
    /// Whether heads are read in large pieces, together with the beginning of the body.
    pub is_eager: bool,
    /// Whether these are responses, whose chunks are parsed leniently for old servers.
    pub is_of_server: bool,
}

impl<'a, S: AsFd> Incoming<'a, S> {
    /// Creates the receiving half of a non-blocking `stream`, from which the bytes `ahead` were
    /// already read.
    ///
    /// No call waits longer than `timeout` without progress, or much longer than until `cancel`
    /// becomes true.
    pub fn new(
        stream: S,
        ahead: Vec<u8>,
        timeout: Option<Duration>,
        cancel: Option<&'a AtomicBool>,
    ) -> Self {
        Self {
            stream,
            session: None,
            ahead: ReadAhead::new(ahead),
            timeout,
            stall: StallDetector::new(timeout, 0),
            deadline: None,
            cancel,
            is_eager: false,
            is_of_server: false,
        }
    }

    /// Uses TLS from now on.
    pub fn set_session(&mut self, session: Arc<Session>) {
        // Bytes that enter user space anyway can be read in large pieces.
        self.is_eager |= !session.is_in_kernel();
        self.session = Some(session);
    }

    /// Returns the TLS session, if there is one.
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref()
    }

    /// Returns the connection.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// Replaces the cancel flag.
    pub fn set_cancel(&mut self, cancel: Option<&'a AtomicBool>) {
        self.cancel = cancel;
    }

    /// Returns the longest time without progress, and the cancel flag.
    pub fn limits(&self) -> (Option<Duration>, Option<&'a AtomicBool>) {
        (self.timeout, self.cancel)
    }

    /// Sets the longest time without progress.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
        self.set_min_rate(0);
    }

    /// Sets how many bytes per second have to come on average over the timeout, for the body that
    /// follows a head; 0 if each byte may take as long as the timeout.
    pub fn set_min_rate(&mut self, rate: u64) {
        self.stall = StallDetector::new(self.timeout, rate);
    }

    /// Sets the deadline for everything that is read into memory, however steadily it arrives;
    /// returns the previous deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) -> Option<Instant> {
        std::mem::replace(&mut self.deadline, deadline)
    }

    /// Returns whether there are bytes that were read in advance and not used: they precede those
    /// still in the connection.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Returns the bytes that were read but not used: the beginning of the next message.
    #[must_use]
    pub fn into_ahead(self) -> Vec<u8> {
        self.ahead.into_vec()
    }

    /// Reads the head of a message, with the blank line at its end; `None` if the connection ends
    /// before its first byte.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]; `TooLong` for a head of more than `max` bytes.
    pub fn head(&mut self, max: usize) -> Result<Option<Vec<u8>>, ReceiveError> {
        let mut head = Vec::with_capacity(512);
        let mut started = None;
        self.set_min_rate(0);
        loop {
            let needed = missing_of_head(&head);
            if needed == 0 {
                return Ok(Some(head));
            }
            if head.len() >= max {
                return Err(ReceiveError::TooLong);
            }
            // A peer that sends a byte now and then would occupy the caller for hours.
            if let (Some(started), Some(limit)) = (started, self.timeout)
                && Instant::elapsed(&started) >= limit
            {
                return Err(ReceiveError::Stalled);
            }
            started = started.or_else(|| (!head.is_empty()).then(Instant::now));
            if !self.has_more(needed)? {
                return if head.is_empty() { Ok(None) } else { Err(ReceiveError::Ended) };
            }
            let take = needed.min(self.ahead.len());
            head.extend_from_slice(&self.ahead[..take]);
            self.ahead.consume(take);
        }
    }

    /// Waits for the first bytes of a message, and returns whether they match `prefix`, as far as
    /// they arrived before the end. They are not consumed.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`].
    pub fn starts_with(&mut self, prefix: &[u8]) -> Result<bool, ReceiveError> {
        self.set_min_rate(0);
        loop {
            let len = prefix.len().min(self.ahead.len());
            if len == prefix.len() || self.ahead[..len] != prefix[..len] {
                return Ok(self.ahead[..len] == prefix[..len]);
            }
            let max = if self.is_eager { EAGER } else { prefix.len() - len };
            if self.read(max)? == 0 {
                return Ok(true);
            }
        }
    }

    /// Reads exactly `len` bytes into memory.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]; `Ended` if there are fewer.
    pub fn exactly(&mut self, len: usize) -> Result<Vec<u8>, ReceiveError> {
        while self.ahead.len() < len {
            let missing = len - self.ahead.len();
            if self.read(if self.is_eager { missing.max(EAGER) } else { missing })? == 0 {
                return Err(ReceiveError::Ended);
            }
        }
        Ok(self.ahead.take(len))
    }

    /// Reads exactly `len` bytes and appends them to `out`.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]; `Ended` if there are fewer.
    pub fn append(&mut self, out: &mut Vec<u8>, len: usize) -> Result<(), ReceiveError> {
        let end = out.len() + len;
        let here = len.min(self.ahead.len());
        out.extend_from_slice(&self.ahead[..here]);
        self.ahead.consume(here);
        let mut at = out.len();
        out.resize(end, 0);
        while at < end {
            match self.receive(&mut out[at..])? {
                0 => return Err(ReceiveError::Ended),
                read => at += read,
            }
        }
        Ok(())
    }

    /// Reads a body into memory.
    ///
    /// # Errors
    ///
    /// [`ReceiveError`]; `TooLong` for one of more than `max` bytes.
    pub fn memory(&mut self, framing: BodyFraming, max: usize) -> Result<Vec<u8>, ReceiveError> {
        match framing {
            BodyFraming::Length(len) => match usize::try_from(len) {
                Ok(len) if len <= max => self.exactly(len),
                _ => Err(ReceiveError::TooLong),
            },
            BodyFraming::UntilEnd => {
                while self.ahead.len() <= max {
                    if self.read(EAGER)? == 0 {
                        return Ok(std::mem::take(&mut self.ahead).into_vec());
                    }
                }
                Err(ReceiveError::TooLong)
            }
            BodyFraming::Chunked => self.chunks_in_memory(max),
        }
    }

    /// Moves a body into `file`, from the byte `at` on. It calls `on_progress` with the number of
    /// bytes of the body that are in the file, at intervals and at least every
    /// [`ReceiveOptions::progress_every`] bytes.
    ///
    /// # On failure
    ///
    /// The bytes that [`ReceivedBody::report`] counts are in the file, in order and without a gap.
    /// The connection is somewhere inside the body, and of no further use.
    pub fn body(
        &mut self,
        framing: BodyFraming,
        file: &File,
        at: u64,
        receive_options: &ReceiveOptions<'_>,
        on_progress: &mut (dyn FnMut(&Progress) + Send),
    ) -> ReceivedBody {
        let is_file = Sink::of(file).is_ok_and(|sink| sink.kind() == Kind::Regular);
        if !is_file && !matches!(framing, BodyFraming::Length(_)) {
            // Something that goes on as long as it happens, such as a log.
            self.set_min_rate(0);
        }
        let own_pipes = PipePool::default();
        let options = ReceiveOptions {
            pipes: Some(receive_options.pipes.unwrap_or(&own_pipes)),
            ..*receive_options
        };
        let mut sink = BodySink { file, at, options, on_progress, report: Report::default() };
        let outcome = match framing {
            BodyFraming::Length(len) => self.data(Some(len), &mut sink),
            BodyFraming::UntilEnd => self.data(None, &mut sink),
            BodyFraming::Chunked => self.chunks(&mut sink),
        };
        ReceivedBody { report: sink.report, outcome }
    }

    /// Appends `len` bytes, or everything up to the end, to the sink.
    fn data(&mut self, len: Option<u64>, sink: &mut BodySink<'_>) -> Result<(), ReceiveError> {
        let here = len.map_or(self.ahead.len(), |len| {
            usize::try_from(len).unwrap_or(usize::MAX).min(self.ahead.len())
        });
        // One byte more than accepted shows that the body is too long.
        let limit = sink.options.limit.filter(|_| len.is_none());
        let max = len.or(limit.map(|limit| limit.saturating_add(1)));
        if limit.is_some_and(|limit| here as u64 > limit) {
            return Err(ReceiveError::TooLong);
        }
        let ahead = self.ahead.take(here);
        self.transfer(ahead, max.map(|max| max - here as u64), limit, sink)
    }

    /// Appends bytes that were read, and then `missing` more of the connection or all up to its
    /// end, to the sink. With a `limit` the connection may end before, and must.
    fn transfer(
        &mut self,
        ahead: Vec<u8>,
        missing: Option<u64>,
        limit: Option<u64>,
        sink: &mut BodySink<'_>,
    ) -> Result<(), ReceiveError> {
        let BodySink { file, at, options: receive_options, on_progress, report } = sink;
        let before = report.bytes();
        let expected =
            missing.filter(|_| limit.is_none()).map(|missing| ahead.len() as u64 + missing);
        let chain = Chain::new().payload(ahead);
        let chain = match missing {
            Some(0) => chain,
            Some(missing) => chain.source(Source::of(&self.stream)?.len(missing)),
            None => chain.source(Source::of(&self.stream)?),
        };
        let mut options = Options::default().policy(receive_options.policy).observer(|progress| {
            on_progress(&Progress { bytes: before + progress.bytes, expected, ..*progress });
        });
        if let Some(session) = &self.session {
            options = options.source_tls(&**session);
        }
        if let Some(pipes) = receive_options.pipes {
            options = options.pipes(pipes);
        }
        if let Some(step) = receive_options.step {
            options = options.step(step);
        }
        if let Some(bytes) = receive_options.progress_every {
            options = options.observe_every(bytes);
        }
        // The bytes in memory were counted when they were read.
        if missing != Some(0) {
            options = options.stall_detector(&mut self.stall);
        }
        if let Some(cancel) = self.cancel {
            options = options.cancel(cancel);
        }
        if receive_options.reserve && limit.is_none() {
            options = options.reserve();
        }
        match Transfer::new(chain, Sink::of(&**file)?.at(*at + before)).options(options).run() {
            Ok(done) => {
                report.add(&done);
                if limit.is_some() { Err(ReceiveError::TooLong) } else { Ok(()) }
            }
            // The body ended within the limit.
            Err(Error::SourceEnded { report: done, .. }) if limit.is_some() => {
                report.add(&done);
                Ok(())
            }
            Err(mut error) => {
                report.add(error.report());
                // Each chunk is a transfer; the message tells of all of them.
                error.report_mut().clone_from(report);
                Err(self.sorted(error.into()))
            }
        }
    }

    /// Returns whether a byte is available, and reads if none is. At most `needed` bytes are read,
    /// unless heads are read eagerly.
    fn has_more(&mut self, needed: usize) -> Result<bool, ReceiveError> {
        let max = if self.is_eager { EAGER } else { needed };
        Ok(!self.ahead.is_empty() || self.read(max)? > 0)
    }

    /// Reads at most `max` bytes, and no more than [`EAGER`], after those already read; returns 0
    /// at the end.
    fn read(&mut self, max: usize) -> Result<usize, ReceiveError> {
        let mut ahead = std::mem::take(&mut self.ahead);
        // Each call zeroes this many bytes, however few arrive.
        let outcome = ahead.append(max.min(EAGER), |room| self.receive(room));
        self.ahead = ahead;
        outcome
    }

    /// Waits for bytes, and reads as many as fit into `room`; returns 0 at the end.
    fn receive(&mut self, room: &mut [u8]) -> Result<usize, ReceiveError> {
        loop {
            if self.is_late() {
                return Err(ReceiveError::Late);
            }
            let outcome = match &self.session {
                Some(session) => session.receive(self.stream.as_fd(), room),
                None => recv(&self.stream, &mut *room, RecvFlags::DONTWAIT).map(|(_, read)| read),
            };
            match outcome {
                Ok(read) => {
                    self.stall.moved(read as u64);
                    return Ok(read);
                }
                Err(Errno::AGAIN) => self.wait()?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.sorted(ReceiveError::Io(errno.into()))),
            }
        }
    }

    /// Recognizes the errors that only TLS reports: an unannounced end, records that fail
    /// authentication, messages that the peer may not send, a key that has reached its limit.
    fn sorted(&self, error: ReceiveError) -> ReceiveError {
        match error.errno().filter(|_| self.session.is_some()) {
            Some(Errno::CONNABORTED) => ReceiveError::Cut,
            Some(errno @ (Errno::BADMSG | Errno::PROTO | Errno::KEYEXPIRED)) => {
                ReceiveError::Io(errno.into())
            }
            _ => error,
        }
    }

    fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Waits a moment for something to read; fails if the time is up or the flag is set.
    fn wait(&mut self) -> Result<(), ReceiveError> {
        let started = Instant::now();
        let limits = Limits::since(started, self.stall.left(), self.cancel);
        let limits = limits.no_later_than(self.deadline);
        let waited = limits.poll(&mut [PollFd::new(&self.stream, PollFlags::IN)]);
        self.stall.waited(started.elapsed());
        match waited {
            Ok(_) => Ok(()),
            Err(WaitError::Cancelled) => Err(ReceiveError::Cancelled),
            Err(WaitError::TimedOut) if self.is_late() => Err(ReceiveError::Late),
            Err(WaitError::TimedOut) => Err(ReceiveError::Stalled),
        }
    }
}

/// The most bytes that one call reads.
const EAGER: usize = 64 << 10;
