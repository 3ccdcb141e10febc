//! `underpass send`: a file or standard input, over one plain stream.

mod args;
mod range;
mod run;

pub(crate) use args::SendArgs;
pub(crate) use run::run;
