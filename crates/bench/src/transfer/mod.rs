//! `bench get`, `bench put` and `bench tree`: clients that move whole files by HTTP, ours beside
//! those that people have, from the start of their process to its end.
//!
//! `clients` knows their command lines, `forest` makes and compares folders, `stage` runs a client
//! against a server. `get`, `put` and `tree` are the scenarios' samples; `scenarios` makes records of
//! them and `table` draws those.

mod arguments;
mod clients;
#[cfg(test)]
mod fixture;
mod forest;
mod get;
mod put;
mod record;
mod scenarios;
mod stage;
mod table;
mod tree;

pub use arguments::{GetArgs, PutArgs, TreeArgs};
pub(crate) use clients::{find, version};
#[cfg(test)]
pub(crate) use fixture::{get_record, put_record, tree_record};
pub(crate) use forest::Forest;
pub(crate) use record::Transfers;
pub use scenarios::{get, put, tree};
pub(crate) use table::{label, render, title};
