//! The bench: the mechanisms against each other and against the traditional way, measured so that
//! the figures can be believed, or say themselves why not.
//!
//! `way` has the words, `plan` says what is measured, `rounds` in which order, `net`, `copy` and
//! `chain` how; `serve` measures servers, `transfer` downloads and uploads, `article` what the articles
//! did, with the programs of `peers`; `cp` programs that copy; `hostile` servers beside bad clients. `link` is what lies between two
//! processes, `counter` counts their system calls by `strace`. `record` keeps all of it;
//! `statistics`, `trust` and `table` see nothing else.

#![forbid(unsafe_code)]

mod arguments;
mod article;
mod chain;
mod child;
mod compare;
mod congestion;
mod copy;
mod counted;
mod counter;
mod cp;
mod data;
mod environment;
mod error;
#[cfg(test)]
mod fixture;
mod hostile;
mod iperf;
mod layout;
mod link;
mod names;
mod net;
mod peers;
mod plan;
mod procfs;
mod receipt;
mod record;
mod rounds;
mod scenarios;
mod serve;
mod statistics;
mod store;
mod strace;
mod table;
mod transfer;
mod trust;
mod views;
mod way;

pub use arguments::{ChainArgs, CopyArgs, NetArgs};
pub use article::{
    ChunksArgs, LimitArgs, SmallCopyArgs, TableArgs, chunks as article_chunks,
    copy as article_copy, limit, table as article_table,
};
pub use compare::Comparison;
pub use cp::{CpArgs, cp};
pub use error::{BenchError, Result};
pub use hostile::{HostileArgs, run as hostile};
pub use record::Record;
pub use scenarios::{chain, copy, net};
pub use serve::{ScaleArgs, ServeArgs, run as serve, scale};
pub use transfer::{GetArgs, PutArgs, TreeArgs, get, put, tree};
pub use views::{Screen, files as charts, markdown, page, text};
