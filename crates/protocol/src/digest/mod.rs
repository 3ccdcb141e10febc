//! Digests of files: their names, and their representation in fields (RFC 9530).

mod fields;
mod hasher;
mod list;
mod text;
mod value;

pub use fields::{BadDigestField, parse_digests, parse_wanted, write_digests, write_wanted};
pub use hasher::Hasher;
pub use list::{DigestList, Unlisted};
pub use text::UnknownDigest;
pub use value::{Algorithm, Digest, UnknownAlgorithm, hex};
