//! Digests of files: computing, comparing and storing them.
//!
//! A digest is the only property of a file that needs all of its bytes in user space. So it is
//! computed only on request, and [`stored`] for the next request.

pub(crate) mod jobs;
pub(crate) mod known;
pub(crate) mod make;
pub(crate) mod respond;
pub(crate) mod settle;
pub mod stored;
