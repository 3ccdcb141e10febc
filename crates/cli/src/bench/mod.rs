//! The bench: the mechanisms against each other and against the traditional way, measured so that
//! the figures can be believed, or say themselves why not.
//!
//! `way` has the words, `plan` says what is measured, `rounds` in which order, `net`, `copy` and
//! `chain` how; `serve` measures servers, `transfer` downloads and uploads, `article` what the articles
//! did, with the programs of `peers`; `cp` programs that copy; `hostile` servers beside bad clients. `link` is what lies between two
//! processes, `counter` counts their system calls by `strace`. `record` keeps all of it;
//! `statistics`, `trust` and `table` see nothing else.

mod arguments;
mod article;
mod chain;
mod child;
mod compare;
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
mod record;
mod rounds;
mod scenarios;
mod serve;
mod show;
mod statistics;
mod store;
mod strace;
mod table;
mod transfer;
mod trust;
mod views;
mod way;

pub(crate) use arguments::{BenchArgs, ScenarioArgs};
pub(crate) use article::{
    chunks as article_chunks, copy as article_copy, limit, table as article_table,
};
pub(crate) use compare::compare;
pub(crate) use cp::cp;
pub(crate) use error::BenchError;
pub(crate) use hostile::run as hostile;
pub(crate) use record::Record;
pub(crate) use scenarios::{chain, copy, net};
pub(crate) use serve::{run as serve, scale};
pub(crate) use show::{show, text};
pub(crate) use store::RecordFile;
pub(crate) use transfer::{get, put, tree};
