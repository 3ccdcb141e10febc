//! Gets certificates for names from an authority (ACME, RFC 8555), keeps them in a folder and
//! renews them.
//!
//! The protocol is that of `instant-acme`; requests are made by the client of this program, so that
//! nothing here needs a runtime: one thread asks, waits and renews. Challenges are answered by the
//! server, which shares the [`Identities`](underpass_transport::tls::Identities).

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
