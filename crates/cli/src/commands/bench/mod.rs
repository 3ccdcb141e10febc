//! `underpass bench`: the mechanisms measured against each other, and records of that shown.

mod args;
mod print;
mod run;

pub(crate) use args::BenchArgs;
pub(crate) use run::run;
