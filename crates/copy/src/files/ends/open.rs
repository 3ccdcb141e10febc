//! Opens paths and standard streams.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_getfl, fcntl_setfl, fstat, seek};
use rustix::io::Errno;
use underpass_engine::hint::{PathError, WithPath};
use underpass_sys::was_closed;

use crate::observer::OpenCall;

/// Runs a call of open(2) that may wait for another process, as
/// [`CopyObserver::open`](crate::CopyObserver::open) does.
pub type Opener<'o> = &'o dyn Fn(OpenCall) -> io::Result<OwnedFd>;

/// Returns the offset of an open file; 0 if it has none, as a pipe.
pub(super) fn cursor(file: &File) -> io::Result<u64> {
    match seek(file, SeekFrom::Current(0)) {
        Err(Errno::SPIPE | Errno::INVAL) => Ok(0),
        at => Ok(at?),
    }
}

/// Opens a path. A FIFO waits for its other end, a serial line for its carrier, and a file on which
/// another process has a lease for that process.
pub(super) fn open(path: &Path, how: &OpenOptions, opener: Opener<'_>) -> io::Result<File> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    if !fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        match how.clone().custom_flags(nonblocking).open(path) {
            // A lease, which the kernel has asked its holder to release.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome.and_then(blocking),
        }
    }
    let (path, how) = (path.to_owned(), how.clone());
    Ok(opener(Box::new(move || how.open(path).map(OwnedFd::from)))?.into())
}

/// Returns the file without `O_NONBLOCK`.
///
/// # Errors
///
/// As fcntl(2).
pub fn blocking(file: File) -> io::Result<File> {
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Opens a standard stream; one that was closed when the program began is an error, since /dev/null
/// has taken its place.
pub(super) fn standard(stream: &impl AsFd, how: &OpenOptions) -> io::Result<File> {
    if was_closed(stream) { Err(Errno::BADF.into()) } else { private(stream.as_fd(), how) }
}

/// Returns standard input, for lists; one that was closed when the program began is an error.
///
/// # Errors
///
/// If standard input was closed.
pub fn standard_input() -> Result<io::Stdin, PathError> {
    let stdin = io::stdin();
    if was_closed(&stdin) {
        Err(Errno::BADF).with_path("opening", "standard input")
    } else {
        Ok(stdin)
    }
}

/// Opens a new descriptor for a standard stream, whose flags no other process shares: a transfer
/// makes its streams non-blocking, and the shell and other processes hold the same pipe or
/// terminal.
fn private(standard: BorrowedFd<'_>, how: &OpenOptions) -> io::Result<File> {
    let stat = fstat(standard)?;
    let shared = || -> io::Result<OwnedFd> { standard.try_clone_to_owned() };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::CharacterDevice => {
            // It must not block: the other end of a named FIFO may have been closed already.
            let how = how.clone().custom_flags(OFlags::NONBLOCK.bits() as i32).clone();
            let own = how.open(format!("/proc/self/fd/{}", standard.as_raw_fd()));
            match own.and_then(blocking) {
                // poll(2) never reports end of file to a descriptor opened after the last writer
                // has closed.
                Ok(own) if !has_hung_up(standard) => Ok(own),
                _ => shared().map(File::from),
            }
        }
        _ => shared().map(File::from),
    }
}

/// Returns whether the other end of a pipe is closed.
fn has_hung_up(end: BorrowedFd<'_>) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok() && ends[0].revents().contains(PollFlags::HUP)
}
