//! Options of the server that were not typed: from the environment and from a config file.

mod config;
mod environment;
mod keys;
mod layers;

pub(crate) use config::Reading;
pub(crate) use environment::{warn_of_variables, warn_of_variables_of_requests};
pub(crate) use layers::merge_sources;
