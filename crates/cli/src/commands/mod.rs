//! The commands, one file each: parse, call the engine, report.

pub(crate) mod generate;
pub(crate) mod get;
pub(crate) mod put;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod serve;
