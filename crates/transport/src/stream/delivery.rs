//! The end of a stream: how its sender learns that everything has arrived, and its receiver that
//! everything was sent.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use underpass_engine::wait::{Limits, MIN_RATE, StallDetector, WaitError};
use underpass_engine::{Error, Report, TlsTransport, socket};

use super::{Stream, unix_reset};
use crate::tls::Session;

/// A stream that was sent, and what is needed to end it.
#[derive(Debug)]
pub struct Outgoing<'l> {
    /// The stream.
    pub stream: &'l Stream,
    /// Its TLS session, if it has one.
    pub session: Option<&'l Session>,
    /// The cancel flag.
    pub cancel: &'l AtomicBool,
    /// The longest time without progress.
    pub timeout: Option<Duration>,
}

impl Outgoing<'_> {
    /// Ends the stream and waits until the peer's kernel has every byte: only then no page is
    /// referenced any more, and nothing can be lost when this process exits.
    ///
    /// # Errors
    ///
    /// Those of the stream, each with the report.
    pub fn deliver(&self, report: Report) -> Result<Report, Error> {
        let Self { stream, cancel, timeout, .. } = *self;
        let failed = |source| failed(&report, source);
        if let Some(session) = self.session {
            self.end_records(session).map_err(|errno| failed(errno.into()))?;
        }
        stream.finish().map_err(failed)?;
        let mut left = u64::MAX;
        let mut stall = StallDetector::new(timeout, MIN_RATE);
        let mut moment = MIN_PAUSE;
        loop {
            let now = socket::unacknowledged(stream).map_err(failed)?;
            if now == 0 {
                break;
            }
            if now < left {
                stall.moved(left - now);
                left = now;
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled { report: Box::new(report) });
            }
            if let Some(timeout) = stall.stalled() {
                return Err(Error::Stalled { timeout, report: Box::new(report) });
            }
            let started = Instant::now();
            wait_a_moment(stream, moment).map_err(|errno| failed(errno.into()))?;
            stall.waited(started.elapsed());
            moment = (moment * 2).min(MAX_PAUSE);
        }
        Ok(report)
    }

    /// Waits a moment for the receiver to complete its file. If it cannot, it resets the connection.
    ///
    /// # Errors
    ///
    /// As [`deliver`](Self::deliver).
    pub fn end(&self, report: Report) -> Result<Report, Error> {
        let Self { stream, cancel, timeout, .. } = *self;
        let failed = |source| failed(&report, source);
        if let Stream::Tcp(socket) = stream {
            // A receiver that keeps the connection open has every byte all the same.
            let limits = Limits::since(Instant::now(), Some(MAX_END_WAIT), Some(cancel));
            let _ = limits.until_ready(socket, PollFlags::RDHUP);
        }
        // A peer that disconnected without reading causes this error by now.
        if let Ok(Err(errno)) = sockopt::socket_error(stream.as_fd()) {
            return Err(failed(errno.into()));
        }
        // Unread bytes, such as TLS tickets, would reset the connection when it is closed.
        if let Some(session) = self.session {
            let _ = session.peek(stream.as_fd());
        }
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        unix_reset::confirm(stream, limits, MAX_END_WAIT).map_err(|errno| failed(errno.into()))?;
        let _ = socket::disarm_reset(stream);
        Ok(report)
    }

    /// Sends the closing record of TLS, and waits until the socket has accepted it.
    fn end_records(&self, session: &Session) -> Result<(), Errno> {
        let Self { stream, cancel, timeout, .. } = *self;
        session.close(stream.as_fd());
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        while let Err(errno) = session.flush(stream.as_fd()) {
            if errno != Errno::AGAIN && errno != Errno::INTR {
                return Err(errno);
            }
            limits.poll(&mut [PollFd::new(stream, PollFlags::OUT)])?;
        }
        Ok(())
    }
}

/// Tells the sender that everything it has sent is stored. A receiver that ends the stream without
/// this has failed, and the sender fails, too.
pub fn acknowledge(stream: &Stream) {
    unix_reset::acknowledge(stream);
    let _ = socket::disarm_reset(stream);
}

fn failed(report: &Report, source: io::Error) -> Error {
    Error::Io { mechanism: None, source, report: Box::new(report.clone()) }
}

/// Waits for this time, or less if the connection fails.
fn wait_a_moment(stream: &Stream, moment: Duration) -> Result<(), Errno> {
    let mut end = [PollFd::new(stream, PollFlags::empty())];
    let timeout = Timespec { tv_sec: 0, tv_nsec: moment.subsec_nanos().into() };
    if poll(&mut end, Some(&timeout)) != Ok(0) {
        sockopt::socket_error(stream)?.or(Err(Errno::CONNRESET))?;
        // The peer has closed properly but not yet acknowledged the last bytes.
        thread::sleep(moment);
    }
    Ok(())
}

/// Checks that the stream ends after its last expected byte. A sender that keeps the connection
/// open and sends nothing for a moment counts as complete, unless it is one that always confirms
/// the end.
///
/// # Errors
///
/// `InvalidData` if more has arrived; the stream's error if the sender has failed.
pub fn expect_end(
    stream: &Stream,
    session: Option<&Session>,
    size: u64,
    limits: Limits<'_>,
) -> io::Result<()> {
    let always_ends = unix_reset::is_confirmed(stream);
    let moment = (!always_ends).then(|| Instant::now() + END_WAIT);
    let limits = limits.no_later_than(moment);
    loop {
        let next = match session {
            None => {
                let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
                recv(stream, &mut [0_u8; 1], flags).map(|(_, bytes)| bytes)
            }
            Some(session) => match session.peek(stream.as_fd()) {
                None => Err(Errno::AGAIN),
                Some(true) => Ok(1),
                // Returns the end or the failure.
                Some(false) => session.receive(stream.as_fd(), &mut [0]),
            },
        };
        match next {
            Ok(0) => return Ok(()),
            Ok(_) => {
                let why = format!("more than the {size} bytes of --size arrived");
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        match limits.poll(&mut [PollFd::new(stream, PollFlags::IN)]) {
            Err(WaitError::TimedOut) if !always_ends => return Ok(()),
            outcome => outcome.map(drop)?,
        }
    }
}

/// The shortest pause: a small file over a fast network is acknowledged immediately.
const MIN_PAUSE: Duration = Duration::from_micros(20);

/// A thousand checks a second cost nothing compared to the transfer that is awaited.
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The maximum wait for the end of a receiver that has all bytes.
const MAX_END_WAIT: Duration = Duration::from_secs(1);

/// Enough time for a sender on most networks to learn that everything has arrived and then end or
/// reset the connection.
const END_WAIT: Duration = Duration::from_secs(1);
