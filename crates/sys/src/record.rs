//! TLS records with their type, which is available only in a control message.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::last_errno;

/// Receives one record that holds no data, or data from any number of records, from a socket whose
/// records the kernel decrypts. Returns the type, if the kernel reports one, and the number of
/// bytes.
///
/// # Errors
///
/// As recvmsg(2).
pub fn receive_record(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
    peek: bool,
) -> Result<(Option<u8>, usize), Errno> {
    exchange(socket, RecordBuffer::Receive { buffer, peek })
}

/// Sends one record of this type over a socket whose records the kernel encrypts.
///
/// # Errors
///
/// As sendmsg(2).
pub fn send_record(socket: BorrowedFd<'_>, kind: u8, bytes: &[u8]) -> Result<usize, Errno> {
    exchange(socket, RecordBuffer::Send { bytes, kind }).map(|(_, len)| len)
}

/// No signal if the peer is gone, and no blocking.
const SEND: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// The buffer that the kernel reads or writes.
enum RecordBuffer<'a> {
    Receive { buffer: &'a mut [u8], peek: bool },
    Send { bytes: &'a [u8], kind: u8 },
}

/// Room for one control message of one byte, aligned as its header requires.
#[derive(Default)]
#[repr(C, align(8))]
struct ControlMessage([u8; 32]);

/// Sends or receives one record by one call, and returns its type and length.
fn exchange(
    socket: BorrowedFd<'_>,
    mut bytes: RecordBuffer<'_>,
) -> Result<(Option<u8>, usize), Errno> {
    let socket = socket.as_raw_fd();
    let mut control = ControlMessage::default();
    let (base, len) = match &mut bytes {
        RecordBuffer::Receive { buffer, .. } => (buffer.as_mut_ptr(), buffer.len()),
        RecordBuffer::Send { bytes, .. } => (bytes.as_ptr().cast_mut(), bytes.len()),
    };
    let mut part = libc::iovec { iov_base: base.cast(), iov_len: len };
    // SAFETY: zeros are valid for each field of a message. It points to `part`, which describes a
    // slice that `bytes` borrows until the end of this function, exclusively if the kernel writes
    // to it, and to `control`, which is aligned and has room for the one header with its byte. They
    // are written here, or read only once the kernel reports that it has filled them in. Proved by
    // `engine/tests/ktls.rs::an_alert_is_distinguished_from_data`.
    let (kind, result) = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(1) as _;
        match bytes {
            RecordBuffer::Receive { peek, .. } => {
                let flags = libc::MSG_DONTWAIT | if peek { libc::MSG_PEEK } else { 0 };
                let result = libc::recvmsg(socket, &raw mut message, flags);
                let first = if result < 0 {
                    std::ptr::null_mut()
                } else {
                    libc::CMSG_FIRSTHDR(&raw const message)
                };
                let is_type = !first.is_null()
                    && (*first).cmsg_level == libc::SOL_TLS
                    && (*first).cmsg_type == libc::TLS_GET_RECORD_TYPE;
                (is_type.then(|| libc::CMSG_DATA(first).read()), result)
            }
            RecordBuffer::Send { kind, .. } => {
                let first = libc::CMSG_FIRSTHDR(&raw const message);
                (*first).cmsg_level = libc::SOL_TLS;
                (*first).cmsg_type = libc::TLS_SET_RECORD_TYPE;
                (*first).cmsg_len = libc::CMSG_LEN(1) as _;
                libc::CMSG_DATA(first).write(kind);
                (None, libc::sendmsg(socket, &raw const message, SEND))
            }
        }
    };
    usize::try_from(result).map(|len| (kind, len)).map_err(|_| last_errno())
}
