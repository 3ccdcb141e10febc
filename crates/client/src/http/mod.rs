//! Requests and their responses: one connection at a time, without a runtime.
//!
//! A client has few connections, each with a thread that blocks on it, so it needs no event loop
//! for thousands of sockets. The engine moves the bodies in both directions.

mod client;
mod connect;
mod connection;
mod credentials;
mod execute;
mod proxy;
mod response;
mod route;
mod tls;
mod tunnel;
pub(crate) mod xml;

pub use client::HttpClient;
pub(crate) use connection::MAX_INTERIM;
pub use connection::{Connection, Request};
pub use credentials::{Credentials, Sign, Signature, without_credentials};
pub use execute::OpenResponse;
pub use proxy::Proxies;
pub(crate) use response::joined;
pub use response::{Fields, Response};
pub use tls::TlsSetup;
pub use xml::StoreRefusal;
