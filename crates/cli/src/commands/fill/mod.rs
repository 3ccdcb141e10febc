//! `underpass fill`: what a node in front of an origin is to have, fetched at a convenient time.

mod args;
mod manifest;
mod run;

pub(crate) use args::FillArgs;
pub(crate) use run::run;
