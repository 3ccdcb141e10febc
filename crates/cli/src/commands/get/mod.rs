//! `underpass get`: files and folders from HTTP servers.

mod args;
mod check;
mod destination;
mod file;
mod list;
mod print;
mod progress;
mod run;
mod sums;
mod tree;
mod usage;

pub(crate) use args::GetArgs;
pub(crate) use run::run;
