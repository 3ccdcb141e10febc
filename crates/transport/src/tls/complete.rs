//! A handshake from its beginning to its end, for those who have a thread to wait with.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::error::HandshakeError;
use super::handshake::{Handshake, Progress};
use super::session::Session;

impl Handshake {
    /// Shakes hands over a socket that does not block, and waits for the peer where need be.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]; `Io` with `ETIMEDOUT` if it is not done by `deadline`, and with `EINTR` soon
    /// after `cancel` became true.
    pub fn complete(
        mut self,
        socket: impl AsFd,
        deadline: Instant,
        cancel: Option<&AtomicBool>,
    ) -> Result<Session, HandshakeError> {
        loop {
            let readiness = match self.advance(socket.as_fd())? {
                Progress::Done(session) => return Ok(session),
                Progress::Reads => PollFlags::IN,
                Progress::Writes => PollFlags::OUT,
            };
            loop {
                if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
                    return Err(HandshakeError::Io(Errno::INTR.into()));
                }
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(HandshakeError::Io(io::Error::from(Errno::TIMEDOUT)));
                }
                let moment = Timespec::try_from(left.min(LOOK_INTERVAL)).ok();
                let mut end = [PollFd::new(&socket, readiness)];
                // An interruption is as good as a timeout: the next look tells more.
                if poll(&mut end, moment.as_ref()).is_ok_and(|ready| ready > 0) {
                    break;
                }
            }
        }
    }
}

/// How often it is looked whether the connection is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
