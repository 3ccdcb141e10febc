//! `underpass cp`: files and whole trees, within this machine.

mod args;
mod observer;
mod print;
mod run;
mod stream;

pub(crate) use args::CpArgs;
pub(crate) use run::run;
