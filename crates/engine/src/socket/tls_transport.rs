//! TLS between the bytes of a transfer and a socket.
//!
//! The engine has no cryptography. After the handshake the caller passes in a [`TlsTransport`]
//! for the end that is a socket. If the kernel encrypts (kTLS), the mechanisms work on the socket
//! as on any other, and the transport only handles the records that hold no data. If it does not,
//! bytes cross user space through the transport, and every mechanism but `read_write` is declined
//! without a call, as [`DeclineReason::UserSpaceTls`](crate::DeclineReason::UserSpaceTls).

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;

/// TLS on a socket at one end of a transfer.
///
/// No method waits: what cannot be done now fails with `EAGAIN`, and is called again when the
/// socket is ready. A transfer sends and receives through a user-space transport with
/// [`send`](Self::send), [`flush`](Self::flush) and [`receive`](Self::receive). If the kernel
/// encrypts, the transfer writes to the socket itself and reports the bytes with
/// [`sent`](Self::sent).
pub trait TlsTransport: fmt::Debug + Send + Sync {
    /// Returns whether the kernel encrypts what is written to the socket and decrypts what is
    /// read.
    fn is_in_kernel(&self) -> bool;

    /// Returns whether the transport copies the bytes it accepts, so that a later change of their
    /// file cannot affect them: always, unless a network card encrypts the pages of the file.
    fn copies(&self) -> bool {
        true
    }

    /// Accepts bytes from memory for the peer and returns how many, at least one unless `bytes` is
    /// empty. `more` means that others follow immediately.
    ///
    /// Accepted bytes count as written to the socket, although the transport may still hold them
    /// until [`flush`](Self::flush) succeeds.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if nothing can be accepted before the socket is writable, and as send(2).
    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize, Errno>;

    /// Writes everything that was accepted to the socket.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the socket has to become writable first, and as send(2).
    fn flush(&self, socket: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Reads the peer's next bytes into memory and returns how many; 0 once the peer has closed
    /// its side.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the socket has to become readable first, `ECONNABORTED` if the connection ended
    /// without the peer's announcement (RFC 8446 6.1: the data may be incomplete), `EBADMSG` for
    /// records that fail authentication, `EPROTO` for a protocol violation, and as recv(2).
    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// Handles the record at the front if it holds no data, after splice(2) from a socket whose
    /// records the kernel decrypts failed or found an end.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    fn take_control(&self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno>;

    /// Notes that one call has given the kernel `bytes` to encrypt, so that records can be counted:
    /// one key may encrypt only a limited number. The key may be changed now.
    ///
    /// # Errors
    ///
    /// `EKEYEXPIRED` if the key has reached its limit and cannot be changed: the connection has
    /// to end.
    fn sent(&self, socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno>;
}

/// The record at the front of a socket whose records the kernel decrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A record without data, which has been handled. Try again.
    Control,
    /// Data, or nothing yet: the failure had another reason.
    Data,
    /// The peer has closed its side: nothing follows.
    End,
}

/// Sends bytes from memory over a socket, through the transport if this process has to encrypt.
pub(crate) fn send(
    tls: Option<&dyn TlsTransport>,
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    more: bool,
) -> Result<usize, Errno> {
    match tls.filter(|tls| !tls.is_in_kernel()) {
        Some(tls) => match tls.send(socket, bytes, more) {
            // Zero would be mistaken for the end of the source.
            Ok(0) => Err(Errno::IO),
            sent => sent,
        },
        None => {
            let more = if more { SendFlags::MORE } else { SendFlags::empty() };
            rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more)
        }
    }
}
