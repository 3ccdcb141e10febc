//! `underpass recv`: one plain stream into a file.

mod args;
mod run;

pub(crate) use args::RecvArgs;
pub(crate) use run::run;
