//! `underpass cp`: files and whole trees, within this machine.

mod abbreviated;
mod args;
mod backup;
mod context;
mod observer;
mod order;
mod print;
mod quote;
mod run;
mod stream;
mod usage;

pub(crate) use args::CpArgs;
pub(crate) use run::run;
