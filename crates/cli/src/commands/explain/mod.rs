//! `underpass explain`: shows how the bytes of any program move.

mod print;
mod run;

pub(crate) use run::{ExplainArgs, run};
