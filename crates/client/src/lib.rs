//! Downloads, uploads and whole trees over HTTP, without a runtime.
//!
//! A client has few connections, and each has a thread that blocks on it. The engine moves the
//! bodies in both directions.
//!
//! | to | use |
//! | --- | --- |
//! | send one request | [`HttpClient::execute`], [`HttpClient::fetch_to_memory`] |
//! | fetch a file, over several connections, and resume it later | [`download::Downloader`] |
//! | fetch a folder | [`tree::fetch`] |
//! | upload a file or a stream | [`upload::upload`], to an object store [`s3::upload`] |
//! | find the files of named folders, and create theirs on the server | [`upload::walk`], [`upload::TargetFolders`] |
//! | have a cache node fetch files | [`fill::Filler`] |
//! | parse what a user has typed, or set in the environment | [`input`], [`environment`] |
//!
//! # Examples
//!
//! Uploads a file unless the server has one of this name. If the connection breaks, the upload is
//! resumed where the server supports that.
//!
//! ```no_run
//! use std::fs::File;
//! use underpass_client::upload::{Condition, SendOptions, Upload, upload};
//! use underpass_client::{HttpClient, Url};
//! use underpass_engine::Source;
//!
//! let file = File::open("disk.img")?;
//! let disk = Upload {
//!     source: &Source::of(&file)?,
//!     fields: &[("Content-Type", "application/octet-stream")],
//!     condition: Condition::Absent,
//!     options: SendOptions::default(),
//!     journal: None,
//!     retries: 8,
//! };
//! let url = Url::parse("http://192.0.2.1:5000/disk.img")?;
//! let (done, _) = upload(&HttpClient::default(), &disk, &url, None, &mut |_| {})?;
//! println!("{}: {} bytes in user space", done.status, done.report.user_space_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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

pub use error::{
    ClientError, ConnectionError, InvalidResponse, NetworkAction, ProxyError, TimeoutError,
    UnusableUrl, is_of_network,
};
pub use http::{
    Connection, Credentials, Fields, HttpClient, OpenResponse, Proxies, Request, Response, Sign,
    Signature, StoreRefusal, TlsSetup, without_credentials,
};
pub use url::Url;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
