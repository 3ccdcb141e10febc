//! Ends connections that make no progress.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use underpass_engine::socket;

use super::Peer;
use super::activity::{Activity, CloseReason};

impl Peer {
    /// Closes the connection if it has made no progress for `timeout`.
    ///
    /// A request must be complete by then; a response must only make progress. A slow client rarely
    /// makes room in a large buffer but reads from it steadily, so acknowledgements count, too.
    /// Time that a handshake waits for this server does not count: a busy server would drop clients
    /// that it has half served.
    pub(crate) fn expire(&self, mut timeout: Duration, now: Instant) {
        if now.duration_since(self.since.get()) < timeout.min(CHECK_INTERVAL) {
            return;
        }
        match self.activity.get() {
            Activity::Waiting | Activity::Receiving | Activity::HandshakeStep => return,
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
            // The kernel has the rest of a response, which the client is reading.
            Activity::Idle if now.duration_since(self.since.get()) >= timeout => {
                let written = self.written.get();
                let seen = written.wrapping_add(self.acknowledged());
                let before = self.slow().seen.replace(seen);
                // A client that was still reading at the last check may have just finished.
                if before != seen && (before > written || self.is_sending_on()) {
                    self.since.set(now);
                    return;
                }
            }
            Activity::Idle | Activity::Discarding => {}
        }
        if self.is_for_health {
            timeout = timeout.min(MAX_RESERVE_TIME);
        }
        if now.duration_since(self.since.get()) >= timeout {
            self.closed.set(Some(CloseReason::Expired));
            self.terminate();
        }
    }

    /// Ends a connection that awaits no response: it has had its last one, or sends no first
    /// request. If a response is still in flight, the connection's task waits until it has arrived.
    pub(crate) fn drain(&self, now: Instant) {
        match self.activity.get() {
            Activity::Handshaking | Activity::Idle if !self.has_requested.get() => {
                self.expire(MAX_DRAINING_TIME, now);
            }
            Activity::Idle if self.has_input() => {}
            Activity::Idle if self.is_sending_on() => {
                // First the alert: after the end of its input, a TLS session sends none.
                self.send_close_notify();
                // This wakes the task.
                let _ = shutdown(&self.socket, Shutdown::Read);
            }
            Activity::Idle => self.terminate(),
            _ => {}
        }
    }

    /// Returns whether a connection that has been used waits for a request of which nothing has
    /// arrived.
    pub(crate) fn is_done(&self) -> bool {
        self.activity.get() == Activity::Idle && self.has_requested.get() && !self.has_input()
    }

    /// Returns whether unread bytes have arrived.
    pub(super) fn has_input(&self) -> bool {
        let seen = recv(&self.socket, &mut [0], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(seen, Ok((1.., _)))
    }

    /// Ends the connection in any activity: with a reset if a response is incomplete.
    pub(crate) fn terminate(&self) {
        let how = match self.activity.get() {
            Activity::Sending => {
                // A socket that cannot be reset is closed already.
                let _ = socket::arm_reset(&self.socket);
                self.is_given_up.set(true);
                if let Some(writer) = self.slow().writer.take() {
                    writer.wake();
                }
                // If the write side were shut down, a client that reads at this moment would see an
                // end before the reset, and accept a truncated response.
                Shutdown::Read
            }
            // A half-read request may still be answered.
            Activity::Reading | Activity::Discarding => Shutdown::Read,
            Activity::Idle => {
                self.send_close_notify();
                // The client is told that there are too many connections.
                let is_answered = self.is_for_health && self.session().is_none();
                if is_answered { Shutdown::Read } else { Shutdown::Both }
            }
            Activity::Handshaking
            | Activity::HandshakeStep
            | Activity::Waiting
            | Activity::Receiving => Shutdown::Both,
        };
        // This wakes the task that waits for the socket.
        let _ = shutdown(&self.socket, how);
    }

    /// Sends the closing alert of TLS (RFC 8446 6.1), if TLS is used. Must not be called in the
    /// middle of a response, which the client would accept as complete.
    pub(crate) fn send_close_notify(&self) {
        if let Some(session) = self.session() {
            session.close(self.socket.as_fd());
        }
    }
}

/// The maximum time that a handshake waits for its client.
const MAX_HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// The maximum time for a request head to arrive, and for the first request of a connection to
/// begin.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);

/// The maximum time for the first request of a connection to begin while the server shuts down.
const MAX_DRAINING_TIME: Duration = Duration::from_secs(2);

/// The maximum duration of each activity of a connection of the reserve.
const MAX_RESERVE_TIME: Duration = Duration::from_secs(2);

/// The time before a connection is first checked for progress.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
