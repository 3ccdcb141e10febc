//! Reads tar archives as anybody writes them, ustar, GNU or PAX: bytes in, members out. Pure.
//!
//! An archive is read in steps, each of exactly so many bytes as are certain to be there, so that
//! not a byte of a file's contents has to be read to know where they begin.

mod decoder;
mod error;
mod pax;

pub use decoder::{Decoder, Member, MemberKind, TarEvent};
pub use error::TarError;
