//! The heads of requests, and the meaning of their fields.

mod authority;
mod client_net;
pub mod destination;
pub mod forwarded;
mod framing;
pub mod host_map;
pub mod negotiate;
pub mod origin;
mod parse;
pub mod proxy_header;
pub mod target;

pub use authority::{host, split_absolute};
pub use client_net::ClientNet;
pub use framing::BodyLength;
pub use parse::{
    EMPTY_LINES, MAX_HEAD, Malformed, Method, OwnedRequest, Request, may_be_over, parse, too_long,
};
