//! The commands, a folder each: arguments, call, print.

#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod cp;
pub(crate) mod doctor;
#[cfg(feature = "explain")]
pub(crate) mod explain;
pub(crate) mod fill;
pub(crate) mod get;
pub(crate) mod manual;
pub(crate) mod put;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod serve;
