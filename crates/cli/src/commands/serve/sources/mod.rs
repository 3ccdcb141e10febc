//! Options of the server that were not typed: from the environment and from a config file.

mod config;
mod layers;

pub(crate) use layers::{merge_sources, warn_of_variables, warn_of_variables_of_requests};
