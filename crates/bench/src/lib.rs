//! The bench: compares contenders with each other and with a read-write loop, and warns if the
//! figures cannot be trusted.
//!
//! `scenarios` has a file for each scenario, which `run` measures in turns with files, processes
//! and cores; `load` starts servers and sends them requests, `programs` builds what the articles
//! describe. The results are a `record`, the only input of `views` and `compare`. `underpass`
//! itself is measured as a process: this crate links neither its server nor its client.

#![forbid(unsafe_code)]

mod compare;
mod error;
mod load;
mod options;
mod programs;
mod record;
mod run;
mod scenarios;
#[cfg(test)]
mod tests;
mod views;

pub use compare::Comparison;
pub use error::{BenchError, Result, Shortage, UsageError};
pub use options::{Benchmark, Measure, Run};
pub use record::Record;
pub use run::{Context, RunObserver, Start};
pub use scenarios::{
    ChainArgs, ChunksArgs, CopyArgs, CpArgs, GetArgs, HostileArgs, LimitArgs, NetArgs, OriginArgs,
    PutArgs, ScaleArgs, ServeArgs, SmallCopyArgs, TableArgs, TreeArgs,
};
pub use views::{Screen, charts, markdown, page, text};
