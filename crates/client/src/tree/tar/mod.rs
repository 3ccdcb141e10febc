//! Reads tar archives in the formats ustar, GNU and PAX: bytes in, members out. Pure.
//!
//! An archive is read in steps, each of exactly as many bytes as are certain to be there, so that
//! no byte of a file's contents is read before it is known where they begin.

mod decoder;
mod error;
mod pax;

pub use decoder::{Decoder, MemberKind, TarEvent, TarMember};
pub use error::TarError;
