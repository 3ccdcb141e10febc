//! Makes digests of files, and compares them with what was sent or expected.
//!
//! A digest is the one thing about a file for which all of its bytes have to climb into user space.

mod compute;
mod offer;
mod verify;

pub use compute::{Computed, Stopped, compute};
pub use offer::{Checked, Offer, OfferError};
pub use verify::{Fact, verify};
