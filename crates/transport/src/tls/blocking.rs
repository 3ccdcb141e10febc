//! Completes a handshake on a thread that may block.

use std::os::fd::AsFd;

use rustix::event::PollFlags;
use underpass_engine::wait::Limits;

use super::error::HandshakeError;
use super::handshake::{Handshake, HandshakeProgress};
use super::session::Session;

impl Handshake {
    /// Completes a handshake over a non-blocking socket, waiting for the peer where necessary.
    ///
    /// # Errors
    ///
    /// [`HandshakeError`]; `Io` with `ETIMEDOUT` if it is not done by the deadline, and with
    /// `EINTR` soon after the flag became true.
    pub fn complete(
        mut self,
        socket: impl AsFd,
        limits: Limits<'_>,
    ) -> Result<Session, HandshakeError> {
        loop {
            let readiness = match self.advance(socket.as_fd())? {
                HandshakeProgress::Done(session) => return Ok(session),
                HandshakeProgress::Reads => PollFlags::IN,
                HandshakeProgress::Writes => PollFlags::OUT,
            };
            let ready = limits.until_ready(&socket, readiness);
            ready.map_err(|expired| HandshakeError::Io(expired.into()))?;
        }
    }
}
