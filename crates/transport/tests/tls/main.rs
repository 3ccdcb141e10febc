//! TLS over loopback sockets, with rustls used the ordinary way as the independent peer.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, missing_docs)]

mod agreement;
mod bulk;
mod disguise;
mod framing;
mod names;
mod openssl;
mod rig;
mod robust;
mod trust;
