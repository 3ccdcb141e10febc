//! `bench cp`: whole copies by programs that copy, ours beside those that people have, from the
//! start of their process to its end: a large file, many small ones, a folder that is there, a file
//! with holes.
//!
//! `copiers` knows their command lines, `original` makes what is copied, `content` compares it with
//! the copies. `course` takes the samples, `scenario` makes a record of them and `table` draws that.

mod arguments;
mod content;
mod copiers;
mod course;
#[cfg(test)]
mod fixture;
mod original;
mod record;
mod scenario;
mod table;

pub use arguments::CpArgs;
pub(crate) use copiers::Copier;
#[cfg(test)]
pub(crate) use fixture::cp_record;
pub(crate) use record::Copies;
pub use scenario::cp;
pub(crate) use table::{label, render, title};
