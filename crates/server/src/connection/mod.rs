//! One connection: its socket, its requests and its responses.
//!
//! ```text
//! serve.rs     a request ─► Next ─┬─ Answer, Reject: there will be an Exchange
//!                                 ├─ Continue: its response, of a hot file, was started
//!                                 └─ Done: its response, of a hot file, is with the kernel
//! exchange.rs  Exchange::start ─► Sending
//! send.rs      Sending ─┬─ Done: all of it is with the kernel ───────────────┬─► SendOutcome
//!                       └─ Slow: a SlowResponse sends the rest in its turns ─┘
//! serve.rs     Connection::finish_response(SendOutcome) ─► After: read on, linger or close
//! ```

pub(crate) mod canned;
pub(crate) mod discard_body;
pub(crate) mod exchange;
pub(crate) mod handshake;
pub(crate) mod outcome;
pub(crate) mod peer;
pub(crate) mod proxy_header;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod turn;

use crate::connection::peer::Peer;
use crate::server::worker::Worker;

/// A connection, and the worker that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) peer: &'a Peer,
}

#[cfg(test)]
mod tests {
    use super::serve::Connection;
    use super::*;

    #[test]
    fn a_waiting_connection_is_small() {
        // The runtime aligns the memory of a task and of a socket to 128 bytes. The bookkeeping of
        // glibc after each fills the rest up to the next multiple, or leaves at least 32 bytes.
        assert!(size_of::<Peer>() <= 216, "{}", size_of::<Peer>());
        assert!(size_of::<Connection<'_>>() <= 72, "{}", size_of::<Connection<'_>>());
    }
}
