//! TLS: handshakes by rustls, then records by the kernel where it can, otherwise here.
//!
//! A [`Handshake`] becomes a [`Session`], which is the engine's `TlsTransport`: bytes of files go through
//! the kernel's own TLS where it has one, and through this process where it has none. Which of the
//! two is decided when the handshake is done and never changed.

mod acceptor;
mod blocking; // handshakes that wait for the peer
mod certificates;
mod connector;
mod error;
mod handshake;
#[cfg(test)]
mod handshake_tests; // what follows a handshake stays in the socket
mod place;
mod records;
mod session;
mod suites;

pub use acceptor::Acceptor;
pub use certificates::{Identity, Pin, UnknownPin};
pub use connector::{Connector, Trust};
pub use error::{Fault, HandshakeError, TlsError};
pub use handshake::{Handshake, Progress};
pub use place::{Place, Why};
pub use records::control;
pub use session::{Facts, Session};
