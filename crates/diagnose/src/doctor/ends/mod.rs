//! The two ends of a trial: the source of the bytes, and their sink.

pub(super) mod sample;
pub(super) mod scratch;
pub(super) mod target;
