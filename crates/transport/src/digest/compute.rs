//! Computes digests and checksums. No system call does that, so the bytes of a file are read into
//! user space here, and only here; the result says how many.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};
use underpass_protocol::digest::{Algorithm, Digest, Hasher};

/// Digests, and the bytes read for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// One digest for each algorithm, in the requested order.
    pub digests: Vec<Digest>,
    /// Bytes that were read into user space.
    pub read_bytes: u64,
}

/// The reason why no digest was computed.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The file cannot be read, or ends before the range does.
    #[error(transparent)]
    Io(io::Error),
}

impl From<ComputeError> for io::Error {
    fn from(error: ComputeError) -> Self {
        match error {
            ComputeError::Cancelled => Errno::INTR.into(),
            ComputeError::Io(error) => error,
        }
    }
}

/// Computes the digests of a range of a file, reading it once.
///
/// After each piece, `go_on` is called with the number of bytes read so far; if it returns false,
/// reading stops with [`ComputeError::Cancelled`]. The file's cursor does not move.
///
/// # Errors
///
/// [`ComputeError`]; a file that is shorter than the range is `UnexpectedEof`.
pub fn compute(
    file: impl AsFd,
    range: Range<u64>,
    algorithms: &[Algorithm],
    go_on: impl FnMut(u64) -> bool,
) -> Result<Computed, ComputeError> {
    let mut hashers: Vec<_> = algorithms.iter().copied().map(Hasher::new).collect();
    let add = |bytes: &[u8]| hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
    let read_bytes = read(file.as_fd(), range, add, go_on)?;
    let digests = hashers.into_iter().map(Hasher::finish).collect();
    Ok(Computed { digests, read_bytes })
}

/// Adds a range of a file to a digest in progress; `go_on` is as with [`compute`].
///
/// # Errors
///
/// [`ComputeError`]; a file that is shorter than the range is `UnexpectedEof`.
pub fn add_range(
    hasher: &mut Hasher,
    file: impl AsFd,
    range: Range<u64>,
    go_on: impl FnMut(u64) -> bool,
) -> Result<(), ComputeError> {
    read(file.as_fd(), range, |bytes| hasher.update(bytes), go_on).map(drop)
}

/// Adds a range of a file to a CRC-32 as in zip and gzip, which starts at 0; `go_on` is as with
/// [`compute`].
///
/// # Errors
///
/// [`ComputeError`]; a file that is shorter than the range is `UnexpectedEof`.
pub fn crc32(
    checksum: &mut u32,
    file: impl AsFd,
    range: Range<u64>,
    go_on: impl FnMut(u64) -> bool,
) -> Result<(), ComputeError> {
    let mut hasher = crc32fast::Hasher::new_with_initial(*checksum);
    let outcome = read(file.as_fd(), range, |bytes| hasher.update(bytes), go_on);
    *checksum = hasher.finalize();
    outcome.map(drop)
}

/// Reads a range of a file, and returns its length.
fn read(
    file: BorrowedFd<'_>,
    range: Range<u64>,
    mut add: impl FnMut(&[u8]),
    mut go_on: impl FnMut(u64) -> bool,
) -> Result<u64, ComputeError> {
    let wanted = range.end.saturating_sub(range.start);
    // This only makes the kernel read further ahead; a failure is harmless.
    let _ = fadvise(file, range.start, std::num::NonZeroU64::new(wanted), Advice::Sequential);
    let mut buffer = vec![0; usize::try_from(wanted).unwrap_or(BUFFER).clamp(1, BUFFER)];
    let mut read_bytes = 0;
    while read_bytes < wanted {
        let left = usize::try_from(wanted - read_bytes).unwrap_or(BUFFER).min(buffer.len());
        let read = match pread(file, &mut buffer[..left], range.start + read_bytes) {
            Ok(0) => return Err(ComputeError::Io(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => read,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(ComputeError::Io(errno.into())),
        };
        add(&buffer[..read]);
        read_bytes += read as u64;
        if !go_on(read_bytes) {
            return Err(ComputeError::Cancelled);
        }
    }
    Ok(read_bytes)
}

/// The number of bytes read at once, which fits the second-level cache of a processor.
const BUFFER: usize = 256 << 10;
