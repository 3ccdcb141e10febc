//! The two ends that are tried: what bytes are taken from, and what they are moved into.

pub(super) mod sample;
pub(super) mod scratch;
pub(super) mod target;
