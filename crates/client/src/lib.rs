//! Downloads, uploads and whole trees over HTTP, without a runtime.
//!
//! A client has few connections, and each has a thread that blocks on it. The engine moves the
//! bodies in both directions.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod backoff;
pub mod download;
pub mod environment;
mod error;
pub mod fill;
mod http;
pub mod input;
pub mod journal;
pub mod s3;
pub mod tree;
pub mod upload;

pub use error::{ClientError, InvalidResponse, NetworkAction, is_of_network};
pub use http::{
    Connection, Credentials, Fields, HttpClient, OpenResponse, Proxies, Request, Response, Sign,
    Signature, StoreRefusal, TlsSetup, without_credentials,
};
pub use url::Url;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
