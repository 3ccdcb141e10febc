//! Probes for the features of a machine besides the mechanisms.
//!
//! A transfer between two ends shows which mechanism serves them. This module queries the other
//! facts that affect its speed: the page cache, the route, the card. No function here moves a
//! byte, changes anything, or needs a privilege.

pub mod card;
pub mod route;

use std::os::fd::AsFd;

use rustix::io::Errno;
use underpass_sys as sys;

/// Returns how many bytes of `len` from `offset` the page cache holds, in whole pages.
///
/// # Errors
///
/// As cachestat(2): `ENOSYS` before Linux 6.5, `EPERM` for a file that the caller neither owns nor
/// may write to.
pub fn cached(file: impl AsFd, offset: u64, len: u64) -> Result<u64, Errno> {
    sys::cached(file.as_fd(), offset, len)
}

/// Checks that this process may use io_uring, by making a ring and dropping it.
///
/// # Errors
///
/// As io_uring_setup(2): `EPERM` if `kernel.io_uring_disabled` or a filter of system calls forbids
/// it, `ENOSYS` if the kernel has none.
pub fn io_uring() -> Result<(), Errno> {
    sys::make_ring()
}

/// Returns which version of Landlock the kernel has, counted from 1.
///
/// # Errors
///
/// As landlock_create_ruleset(2): `EOPNOTSUPP` if it is switched off, `ENOSYS` if the kernel has
/// none.
pub fn landlock() -> Result<u32, Errno> {
    sys::landlock_version()
}

/// Returns whether /proc is mounted; without it unnamed files cannot be named, and no lease is
/// taken.
pub(crate) fn has_proc() -> bool {
    std::path::Path::new("/proc/self/fd").exists()
}
