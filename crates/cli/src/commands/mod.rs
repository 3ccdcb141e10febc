//! The commands, a folder each: arguments, call, print.

#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod cp;
pub(crate) mod doctor;
#[cfg(feature = "explain")]
pub(crate) mod explain;
pub(crate) mod get;
mod manual;
pub(crate) mod put;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod serve;
