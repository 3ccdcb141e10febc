//! `underpass serve`: a folder or a file, over HTTP.

mod args;
mod certificate;
mod control;
mod log;
mod origin;
mod print;
mod run;
mod settings;
pub(crate) mod share;
mod sockets;
mod sources;

pub(crate) use args::ServeArgs;
pub(crate) use run::run;
pub(crate) use sources::{
    Reading, merge_sources, warn_of_variables, warn_of_variables_of_requests,
};
