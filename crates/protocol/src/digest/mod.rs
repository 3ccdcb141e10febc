//! Digests of files: what they are called, and how fields say them (RFC 9530).

mod fields;
mod hasher;
mod text;
mod value;

pub use fields::{BadField, parse_digests, parse_wanted, write_digests, write_wanted};
pub use hasher::Hasher;
pub use text::UnknownDigest;
pub use value::{Algorithm, Digest, UnknownAlgorithm};
