//! What requests mean, row by row: each module of tests is the table of one module of the crate.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs)] // the tests have a clock

mod caching;
mod chunked;
mod conditional;
mod destination;
mod digest;
mod disposition;
mod forwarded;
mod head;
mod media;
mod media_types;
mod negotiate;
mod origin;
mod plan;
mod proxy_header;
mod range;
mod request;
mod resumption;
mod rig;
mod target;
mod upload;
mod validator;
