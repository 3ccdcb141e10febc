//! An HTTP file server on top of the `underpass` protocol and engine crates.
//!
//! Deciding what a request means has no side effects: a request head and the attributes of a file
//! give a plan, and no file or clock is read. A thin layer around it owns the sockets, descriptors
//! and clocks, and sends every body through the engine.
//!
//! # Examples
//!
//! Serves a folder until it is told to end:
//!
//! ```
//! use std::thread;
//! use underpass_server::{Address, Control, Server, Settings};
//!
//! # let temporary = tempfile::tempdir()?;
//! # let folder = temporary.path().to_owned();
//! let server = Server::bind(Settings::new(folder), &Address::resolve("127.0.0.1:0", 0)?, vec![])?;
//! println!("http://{}/", server.addresses()[0]);
//! let control = Control::new();
//! let remote = control.clone();
//! let thread = thread::spawn(move || server.run(control, |_log_line| {}, |_event| {}));
//! remote.drain();
//! let summary = thread.join().expect("no panic")?;
//! assert_eq!((summary.requests, summary.cut_off), (0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod archive;
pub mod auth;
mod changes;
mod connection;
pub mod digest;
mod files;
mod listing;
mod observe;
mod routing;
mod server;
mod uploads;

pub use server::{
    Address, AddressError, BadHost, BadNetwork, BadRedirect, Changes, Control, Credentials,
    HostPattern, MediaTypes, MinFree, PathHeader, Redirect, ServeError, Server, ServerEvent,
    ServerSummary, Settings, SiteControl, SiteSettings, TrustedProxies, max_connections,
};
pub use underpass_observe::access_log;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
