//! The two ends of a trial: what bytes are read from, and what they are moved into.

pub(super) mod sample;
pub(super) mod scratch;
pub(super) mod target;
