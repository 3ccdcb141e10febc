//! `underpass fill`: makes a node in front of an origin fetch files at a convenient time.

mod args;
mod run;
mod watch;

pub(crate) use args::FillArgs;
pub(crate) use run::run;
