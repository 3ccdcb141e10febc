//! A handshake from its beginning to its end, for those who have a thread to wait with.

use std::os::fd::AsFd;

use rustix::event::PollFlags;
use underpass_engine::wait::Limits;

use super::error::HandshakeError;
use super::handshake::{Handshake, Progress};
use super::session::Session;

impl Handshake {
    /// Shakes hands over a socket that does not block, and waits for the peer where need be.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]; `Io` with `ETIMEDOUT` if it is not done by the deadline, and with `EINTR`
    /// soon after the flag became true.
    pub fn complete(
        mut self,
        socket: impl AsFd,
        limits: Limits<'_>,
    ) -> Result<Session, HandshakeError> {
        loop {
            let readiness = match self.advance(socket.as_fd())? {
                Progress::Done(session) => return Ok(session),
                Progress::Reads => PollFlags::IN,
                Progress::Writes => PollFlags::OUT,
            };
            let ready = limits.until_ready(&socket, readiness);
            ready.map_err(|expired| HandshakeError::Io(expired.into()))?;
        }
    }
}
