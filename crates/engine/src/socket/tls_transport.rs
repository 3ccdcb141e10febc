//! TLS between the bytes of a transfer and a socket.
//!
//! The engine knows no cryptography. After the handshake the caller passes in a [`TlsTransport`] for
//! the end that is a socket. If the kernel encrypts (kTLS), the mechanisms work on the socket as on
//! any other, and the transport only handles the records that hold no data. If it does not, bytes
//! cross user space through the transport, and every mechanism but `read_write` is declined with
//! `EPROTONOSUPPORT`.

use std::fmt;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;

/// TLS on a socket at one end of a transfer.
///
/// Nothing here waits: what cannot be done now fails with `EAGAIN`, and is asked again when the
/// socket is ready. A transfer sends and receives through a user-space transport with
/// [`send`](Self::send), [`flush`](Self::flush) and [`receive`](Self::receive). If the kernel
/// encrypts, it gives bytes to the socket itself and tells so by [`sent`](Self::sent).
pub trait TlsTransport: fmt::Debug + Send + Sync {
    /// Returns whether the kernel encrypts what is written to the socket and decrypts what is
    /// read.
    fn is_in_kernel(&self) -> bool;

    /// Returns whether bytes are copied when they are taken, so that a later change of their file
    /// cannot show in them: always, unless a network card encrypts the pages of the file
    /// themselves.
    fn copies(&self) -> bool {
        true
    }

    /// Takes bytes from memory for the peer; how many, of some at least one. `more` tells that
    /// others follow at once.
    ///
    /// What was taken is as good as written to a socket: it may still be held here, and
    /// [`flush`](Self::flush) tells when it no longer is.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if nothing can be taken before the socket is writable, and as send(2).
    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], more: bool) -> Result<usize, Errno>;

    /// Hands everything that was taken to the socket.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the socket has to become writable first, and as send(2).
    fn flush(&self, socket: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Reads the peer's next bytes into memory; 0 when the peer has said that none follow.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the socket has to become readable first, `ECONNABORTED` if the connection ended
    /// without the peer having said so (RFC 8446 6.1: what came may be a part only), `EBADMSG` for
    /// what is not the peer's, `EPROTO` for what the peer may not say, and as recv(2).
    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno>;

    /// After splice(2) from a socket whose records the kernel decrypts failed or found an end:
    /// deals with the record at the front if it holds no data.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    fn take_control(&self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno>;

    /// Told that the kernel has taken `bytes` by one call and encrypts them, so that records can be
    /// counted: a key is fit for so many only. It may change the key now.
    ///
    /// # Errors
    ///
    /// `EKEYEXPIRED` if the key is worn and cannot be changed: the connection has to end.
    fn sent(&self, socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno>;
}

/// What was at the front of a socket whose records the kernel decrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A record that holds no data, which has been dealt with. Try again.
    Control,
    /// Data, or nothing yet: the failure had another reason.
    Data,
    /// The peer has said that nothing follows.
    End,
}

/// Sends bytes from memory over a socket, through the transport if this process has to encrypt them.
pub(crate) fn send(
    tls: Option<&dyn TlsTransport>,
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    more: bool,
) -> Result<usize, Errno> {
    match tls.filter(|tls| !tls.is_in_kernel()) {
        Some(tls) => match tls.send(socket, bytes, more) {
            // Would be taken for the end of the source.
            Ok(0) => Err(Errno::IO),
            sent => sent,
        },
        None => {
            let more = if more { SendFlags::MORE } else { SendFlags::empty() };
            rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | more)
        }
    }
}
