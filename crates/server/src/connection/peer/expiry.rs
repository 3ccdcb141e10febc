//! Ends connections that make no progress.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use underpass_engine::socket;

use super::{Activity, Peer};

impl Peer {
    /// Closes it if it made no progress for as long as `timeout`.
    ///
    /// A request has to be complete by then; a response only has to make progress. A slow client
    /// makes room in a large buffer rarely but reads from it steadily, so acknowledgements count,
    /// too.
    pub(crate) fn expire(&self, mut timeout: Duration, now: Instant) {
        if now.duration_since(self.since.get()) < timeout.min(CHECK_INTERVAL) {
            return;
        }
        match self.activity.get() {
            Activity::Waiting | Activity::Receiving => return,
            Activity::Sending => {
                let seen = self.written.get().wrapping_add(self.acknowledged());
                if self.slow().seen.replace(seen) != seen {
                    self.since.set(now);
                    return;
                }
            }
            Activity::Handshaking => timeout = timeout.min(MAX_HANDSHAKE_TIME),
            Activity::Reading => timeout = timeout.min(MAX_REQUEST_TIME),
            Activity::Idle if !self.has_requested.get() => timeout = timeout.min(MAX_REQUEST_TIME),
            Activity::Idle | Activity::Discarding => {}
        }
        if self.is_reserve {
            timeout = timeout.min(MAX_RESERVE_TIME);
        }
        if now.duration_since(self.since.get()) >= timeout {
            self.is_expired.set(true);
            self.terminate();
        }
    }

    /// Ends a connection that has no request. If its last response is still on its way, the task of
    /// the connection waits until it has arrived.
    pub(crate) fn drain(&self) {
        if self.activity.get() == Activity::Idle && self.is_sending_on() {
            // After an end of the other side TLS would not send it.
            self.send_close_notify();
            // This wakes the task.
            let _ = shutdown(&self.socket, Shutdown::Read);
        } else {
            self.terminate();
        }
    }

    /// Ends the connection during any activity: with a reset if a response is not whole.
    pub(crate) fn terminate(&self) {
        let how = match self.activity.get() {
            Activity::Sending => {
                // A socket that cannot be reset is closed already.
                let _ = socket::arm_reset(&self.socket);
                self.is_given_up.set(true);
                if let Some(writer) = self.slow().writer.take() {
                    writer.wake();
                }
                // If the other direction ended here, a client that reads at this moment would see
                // an end before the reset, and take a part for the whole.
                Shutdown::Read
            }
            // A half-read request may still be answered.
            Activity::Reading | Activity::Discarding => Shutdown::Read,
            Activity::Idle => {
                self.send_close_notify();
                // The response is that there are too many connections.
                let is_answered = self.is_reserve && self.session().is_none();
                if is_answered { Shutdown::Read } else { Shutdown::Both }
            }
            Activity::Handshaking | Activity::Waiting | Activity::Receiving => Shutdown::Both,
        };
        // This wakes the task that waits for the socket.
        let _ = shutdown(&self.socket, how);
    }

    /// Sends the closing alert of TLS (RFC 8446 6.1), if TLS is used. It must not be called in the
    /// middle of a response: its client would take a part for the whole.
    pub(crate) fn send_close_notify(&self) {
        if let Some(session) = self.session() {
            session.close(self.socket.as_fd());
        }
    }
}

/// The maximum duration of a handshake.
const MAX_HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The maximum time for a request to come, without its body, and for the first request of a
/// connection to begin.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);

/// The maximum duration of each activity of a connection of the reserve.
const MAX_RESERVE_TIME: Duration = Duration::from_secs(2);

/// The time before a connection is first checked for progress.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
