//! TLS in the kernel (kTLS): its socket options and records, without any cryptography or handshake.
//!
//! Once a handshake is done, its keys are given to the kernel: [`attach`], then [`install`] for
//! each direction. From then on what is written to the socket is encrypted there and what is read
//! from it is decrypted, so that sendfile(2) and splice(2) work as on any other. Only records that
//! hold no data, such as alerts, need [`receive`] and [`send_record`].
//!
//! The kernel's own description is Documentation/networking/tls.rst.

mod keys;
mod probe;
mod self_test;

use std::os::fd::AsFd;

use rustix::io::Errno;
use underpass_sys::{self as sys, SocketOption};

pub use keys::{Cipher, KeyDirection, RecordKeys, TlsVersion};
pub use probe::{Support, loopback_pair, probe};
pub use self_test::{SelfTest, SelfTestError, self_test};

/// The record type of application data (`application_data`, RFC 8446 5.1).
pub const DATA: u8 = 23;

/// Makes an established TCP connection ready for keys. Until it has some, it behaves as before.
///
/// # Errors
///
/// `ENOENT` if the kernel has no TLS module or may not load it, `ENOTCONN` if the connection is
/// not established, `EEXIST` if it is already attached, and as setsockopt(2) for `TCP_ULP`.
pub fn attach(socket: impl AsFd) -> Result<(), Errno> {
    sys::set_option(socket.as_fd(), SocketOption::UpperLayer, b"tls")
}

/// Gives the kernel the keys of one direction, or new keys later on (Linux 6.14, TLS 1.3 only).
///
/// No byte of the first record of these keys may have been read from the socket.
///
/// # Errors
///
/// `EINVAL` if the key does not have the cipher's length or the kernel does not know the version or
/// cipher, `ENOENT` if it has no code for the cipher, `EBUSY` if it already has keys and accepts no
/// new ones, and as setsockopt(2) for `TLS_TX` and `TLS_RX`.
pub fn install(
    socket: impl AsFd,
    direction: KeyDirection,
    keys: &RecordKeys<'_>,
) -> Result<(), Errno> {
    let option = match direction {
        KeyDirection::Send => SocketOption::TlsSend,
        KeyDirection::Receive => SocketOption::TlsReceive,
    };
    sys::set_option(socket.as_fd(), option, keys.encode()?.bytes())
}

/// Lets a network card that encrypts read the pages of files directly when they are sent, instead
/// of copies (`TLS_TX_ZEROCOPY_RO`): a file that changes before the peer has it breaks the
/// connection. It has no effect where the kernel itself encrypts.
///
/// # Errors
///
/// `ENOPROTOOPT` before Linux 5.19, and as setsockopt(2).
pub fn set_zero_copy(socket: impl AsFd) -> Result<(), Errno> {
    sys::set_option(socket.as_fd(), SocketOption::TlsZeroCopy, &1_u32.to_ne_bytes())
}

/// A record received by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsRecord {
    /// The type: 23 for data, 22 for a message of a handshake, 21 for an alert, 20 for
    /// `change_cipher_spec`.
    pub kind: u8,
    /// The number of bytes; 0 bytes of data mean the end of the TCP connection.
    pub len: usize,
}

/// Receives data from any number of records, or one record that holds no data.
///
/// The rest of a record that does not fit into `buffer` is returned by the next call. With `peek`,
/// nothing is consumed. On a socket without keys everything is data. This call never waits, even on
/// a blocking socket.
///
/// # Errors
///
/// `EAGAIN` if nothing has arrived yet, `EBADMSG` for a record that fails authentication,
/// `EKEYEXPIRED` if the peer has changed its key (Linux 6.14), and as recvmsg(2).
pub fn receive(socket: impl AsFd, buffer: &mut [u8], peek: bool) -> Result<TlsRecord, Errno> {
    let (kind, len) = sys::receive_record(socket.as_fd(), buffer, peek)?;
    Ok(TlsRecord { kind: kind.unwrap_or(DATA), len })
}

/// Sends a record that holds no data; data held back by `MSG_MORE` is sent before it. This call
/// never waits, even on a blocking socket.
///
/// # Errors
///
/// `EAGAIN` if nothing can be sent before the socket is writable, and as sendmsg(2).
pub fn send_record(socket: impl AsFd, kind: u8, bytes: &[u8]) -> Result<usize, Errno> {
    sys::send_record(socket.as_fd(), kind, bytes)
}
