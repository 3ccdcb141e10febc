//! Bytes that pass through the caller's buffer, counted where they are read and written.
//!
//! One read and one write are the cheapest mechanism for a small file, and a caller that inspects
//! bytes, to skip zeros or to compare, needs them in memory. A [`Report`] counts each crossing;
//! besides this module only a [`Transfer`](crate::Transfer) writes to it.

use std::fs::File;

use rustix::fs::Stat;
use rustix::io::{Errno, pread, pwrite, read, write};

use crate::integrity::is_file;
use crate::report::Report;

/// Returns whether a buffer copies a file best: it has at most 64 KiB and no holes worth keeping.
#[must_use]
pub fn is_small(stat: &Stat) -> bool {
    let len = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    let has_holes = allocated < len;
    is_file(stat) && len <= MAX_SMALL && !(has_holes && len > BLOCK)
}

/// Reads a file from its current position, of which its metadata promises `promised` bytes, and
/// returns the number of bytes; with a promise of 0, as for a file of procfs, reads all there is.
/// `None` if there are fewer bytes than promised, or they fill the buffer: a
/// [`Transfer`](crate::Transfer) can then begin at the first byte. What was read is counted all the
/// same. Bytes beyond the promise are not looked for.
///
/// # Errors
///
/// As read(2).
pub fn read_whole(
    file: &File,
    promised: usize,
    buffer: &mut [u8],
    report: &mut Report,
) -> Result<Option<usize>, Errno> {
    // Without a promise, a full buffer does not show whether more follows.
    let room = if promised == 0 { buffer.len() } else { promised };
    let mut calls = 0;
    let have = fill(&mut buffer[..room], |rest, _| {
        calls += 1;
        read(file, rest)
    });
    report.count_read(have.unwrap_or(0) as u64, calls);
    let have = have?;
    let is_whole = have >= promised && have < buffer.len();
    Ok(is_whole.then_some(have))
}

/// Reads from this offset until the buffer is full or the file ends, and returns the number of
/// bytes. The file may have been opened with `O_DIRECT`.
///
/// # Errors
///
/// As pread(2).
pub fn read_at(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    report: &mut Report,
) -> Result<usize, Errno> {
    let mut calls = 0;
    let have = fill(buffer, |rest, done| {
        // Only the end of a file can be inside a block, and `O_DIRECT` cannot read from there.
        if !(done as u64).is_multiple_of(BLOCK) {
            return Ok(0);
        }
        calls += 1;
        pread(file, rest, offset + done as u64)
    });
    report.count_read(have.unwrap_or(0) as u64, calls);
    have
}

/// Writes all bytes at the file's position.
///
/// # Errors
///
/// As write(2); the bytes written before the error are counted.
pub fn write_all(file: &File, bytes: &[u8], report: &mut Report) -> Result<(), Errno> {
    drain(bytes, report, |rest, _| write(file, rest))
}

/// Writes all bytes at this offset.
///
/// # Errors
///
/// As pwrite(2); the bytes written before the error are counted.
pub fn write_at(file: &File, bytes: &[u8], offset: u64, report: &mut Report) -> Result<(), Errno> {
    drain(bytes, report, |rest, done| pwrite(file, rest, offset + done as u64))
}

/// Writes all bytes, which `calls` system calls have received into memory, at this offset.
///
/// # Errors
///
/// As pwrite(2); the bytes written before the error are counted.
pub fn write_received(
    file: &File,
    bytes: &[u8],
    offset: u64,
    calls: u64,
    report: &mut Report,
) -> Result<(), Errno> {
    report.count_read(bytes.len() as u64, calls);
    write_at(file, bytes, offset, report)
}

/// Reads until the buffer is full or the end is reached.
fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut have = 0;
    while have < buffer.len() {
        match read(&mut buffer[have..], have) {
            Ok(0) => break,
            Ok(bytes) => have += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(have)
}

/// Writes until nothing is left.
fn drain(
    bytes: &[u8],
    report: &mut Report,
    write: impl Fn(&[u8], usize) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let written = write(&bytes[done..], done);
        report.count_written(written.unwrap_or(0) as u64);
        match written {
            // A file takes at least one byte or returns an error.
            Ok(0) => return Err(Errno::IO),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The largest file that one read and one write copy faster than the kernel does, in bytes.
const MAX_SMALL: u64 = 64 << 10;

/// The smallest hole worth keeping, in bytes: a block of most file systems.
pub const BLOCK: u64 = 4096;

/// A buffer size, in bytes, that is large enough for every small file and for comparing piecewise.
pub const BUFFER: usize = 256 << 10;
