//! An HTTP file server on top of the `underpass` protocol and engine crates.
//!
//! Deciding what a request means has no side effects: a request head and the attributes of a file
//! give a plan, and no file or clock is read. A thin layer around it owns the sockets, descriptors
//! and clocks, and sends every body through the engine.

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
    ServerSummary, Settings, SiteControl, SiteSettings, TrustedProxies,
};
pub use underpass_observe::access_log;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
