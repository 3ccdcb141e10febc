//! The shared parts of these tests.

pub(crate) mod ends;
pub(crate) mod injection;
pub(crate) mod scratch;
pub(crate) mod toys;
