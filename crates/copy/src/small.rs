//! Small files, which go through a buffer: for them one read and one write cost less than anything.

use std::fs::File;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Whether a file is to go through a buffer, if nothing else was asked for: it is small, and has no
/// holes that are worth keeping.
pub fn is_small(stat: &Stat) -> bool {
    let len = u64::try_from(stat.st_size).unwrap_or(0);
    let allocated = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
    let has_holes = allocated < len;
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && len <= SMALL
        && !(has_holes && len > BLOCK)
}

/// Reads all of a file whose facts tell that it has `promised` bytes: how many it has, and in how
/// many calls that was found out. `None` if its facts seem to say nothing: the engine knows.
///
/// # Errors
///
/// As read(2).
pub fn read(
    file: &File,
    promised: usize,
    buffer: &mut [u8],
) -> Result<Option<(usize, u64)>, Errno> {
    // More than is promised: who is longer than its facts say is a file of procfs, or has grown.
    let room = if promised == 0 { buffer.len() } else { promised };
    let (mut have, mut calls) = (0, 0);
    while have < room {
        calls += 1;
        match rustix::io::read(file, &mut buffer[have..room]) {
            Ok(0) => break,
            Ok(bytes) => have += bytes,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let is_whole = have >= promised && have < buffer.len();
    Ok(is_whole.then_some((have, calls)))
}

/// Writes everything; in how many calls.
///
/// # Errors
///
/// As write(2).
pub fn write(file: &File, mut bytes: &[u8]) -> Result<u64, Errno> {
    let mut calls = 0;
    while !bytes.is_empty() {
        calls += 1;
        match rustix::io::write(file, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(calls)
}

/// Files of up to so many bytes are copied through a buffer.
const SMALL: u64 = 64 << 10;

/// The smallest hole worth having: a block of most file systems.
pub(crate) const BLOCK: u64 = 4096;

/// Large enough for every file that is copied in one piece.
pub const BUFFER: usize = 256 << 10;
