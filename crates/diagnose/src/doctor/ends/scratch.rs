//! A temporary sink for trials, which leaves nothing behind.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use underpass_engine::Sink;
use underpass_engine::atomic_file::AtomicFile;
use underpass_engine::ktls::loopback_pair;

/// A sink that is removed when it is dropped.
#[derive(Debug)]
pub(crate) enum Scratch {
    /// An unnamed file (`O_TMPFILE`), or one with a hidden name.
    File {
        /// The file.
        atomic: AtomicFile,
        /// The offset of its first byte.
        at: u64,
    },
    /// Both ends of a pipe.
    Pipe(PipeReader, PipeWriter),
    /// Both ends of a connection over loopback: the second receives what the first sends.
    Tcp(TcpStream, TcpStream),
    /// Both ends of a Unix stream.
    Unix(UnixStream, UnixStream),
}

impl Scratch {
    /// Creates a file in the same folder as `beside`.
    pub(crate) fn file(beside: &Path) -> io::Result<Self> {
        Ok(Self::File { atomic: AtomicFile::create(beside, 0o600)?, at: 0 })
    }

    /// Creates a file that is written to only at its end if it `appends`, or from an offset on.
    pub(crate) fn like(beside: &Path, appends: bool, at: u64) -> io::Result<Self> {
        let atomic = AtomicFile::create(beside, 0o600)?;
        if appends {
            let flags = fcntl_getfl(atomic.file())?;
            fcntl_setfl(atomic.file(), flags | OFlags::APPEND)?;
        }
        Ok(Self::File { atomic, at: if appends { 0 } else { at } })
    }

    /// Creates a pipe.
    pub(crate) fn pipe() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        for end in [reader.as_fd(), writer.as_fd()] {
            let flags = fcntl_getfl(end)?;
            fcntl_setfl(end, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self::Pipe(reader, writer))
    }

    /// Creates a connection over loopback.
    pub(crate) fn tcp() -> io::Result<Self> {
        let (near, far) = loopback_pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self::Tcp(near, far))
    }

    /// Creates a Unix stream.
    pub(crate) fn unix() -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        far.set_nonblocking(true)?;
        Ok(Self::Unix(near, far))
    }

    /// Returns the file, if the sink is one.
    pub(crate) fn dest_file(&self) -> Option<&File> {
        match self {
            Self::File { atomic, .. } => Some(atomic.file()),
            _ => None,
        }
    }

    /// Returns the end that is written to.
    pub(crate) fn sink(&self) -> io::Result<Sink<BorrowedFd<'_>>> {
        Ok(match self {
            Self::File { atomic, at } => Sink::of(atomic.file().as_fd())?.at(*at),
            Self::Pipe(_, writer) => Sink::of(writer.as_fd())?,
            Self::Tcp(near, _) => Sink::of(near.as_fd())?,
            Self::Unix(near, _) => Sink::of(near.as_fd())?,
        })
    }

    /// Reads what has arrived at the other end, and returns whether there was anything.
    pub(crate) fn drain(&self, arrived: &mut Vec<u8>) -> io::Result<bool> {
        let before = arrived.len();
        let mut buffer = vec![0; READ_SIZE];
        let mut end: Box<dyn Read + '_> = match self {
            Self::File { .. } => return Ok(false),
            Self::Pipe(reader, _) => Box::new(reader),
            Self::Tcp(_, far) => Box::new(far),
            Self::Unix(_, far) => Box::new(far),
        };
        loop {
            match end.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => arrived.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(arrived.len() > before)
    }

    /// Returns the first `len` bytes that were moved into it, of which `arrived` were read
    /// before.
    pub(crate) fn read_back(&self, mut arrived: Vec<u8>, len: usize) -> io::Result<Vec<u8>> {
        if let Self::File { atomic, at } = self {
            arrived.resize(len, 0);
            atomic.file().read_exact_at(&mut arrived, *at)?;
            return Ok(arrived);
        }
        let mut looks = 0;
        while arrived.len() < len {
            // Bytes sent over loopback arrive, but perhaps not immediately.
            if !self.drain(&mut arrived)? {
                looks += 1;
                if looks > MAX_POLLS {
                    return Err(Errno::TIMEDOUT.into());
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        Ok(arrived)
    }
}

/// The maximum number of checks for something that usually happens immediately. Checks are counted
/// instead of time, as a busy machine may need more time.
pub(crate) const MAX_POLLS: u32 = 1_000;

/// The time between two checks.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_micros(100);

/// The name of the file if it got one.
pub(crate) const NAME: &str = "underpass-doctor";

/// Bytes read at once.
const READ_SIZE: usize = 64 << 10;
