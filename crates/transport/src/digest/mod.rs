//! Computes digests of files, and compares them with announced or expected ones.
//!
//! Digests are the only feature that requires all bytes of a file in user space.

mod compute;
mod offer;
mod verify;

pub use compute::{ComputeError, Computed, add_range, compute, crc32};
pub use offer::{Checked, Offer, OfferError};
pub use verify::{DigestCheck, verify};
