//! `underpass share`: a file or folder at a separate address, until it was fetched or the time is
//! over.

mod args;
pub(super) mod goal;
mod receipt;
mod run;

pub(crate) use args::ShareArgs;
pub(crate) use run::run;
