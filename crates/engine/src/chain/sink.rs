//! The sink of a transfer: where the bytes go.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{OFlags, fcntl_getfl, fstat};
use underpass_sys::Kind;

/// Something that takes bytes: a file at an offset, the end of a file, a stream or a device.
#[derive(Clone, Debug)]
pub struct Sink<S> {
    pub(crate) fd: S,
    pub(crate) kind: Kind,
    /// Offset of the next byte, for a seekable sink that was not opened with `O_APPEND`.
    pub(crate) at: Option<u64>,
    pub(crate) appends: bool,
}

impl<S: AsFd> Sink<S> {
    /// Creates a sink from `fd`. A file is written from its first byte on, one opened with
    /// `O_APPEND` at its end.
    ///
    /// # Errors
    ///
    /// `EISDIR` for a directory, `EPROTOTYPE` for a socket that is not a stream, and as fstat(2).
    pub fn of(fd: S) -> io::Result<Self> {
        let kind = Kind::of_sink(&fd, &fstat(&fd)?)?;
        if kind == Kind::Socket {
            crate::socket::require_stream(&fd)?;
        }
        let appends = kind == Kind::Regular && fcntl_getfl(&fd)?.contains(OFlags::APPEND);
        let at = (kind.is_seekable() && !appends).then_some(0);
        Ok(Self { fd, kind, at, appends })
    }

    /// Creates a sink from a connected stream socket without inspecting it.
    pub fn socket(fd: S) -> Self {
        Self { fd, kind: Kind::Socket, at: None, appends: false }
    }

    /// Begins at `offset` instead of the first byte. A stream has no offsets and is unaffected,
    /// as is a file opened with `O_APPEND`.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Self {
        self.at = self.at.map(|_| offset);
        self
    }

    /// Returns what kind of descriptor the sink is.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}
