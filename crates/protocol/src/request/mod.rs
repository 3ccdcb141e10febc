//! The heads of requests, and the meaning of their fields.

mod authority; // hosts and ports
pub mod destination; // where MOVE and COPY go
pub mod forwarded; // for whom a proxy asks
mod framing; // where the body of a request ends
pub mod host_map; // names of hosts, and their wildcards
pub mod negotiate; // which form of a file the client likes best
pub mod origin; // whether a page of another site asks
mod parse; // heads
pub mod proxy_header; // for whom a proxy has opened a connection
pub mod target; // which path is meant

pub use authority::{host, split_absolute};
pub use framing::BodyLength;
pub use parse::{EMPTY_LINES, Malformed, Method, OwnedRequest, Request, parse, too_long};
