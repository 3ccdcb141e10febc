//! The heads of requests, and the meaning of their fields.

mod authority; // hosts and ports
pub mod destination; // where MOVE and COPY go
mod framing; // where the body of a request ends
pub mod negotiate; // which form of a file the client likes best
pub mod origin; // whether a page of another site asks
mod parse; // heads
pub mod target; // which path is meant

pub use authority::split_absolute;
pub use framing::BodyLength;
pub use parse::{EMPTY_LINES, Malformed, Method, OwnedRequest, Request, parse, too_long};
