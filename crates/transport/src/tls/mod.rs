//! TLS: handshakes by rustls, then records by the kernel where it can, otherwise here.
//!
//! A [`Handshake`] becomes a [`Session`], which is the engine's `TlsTransport`: bytes of files go through
//! the kernel's own TLS where it has one, and through this process where it has none. Which of the
//! two is decided when the handshake is done and never changed.

mod acceptor;
#[cfg(test)]
mod careful; // tests of leaving what follows a handshake in the socket
mod certificate; // facts of certificates, for people
mod complete; // handshakes for those who can wait
mod connection; // rustls' two sides as one
mod connector;
pub mod control; // what comes after a handshake besides data
mod error;
mod framing;
mod handshake;
mod identity;
mod kernel; // records there
mod names; // of this host
mod pin;
mod place;
mod queue; // bytes between a socket and rustls
mod session;
mod suites;
mod user_space; // records here
mod wear; // of keys

pub use acceptor::Acceptor;
pub use connector::{Connector, Trust};
pub use error::{Fault, HandshakeError, TlsError};
pub use handshake::{Handshake, Progress};
pub use identity::Identity;
pub use pin::{Pin, UnknownPin};
pub use place::{Place, Why};
pub use session::{Facts, Session};
