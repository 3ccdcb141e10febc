//! What the articles about zero copy measured, measured again: `bench article-table`, `article-copy`
//! and `article-chunks`, each beside the programs that the article describes; and `bench limit`, how
//! far from a bare loop around the system call that is.
//!
//! `sending` is a sample over a connection, `threads` what the bench does itself; a sample from file to
//! file is that of `bench copy`. `scenarios` makes records of them.

mod arguments;
mod scenarios;
mod sending;
mod threads;

pub use arguments::{ChunksArgs, LimitArgs, SmallCopyArgs, TableArgs};
pub use scenarios::{chunks, copy, limit, table};
