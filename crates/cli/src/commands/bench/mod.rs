//! `underpass bench`: compares mechanisms, and shows records of the measurements.

mod args;
mod print;
mod run;

pub(crate) use args::BenchArgs;
pub(crate) use run::run;
