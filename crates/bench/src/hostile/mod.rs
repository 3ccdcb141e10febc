//! `bench hostile`: a good client beside thousands of bad ones. How much longer does it wait, how
//! much memory does the server come to hold, and what does that cost it?
//!
//! `load` is what a kind of bad clients is, with a file for each kind in `loads`. `crowd` drives their
//! connections, `good` is the client that is measured, `run` makes samples of both and `table` draws
//! them. Everything stays on loopback, and ends with the sample.

mod arguments;
mod crowd;
mod good;
mod load;
mod loads;
mod record;
mod run;
mod table;

pub use arguments::HostileArgs;
pub(crate) use load::Kind as LoadKind;
pub(crate) use record::Hostile;
pub use run::run;
pub(crate) use table::render;
