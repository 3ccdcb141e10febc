//! Digests of files: how they are made, compared and kept.
//!
//! A digest is the one thing about a file for which all of its bytes have to climb into user
//! space. So it is made only when it is requested, and [`kept`] for the next request.

mod compute;
pub(crate) mod jobs;
pub mod kept;
pub(crate) mod known; // what is known of files
pub(crate) mod make; // reads files for their digests
mod offer;
pub(crate) mod respond; // Repr-Digest and ?hash
mod verify;

pub use compute::{Computed, Stopped, compute};
pub use offer::{Checked, Offer, OfferError};
pub use underpass_protocol::digest::{
    Algorithm, BadField, Digest, UnknownDigest, parse_digests, parse_wanted, write_digests,
    write_wanted,
};
pub use verify::{Fact, verify};
