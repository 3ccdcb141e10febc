//! `underpass explain`: which way the bytes of any program take.

mod args;
mod print;
mod receipt;
mod run;

pub(crate) use args::ExplainArgs;
pub(crate) use run::run;
