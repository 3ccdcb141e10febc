//! `underpass put`: files, folders and standard input, to an HTTP server.

mod args;
mod plan;
mod print;
mod put_run;
mod run;
mod send;
mod update;
mod usage;

pub(crate) use args::PutArgs;
pub(crate) use run::run;
