//! `underpass cp`: files and whole trees, within this machine.

mod args;
mod backup;
mod observer;
mod order;
mod print;
mod quote;
mod run;
mod stream;

pub(crate) use args::CpArgs;
pub(crate) use run::run;
