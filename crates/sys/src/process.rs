//! Which of the standard streams were closed when the program began.
//!
//! Before `main`, the runtime of Rust opens /dev/null in their places, so that no file gets their
//! numbers. What is written there vanishes without an error, and what is read there is empty.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A bit for each of the first three descriptors.
static CLOSED: AtomicU8 = AtomicU8::new(0);

// SAFETY: the loader calls the functions of this section once, before the runtime of Rust and with
// a stack that is ready. This one needs nothing that the runtime prepares. Proved by
// `cli/tests/commands/errors.rs::what_goes_to_a_closed_stream_is_an_error`.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for descriptor in 0..3 {
        // SAFETY: F_GETFD reads a flag of a descriptor by its number, whether that is open or not.
        // Proved by `cli/tests/commands/errors.rs::what_goes_to_a_closed_stream_is_an_error`.
        let flags = unsafe { libc::fcntl(descriptor as c_int, libc::F_GETFD) };
        CLOSED.fetch_or(u8::from(flags < 0) << descriptor, Ordering::Relaxed);
    }
}

/// Returns whether a standard stream was closed when the program began.
#[must_use]
pub fn was_closed(stream: &impl AsFd) -> bool {
    let descriptor = stream.as_fd().as_raw_fd();
    (0..3).contains(&descriptor) && CLOSED.load(Ordering::Relaxed) >> descriptor & 1 == 1
}
