//! Finds the data of a file by lseek(2), so that a copy can keep its holes.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Returns the offset and length of each run of data in a range of a file, in order.
///
/// A file system without holes reports the whole file as data.
///
/// # Errors
///
/// As lseek(2) with `SEEK_DATA` and `SEEK_HOLE`; after an error the iteration ends.
pub fn data_ranges(
    file: BorrowedFd<'_>,
    range: Range<u64>,
) -> impl Iterator<Item = io::Result<(u64, u64)>> + '_ {
    let Range { start: mut at, end } = range;
    std::iter::from_fn(move || {
        let extent = next_extent(file, at, end).transpose()?;
        // After an error, the iteration ends.
        at = extent.as_ref().map_or(end, |(from, len)| from + len);
        Some(extent)
    })
}

fn next_extent(file: BorrowedFd<'_>, at: u64, end: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= end {
        return Ok(None);
    }
    let Some(from) = next_data(file, at)?.filter(|from| *from < end) else { return Ok(None) };
    let to = match seek(file, SeekFrom::Hole(from)) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => end,
        to => to?.min(end),
    };
    Ok(Some((from, to - from)))
}

/// Returns the offset of the next data of a file at or after `at`; `None` if only a hole is left.
///
/// A file system without holes has data everywhere.
///
/// # Errors
///
/// As lseek(2) with `SEEK_DATA`.
pub fn next_data(file: BorrowedFd<'_>, at: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(from) => Ok(Some(from)),
        Err(Errno::NXIO) => Ok(None),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(Some(at)),
        Err(errno) => Err(errno.into()),
    }
}
