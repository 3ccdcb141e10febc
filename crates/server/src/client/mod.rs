//! Downloads, uploads and whole trees over HTTP, without a runtime.

mod backoff;
pub mod download;
mod error;
mod hints;
mod http;
pub mod tree;
pub mod upload;

pub use error::ClientError;
pub use http::{
    Answer, Connection, Credentials, Fields, HttpClient, Proxies, Request, Response, TlsSetup,
};
pub use url::Url;
