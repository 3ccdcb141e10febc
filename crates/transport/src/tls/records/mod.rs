//! Records after the handshake: encrypted by the kernel, or in this process.

mod connection; // rustls' two sides as one
pub mod control; // what the peer says besides data
mod kernel; // records in the kernel
mod key_usage; // how long a key may be used
mod queue; // bytes between a socket and rustls
mod user_space; // records in this process

pub(super) use connection::{Connection, Intent, StepResult};
pub(super) use kernel::{Kernel, Refusal};
pub(super) use queue::Queue;
pub(super) use user_space::UserSpace;
