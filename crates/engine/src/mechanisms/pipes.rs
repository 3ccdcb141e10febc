//! Pipes for splice(2), which needs one at one end of every call.
//!
//! Pipes are scarce: a user may have 64 of 1 MiB before the kernel hands out tiny ones
//! (pipe-user-pages-soft, pipe(7)). So they are pooled. A pipe that still holds bytes is closed
//! instead, because those bytes would come out before the bytes of the next transfer.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

use crate::wait::lock;

/// A pipe of this process, both ends non-blocking.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) read_end: OwnedFd,
    pub(crate) write_end: OwnedFd,
    /// The number of bytes that fit, if they come in full pages.
    pub(crate) capacity: usize,
}

impl Pipe {
    pub(crate) fn new() -> Result<Self, Errno> {
        let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = fcntl_getpipe_size(&write_end)?;
        let mut pipe = Self { read_end, write_end, capacity };
        pipe.grow();
        Ok(pipe)
    }

    /// Requests a larger pipe if this one is small. Above pipe-max-size or the user's share the
    /// kernel returns EPERM; a smaller pipe works too.
    fn grow(&mut self) {
        let sizes = [CAPACITY, CAPACITY / 2, CAPACITY / 4];
        for size in sizes.into_iter().filter(|&size| size > self.capacity) {
            if let Ok(capacity) = fcntl_setpipe_size(&self.write_end, size) {
                self.capacity = capacity;
                return;
            }
        }
    }
}

/// A pool of empty pipes. Share one among the transfers of a process.
#[derive(Debug, Default)]
pub struct PipePool {
    idle: Mutex<Vec<Pipe>>,
}

impl PipePool {
    /// Creates an empty pool; pipes are created when they are first needed.
    #[must_use]
    pub const fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    /// Returns how many bytes fit into the pipes that transfers splice through, as the kernel
    /// grants them to this user now: 1 MiB unless `fs.pipe-max-size` or the user's share of
    /// `fs.pipe-user-pages-soft` is smaller, pipe(7).
    ///
    /// # Errors
    ///
    /// As pipe2(2) and fcntl(2) for `F_GETPIPE_SZ`.
    pub fn capacity() -> Result<usize, Errno> {
        Ok(Pipe::new()?.capacity)
    }

    /// Returns how many pipes are in the pool.
    #[must_use]
    pub fn idle(&self) -> usize {
        lock(&self.idle).len()
    }

    /// Returns a pipe from the pool, or a new one. A small one, made when the user's share was used
    /// up, is enlarged if there is room by now.
    ///
    /// # Errors
    ///
    /// `EMFILE` or `ENFILE` when no descriptors are left.
    pub(crate) fn take(&self) -> Result<Pipe, Errno> {
        let pooled = lock(&self.idle).pop();
        let Some(mut pipe) = pooled else { return Pipe::new() };
        pipe.grow();
        Ok(pipe)
    }

    /// Takes back a pipe that is known to be empty.
    pub(crate) fn give_back(&self, pipe: Pipe) {
        let mut idle = lock(&self.idle);
        if idle.len() < MAX_IDLE {
            idle.push(pipe);
        }
    }
}

/// 1 MiB: the default pipe-max-size; more needs a privilege.
const CAPACITY: usize = 1 << 20;

/// A quarter of the 64 pipes of 1 MiB that a user may have.
const MAX_IDLE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_pipe_of_a_pool_grows_once_there_is_room() {
        let pool = PipePool::new();
        let mut pipe = Pipe::new().unwrap();
        let full = pipe.capacity;
        pipe.capacity = fcntl_setpipe_size(&pipe.write_end, 4096).unwrap();
        assert!(pipe.capacity < full);
        pool.give_back(pipe);
        let taken = pool.take().unwrap().capacity;
        // Other processes of the user share the limit.
        assert!(taken == full || !underpass_testkit::is_root(), "{taken}");
        assert_eq!(pool.idle(), 0);
    }
}
