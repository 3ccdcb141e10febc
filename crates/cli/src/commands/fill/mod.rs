//! `underpass fill`: makes a node in front of an origin fetch files at a convenient time.

mod args;
mod manifest;
mod pace;
mod run;

pub(crate) use args::FillArgs;
pub(crate) use run::run;
