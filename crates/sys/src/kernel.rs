//! Features of the kernel, found without a file or socket.

use std::ffi::{c_int, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::io::Errno;

use crate::last_errno;

/// Creates the smallest io_uring ring and closes it, which shows that the kernel allows it.
///
/// # Errors
///
/// As io_uring_setup(2).
pub fn make_ring() -> Result<(), Errno> {
    let mut parameters = [0_u64; RING_PARAMETERS];
    // SAFETY: zeros are valid for each field of `io_uring_params`, which the kernel reads and fills
    // in during the call. The number it returns is a new descriptor that is used nowhere else.
    // Proved by `diagnose/tests/probe.rs::the_probe_agrees_with_the_settings_of_the_kernel`.
    let ring = unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr());
        if ring < 0 {
            return Err(last_errno());
        }
        OwnedFd::from_raw_fd(ring as c_int)
    };
    drop(ring);
    Ok(())
}

/// `io_uring_params` of linux/io_uring.h in words of 8 bytes: 120 bytes.
const RING_PARAMETERS: usize = 15;

/// Returns the Landlock ABI version of the kernel.
///
/// # Errors
///
/// As landlock_create_ruleset(2).
pub fn landlock_version() -> Result<u32, Errno> {
    let none = std::ptr::null::<c_void>();
    // SAFETY: with this flag the call takes no address and creates nothing. Proved by
    // `diagnose/tests/probe.rs::the_probe_agrees_with_the_settings_of_the_kernel`.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, LANDLOCK_VERSION)
    };
    u32::try_from(version).map_err(|_| last_errno())
}

/// `LANDLOCK_CREATE_RULESET_VERSION` of linux/landlock.h.
const LANDLOCK_VERSION: u32 = 1;
