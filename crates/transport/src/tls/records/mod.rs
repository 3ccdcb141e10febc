//! Records after the handshake: encrypted by the kernel, or in this process.

mod connection;
pub mod control;
mod kernel;
mod key_usage;
mod queue;
mod user_space;

pub(super) use connection::{Intent, RecordLayer, StepResult};
pub(super) use kernel::{Kernel, TakeOverError};
pub(super) use queue::ByteQueue;
pub(super) use user_space::UserSpace;
