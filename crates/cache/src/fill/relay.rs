//! Relays bytes from the origin to one client through a pipe, without storing them.
//!
//! A thread splices the origin's bytes into the pipe, and the client's connection splices them out
//! again. A slow client leaves the pipe full, which slows down its own relay and nothing else.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use underpass_engine::wait::lock;

use crate::error::{CacheError, CacheErrorKind, ConnectionFault};

/// The client's end of a relay. Dropping it ends the relay.
pub(crate) struct Relay {
    pipe: Arc<OwnedFd>,
    shared: Arc<RelayShared>,
    ranges: Sender<Range<u64>>,
    /// The reason why the bytes are not stored.
    pub(crate) why: CacheErrorKind,
}

/// The origin's end of a relay. Dropping it ends the client's response.
pub(crate) struct RelayWriter {
    /// The write end of the pipe.
    pub(super) pipe: File,
    pub(super) shared: Arc<RelayShared>,
    ranges: Receiver<Range<u64>>,
}

#[derive(Debug, Default)]
pub(crate) struct RelayShared(Mutex<RelayState>);

#[derive(Debug, Default)]
struct RelayState {
    /// The range that the client reads, once it is known.
    wanted: Option<Range<u64>>,
    /// The offset up to which the range has been written to the pipe.
    at: u64,
    waker: Option<Waker>,
    /// The time since which the client has been waiting.
    waiting: Option<Instant>,
    /// The connection from which a body is received.
    origin: Option<TcpStream>,
    has_left: bool,
    /// The outcome, once the relay has ended.
    ended: Option<Result<(), CacheError>>,
}

impl Relay {
    /// Creates both ends, for bytes that are not stored for the reason `why`.
    pub(crate) fn new(why: CacheErrorKind) -> io::Result<(Self, RelayWriter)> {
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A smaller pipe works, too.
        let _ = fcntl_setpipe_size(&write_end, CAPACITY);
        let (sender, ranges) = channel();
        let shared = Arc::new(RelayShared::default());
        let writer = RelayWriter { pipe: write_end.into(), shared: Arc::clone(&shared), ranges };
        Ok((Self { pipe: Arc::new(read_end), shared, ranges: sender, why }, writer))
    }

    /// Returns the end of the pipe from which the bytes are read in order.
    pub(crate) fn pipe(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.pipe)
    }

    /// Returns the end of the bytes from `at` on that are in the pipe, once there are some; `at`
    /// itself at the end of a body without a length. The first call determines the range to relay.
    /// `None` if this byte is not in it.
    pub(crate) fn poll(
        &self,
        range: Range<u64>,
        waker: &Waker,
    ) -> Option<Poll<Result<u64, CacheError>>> {
        let mut state = lock(&self.shared.0);
        if state.wanted.is_none() {
            state.at = range.start;
            state.wanted = Some(range.clone());
            // If the writer is gone, the state has the outcome.
            let _ = self.ranges.send(range.clone());
        }
        if !state.wanted.as_ref().is_some_and(|wanted| wanted.contains(&range.start)) {
            return None;
        }
        state.waiting = state.waiting.filter(|_| state.at <= range.start);
        Some(if state.at > range.start {
            Poll::Ready(Ok(state.at.min(range.end)))
        } else if let Some(ended) = &state.ended {
            Poll::Ready(ended.clone().map(|()| range.start))
        } else {
            state.waiting.get_or_insert_with(Instant::now);
            state.waker = Some(waker.clone());
            Poll::Pending
        })
    }

    /// Returns whether the client has waited this long in the middle of a body.
    pub(crate) fn has_stalled(&self, limit: Duration) -> bool {
        let state = lock(&self.shared.0);
        state.origin.is_some() && state.waiting.is_some_and(|since| since.elapsed() >= limit)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.0);
        state.has_left = true;
        state.end_origin();
    }
}

impl RelayState {
    /// Shuts down the connection from which a body is received, because a thread may be waiting for
    /// it without a timeout.
    fn end_origin(&self) {
        if let Some(origin) = &self.origin {
            let _ = origin.shutdown(Shutdown::Both);
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relay").field(&self.shared).finish()
    }
}

impl RelayWriter {
    /// Waits for the range that the client reads; `None` if it has disconnected.
    pub(super) fn wanted(&self) -> Option<Range<u64>> {
        self.ranges.recv().ok()
    }

    /// Ends the relay. It fails if bytes that the client reads are missing, whatever the outcome.
    pub(super) fn end(&self, outcome: Result<(), CacheError>) {
        self.shared.change(|state| {
            let is_whole = state.wanted.as_ref().is_none_or(|wanted| {
                // Without a length, only the outcome tells.
                wanted.end == u64::MAX || state.at >= wanted.end
            });
            let cut_off = if is_whole { Ok(()) } else { Err(ConnectionFault::CutOff.into()) };
            state.ended.get_or_insert(outcome.and(cut_off));
        });
    }
}

impl Drop for RelayWriter {
    fn drop(&mut self) {
        self.end(Err(CacheErrorKind::Disk.into()));
    }
}

impl RelayShared {
    /// Records that the bytes before this offset are in the pipe.
    pub(super) fn arrived(&self, at: u64) {
        self.change(|state| state.at = at);
    }

    /// Sets the connection from which a body is received. It is shut down when the client
    /// disconnects, or immediately if it already has.
    pub(super) fn watch(&self, origin: Option<TcpStream>) {
        let mut state = lock(&self.0);
        state.origin = origin;
        if state.has_left {
            state.end_origin();
        }
    }

    /// Returns whether the client has disconnected.
    pub(super) fn has_left(&self) -> bool {
        lock(&self.0).has_left
    }

    fn change(&self, change: impl FnOnce(&mut RelayState)) {
        let waker = {
            let mut state = lock(&self.0);
            change(&mut state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// The size of a relay's pipe in bytes. All relays together stay within the limit of a user
/// (`pipe-user-pages-soft`, pipe(7)).
const CAPACITY: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_relay_that_ends_early_has_failed() {
        for (end, len, is_whole) in [(10, 10, true), (9, 10, false), (9, u64::MAX, true)] {
            let (client, writer) = Relay::new(CacheErrorKind::NoRoom).unwrap();
            assert!(client.poll(0..len, Waker::noop()).unwrap().is_pending());
            writer.shared.arrived(end);
            writer.end(Ok(()));
            let Some(Poll::Ready(polled)) = client.poll(end..len.max(end + 1), Waker::noop())
            else {
                assert_eq!(end, len);
                continue;
            };
            assert_eq!(polled.is_ok(), is_whole);
        }
    }

    #[test]
    fn a_relay_whose_client_has_left_shuts_down_the_origin() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut origin = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_silent, _) = listener.accept().unwrap();
        origin.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (client, writer) = Relay::new(CacheErrorKind::NoRoom).unwrap();
        drop(client);
        writer.shared.watch(Some(origin.try_clone().unwrap()));
        assert_eq!(origin.read(&mut [0]).unwrap(), 0);
    }
}
