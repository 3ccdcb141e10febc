//! Gets certificates for names from a certificate authority (ACME, RFC 8555), stores them in a
//! folder and renews them.
//!
//! `instant-acme` implements the protocol; our own HTTP client sends its requests, so that nothing
//! here needs a runtime: one thread sends requests, waits and renews. The server answers the
//! challenges, sharing the [`Identities`](underpass_transport::tls::Identities).

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod acme;
mod error;
mod http;
mod name;
mod names;
mod order;
mod schedule;
mod state;

pub use acme::{Acme, AcmeEvent, AcmeOptions};
pub use error::AcmeError;
pub use name::{InvalidHostname, is_public, name};
pub use names::{Names, NamesControl};
