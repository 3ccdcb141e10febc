//! `underpass get`: files and folders from HTTP servers.

mod args;
mod destination;
mod file;
mod print;
mod progress;
mod run;
mod tree;

pub(crate) use args::GetArgs;
pub(crate) use run::run;
