//! What the tests share.

pub(crate) mod ends;
pub(crate) mod injection;
pub(crate) mod scratch;
pub(crate) mod toys;
