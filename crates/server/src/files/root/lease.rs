//! Waits for other programs to release their leases on files.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{DiskWait, Root};

impl Root {
    /// Opens a path as [`open_reached`](Self::open_reached) does, once no other program has a lease
    /// on the file. It may wait for the disk, too.
    ///
    /// # Errors
    ///
    /// Those of [`open_reached`](Self::open_reached); `EAGAIN` if the lease is not released in time.
    pub(crate) fn open_unleased(&self, path: &[u8]) -> Result<(OwnedFd, Option<Vec<u8>>), Errno> {
        open_unleased(|| self.open_reached(path, DiskWait::Allowed))
    }
}

/// Opens a file by a call that does not wait, and again until no other program has a lease on it, up
/// to a limit. The calling thread must be allowed to wait.
///
/// # Errors
///
/// Those of `open`: `EAGAIN` if the lease is not released in time.
pub(crate) fn open_unleased<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    let began = Instant::now();
    loop {
        match open() {
            Err(Errno::AGAIN) if began.elapsed() < LEASE_TIME => thread::sleep(LEASE_PAUSE),
            opened => return opened,
        }
    }
}

/// The maximum wait for another program to release its lease on a file, such as Samba: opening the
/// file with `O_NONBLOCK` fails with `EAGAIN`, and the kernel asks for the lease.
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(5);

/// The pause between attempts to open such a file.
pub(crate) const LEASE_PAUSE: Duration = Duration::from_millis(10);
