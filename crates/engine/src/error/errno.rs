//! Error numbers, and their symbols as used in receipts and metrics.

use std::borrow::{Borrow, Cow};
use std::io;

use rustix::io::Errno;

pub use crate::error::errno_help::errno_help;

/// Returns the number of an error; `EIO` for one that no system call has reported.
#[must_use]
pub fn of(error: impl Borrow<io::Error>) -> Errno {
    Errno::from_io_error(error.borrow()).unwrap_or(Errno::IO)
}

/// Returns the symbol of an error, such as `EINVAL`; `errno 123` for one that moving bytes never
/// causes.
#[must_use]
pub fn name(errno: Errno) -> Cow<'static, str> {
    SYMBOLS.iter().find(|(known, _)| *known == errno).map_or_else(
        || format!("errno {}", errno.raw_os_error()).into(),
        |(_, name)| (*name).into(),
    )
}

const SYMBOLS: [(Errno, &str); 47] = [
    (Errno::ACCESS, "EACCES"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::BADF, "EBADF"),
    (Errno::BADMSG, "EBADMSG"),
    (Errno::BUSY, "EBUSY"),
    (Errno::CONNABORTED, "ECONNABORTED"),
    (Errno::CONNREFUSED, "ECONNREFUSED"),
    (Errno::CONNRESET, "ECONNRESET"),
    (Errno::DQUOT, "EDQUOT"),
    (Errno::EXIST, "EEXIST"),
    (Errno::FAULT, "EFAULT"),
    (Errno::FBIG, "EFBIG"),
    (Errno::HOSTUNREACH, "EHOSTUNREACH"),
    (Errno::INTR, "EINTR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::IO, "EIO"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::KEYEXPIRED, "EKEYEXPIRED"),
    (Errno::MFILE, "EMFILE"),
    (Errno::MSGSIZE, "EMSGSIZE"),
    (Errno::NETUNREACH, "ENETUNREACH"),
    (Errno::NFILE, "ENFILE"),
    (Errno::NOBUFS, "ENOBUFS"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOENT, "ENOENT"),
    (Errno::NOLCK, "ENOLCK"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::NOPROTOOPT, "ENOPROTOOPT"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::NOTCONN, "ENOTCONN"),
    (Errno::NOTSOCK, "ENOTSOCK"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::NXIO, "ENXIO"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::PERM, "EPERM"),
    (Errno::PIPE, "EPIPE"),
    (Errno::PROTO, "EPROTO"),
    (Errno::PROTONOSUPPORT, "EPROTONOSUPPORT"),
    (Errno::PROTOTYPE, "EPROTOTYPE"),
    (Errno::ROFS, "EROFS"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::STALE, "ESTALE"),
    (Errno::TIMEDOUT, "ETIMEDOUT"),
    (Errno::TXTBSY, "ETXTBSY"),
    (Errno::XDEV, "EXDEV"),
];
