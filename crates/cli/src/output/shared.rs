//! Writes to open files that other programs share.

use std::io::{ErrorKind, Result};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::io::{Errno, write};
use underpass_engine::wait::Limits;

/// Writes all bytes without a buffer. Waits as long as it takes, even if another program that shares
/// the open file has made it non-blocking (`O_NONBLOCK` belongs to the open file, see open(2)).
///
/// # Errors
///
/// Those of write(2) except `EINTR` and `EAGAIN`.
pub(crate) fn write_all(to: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match write(&to, bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let waited = Limits::default().until_ready(&to, PollFlags::OUT);
                waited.map_err(Errno::from)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
