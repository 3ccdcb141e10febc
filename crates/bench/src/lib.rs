//! The bench: contenders against each other and against the traditional way, measured so that the
//! figures can be believed, or say themselves why not.
//!
//! `scenarios` has a file for each of the things that are measured, which `run` measures in turns with
//! files, processes and cores; `load` starts servers and asks them, `peers` builds the programs of the
//! articles. All that was found is a `record`; `views` and `compare` see nothing else. The program
//! itself takes part as a process: this crate links neither its server nor its client.

#![forbid(unsafe_code)]

mod compare;
mod error;
mod load;
mod options;
mod peers;
mod record;
mod run;
mod scenarios;
#[cfg(test)]
mod tests;
mod views;

pub use compare::Comparison;
pub use error::{BenchError, Result};
pub use options::Benchmark;
pub use record::Record;
pub use run::{Context, Observer};
pub use scenarios::{
    ChainArgs, ChunksArgs, CopyArgs, CpArgs, GetArgs, HostileArgs, LimitArgs, NetArgs, PutArgs,
    ScaleArgs, ServeArgs, SmallCopyArgs, TableArgs, TreeArgs,
};
pub use views::{Screen, charts, markdown, page, text};
