//! A connection after its handshake.

use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use underpass_engine::{Front, Layer};

use super::user_space::UserSpace;

/// TLS on one socket after its handshake.
///
/// Nothing waits, whether or not the socket does, and all methods want the socket of the handshake.
/// Two threads may use it at once: one that sends and one that receives.
#[derive(Debug)]
pub struct Session {
    facts: Facts,
    records: Mutex<UserSpace>,
}

/// What is known of a session.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// Such as `TLS_AES_128_GCM_SHA256`.
    pub suite: &'static str,
    /// Whether it goes on with an earlier session.
    pub is_resumed: bool,
    /// Who encrypts.
    pub place: Place,
}

/// Who encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The kernel.
    Kernel,
    /// This process, and why.
    UserSpace(Why),
}

/// Why the kernel does not encrypt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was told not to.
    Unwanted,
    /// It has no TLS: `TCP_ULP` says `ENOENT`.
    NoModule,
    /// It does not know the cipher suite.
    Suite,
    /// It does not know this version of TLS.
    Version,
    /// Anything else, such as a filter of system calls.
    Refused(Errno),
}

impl Why {
    /// A word for labels and JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unwanted => "unwanted",
            Self::NoModule => "no_module",
            Self::Suite => "suite",
            Self::Version => "version",
            Self::Refused(_) => "refused",
        }
    }
}

impl Session {
    pub(super) fn new(facts: Facts, records: UserSpace) -> Self {
        Self { facts, records: Mutex::new(records) }
    }

    /// What is known of it.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether bytes or an end wait here rather than in the socket: receive before you wait for the
    /// socket.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.records().has_input()
    }

    /// Whether the peer has neither sent data nor ended the connection, so that it may be used for
    /// another request. Deals with tickets and the like.
    #[must_use]
    pub fn is_quiet(&self, socket: BorrowedFd<'_>) -> bool {
        self.peek(socket).is_none()
    }

    /// Whether the next that can be received is data (`Some(true)`), the end or a failure
    /// (`Some(false)`), or nothing yet, without taking it.
    #[must_use]
    pub fn peek(&self, socket: BorrowedFd<'_>) -> Option<bool> {
        self.records().peek(socket)
    }

    /// Says that nothing follows (close_notify), as far as the socket takes it at once: call it
    /// before the socket is shut down for writing. Nothing can be sent after it.
    pub fn close(&self, socket: BorrowedFd<'_>) {
        self.records().close(socket);
    }

    /// No thread leaves it half changed, so one that panicked does no harm.
    fn records(&self) -> MutexGuard<'_, UserSpace> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Layer for Session {
    fn is_in_kernel(&self) -> bool {
        self.facts.place == Place::Kernel
    }

    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize, Errno> {
        self.records().send(socket, bytes, more)
    }

    fn flush(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        self.records().flush(socket)
    }

    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.records().receive(socket, buffer)
    }

    fn take_control(&self, _socket: BorrowedFd<'_>) -> Result<Front, Errno> {
        Ok(Front::Data)
    }

    fn sent(&self, _socket: BorrowedFd<'_>, _bytes: usize) -> Result<(), Errno> {
        Ok(())
    }
}
