//! The mechanisms that this kernel lacks, learned from transfers and kept by the caller.

use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use underpass_sys::Netlink;

use crate::mechanisms::mechanism::Mechanism;
use crate::socket::peer;
use crate::wait::lock;

/// The mechanisms that this kernel lacks, and a cached netlink socket for queries about peers.
///
/// Only `ENOSYS` is certain enough to be remembered; every other refusal concerns two particular
/// ends. Share one value among the transfers of a thread or a process; create a new one to start
/// afresh. It holds at most one descriptor, a netlink socket, from the first query on.
#[derive(Debug, Default)]
pub struct Capabilities {
    /// One bit for each mechanism, at its index in [`Mechanism::ALL`].
    missing: AtomicU8,
    /// The netlink socket for queries about sockets of this machine, once it has been needed.
    netlink: Mutex<Option<Netlink>>,
}

impl Capabilities {
    /// Creates a value in which nothing is known to be missing.
    #[must_use]
    pub const fn new() -> Self {
        Self { missing: AtomicU8::new(0), netlink: Mutex::new(None) }
    }

    /// Returns whether a transfer has found that the kernel does not know this mechanism.
    #[must_use]
    pub fn lacks(&self, mechanism: Mechanism) -> bool {
        self.missing.load(Ordering::Relaxed) & bit(mechanism) != 0
    }

    /// Remembers that the kernel does not know this mechanism.
    pub(crate) fn set_missing(&self, mechanism: Mechanism) {
        self.missing.fetch_or(bit(mechanism), Ordering::Relaxed);
    }

    /// Returns how many bytes wait to be read by the peer of a TCP connection within this machine,
    /// where the pages of files are still shared although they were acknowledged; otherwise 0.
    pub fn unread_by_tcp_peer(&self, socket: BorrowedFd<'_>) -> u64 {
        // A thread that panicked has left nothing or a socket without a pending answer.
        let mut netlink = lock(&self.netlink);
        peer::unread_by_tcp_peer(socket, &mut netlink)
    }
}

const fn bit(mechanism: Mechanism) -> u8 {
    1 << mechanism as u8
}
