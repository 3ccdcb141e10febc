//! This machine: its kernel, its network, and TLS in the kernel.

pub(super) mod card;
pub(super) mod ktls;
pub(super) mod machine;
mod place;
