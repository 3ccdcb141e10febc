//! `underpass bench`: measures mechanisms against each other, and shows records of that.

mod args;
mod print;
mod run;

pub(crate) use args::BenchArgs;
pub(crate) use run::run;
