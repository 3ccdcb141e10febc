//! A connection after its handshake.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use underpass_engine::wait::lock;
use underpass_engine::{RecordKind, TlsTransport};

use super::records::Kernel;
use super::records::UserSpace;
use crate::session_facts::{EncryptedBy, SessionFacts};

/// TLS on one socket after its handshake.
///
/// No method waits, even on a blocking socket, and all need the socket of the handshake. Two
/// threads may use it at once: one that sends and one that receives.
#[derive(Debug)]
pub struct Session {
    pub(super) facts: SessionFacts,
    /// Whether a network card may read the pages of files after send calls have returned.
    pub(super) by_reference: bool,
    /// The name that the client requested, if there are sites.
    pub(super) server_name: Option<Box<str>>,
    pub(super) records: Mutex<Records>,
}

/// What makes and reads the records.
#[derive(Debug)]
pub(super) enum Records {
    Here(UserSpace),
    Kernel(Kernel),
}

impl Session {
    /// Returns the name that the client requested, if there are
    /// [sites](super::Identities::set_sites).
    #[must_use]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the facts of the session.
    #[must_use]
    pub fn facts(&self) -> &SessionFacts {
        &self.facts
    }

    /// Returns whether bytes or an end wait here rather than in the socket: receive them before
    /// waiting for the socket.
    #[must_use]
    pub fn has_input(&self) -> bool {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.has_input(),
            Records::Kernel(records) => records.has_input(),
        }
    }

    /// Returns whether the peer has neither sent data nor ended the connection, so that it may be
    /// used for another request. It handles tickets and other control records.
    #[must_use]
    pub fn is_quiet(&self, socket: BorrowedFd<'_>) -> bool {
        self.peek(socket).is_none()
    }

    /// Returns, without consuming anything, whether data can be received (`Some(true)`), the end or
    /// a failure (`Some(false)`), or nothing yet.
    #[must_use]
    pub fn peek(&self, socket: BorrowedFd<'_>) -> Option<bool> {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.peek(socket),
            Records::Kernel(records) => records.peek(socket),
        }
    }

    /// Returns how many bytes of records the socket has not accepted yet.
    #[must_use]
    pub fn held(&self) -> usize {
        match &*lock(&self.records) {
            Records::Here(records) => records.held(),
            Records::Kernel(_) => 0,
        }
    }

    /// Returns how many received bytes were not consumed yet, including the beginning of a record.
    #[must_use]
    pub fn kept(&self) -> usize {
        match &*lock(&self.records) {
            Records::Here(records) => records.kept(),
            Records::Kernel(_) => 0,
        }
    }

    /// Sends a close_notify, as far as the socket accepts it at once: call it before the socket is
    /// shut down for writing. Nothing can be sent after it; [`flush`](TlsTransport::flush) reports
    /// whether the socket has accepted it.
    pub fn close(&self, socket: BorrowedFd<'_>) {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.close(socket),
            Records::Kernel(records) => records.close(socket),
        }
    }
}

impl TlsTransport for Session {
    fn is_in_kernel(&self) -> bool {
        self.facts.encrypted_by == EncryptedBy::Kernel
    }

    fn copies(&self) -> bool {
        !self.by_reference
    }

    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize, Errno> {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.send(socket, bytes, more),
            Records::Kernel(records) => records.send(socket, bytes, more),
        }
    }

    fn flush(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.flush(socket),
            Records::Kernel(records) => records.flush(socket),
        }
    }

    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        match &mut *lock(&self.records) {
            Records::Here(records) => records.receive(socket, buffer),
            Records::Kernel(records) => records.receive(socket, buffer),
        }
    }

    fn take_control(&self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        match &mut *lock(&self.records) {
            Records::Here(_) => Ok(RecordKind::Data),
            Records::Kernel(records) => records.front(socket),
        }
    }

    fn sent(&self, socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        match &mut *lock(&self.records) {
            Records::Here(_) => Ok(()),
            Records::Kernel(records) => records.sent(socket, bytes),
        }
    }
}
