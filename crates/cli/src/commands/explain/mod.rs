//! `underpass explain`: shows how the bytes of any program move.

mod args;
mod print;
mod receipt;
mod run;

pub(crate) use args::ExplainArgs;
pub(crate) use run::run;
