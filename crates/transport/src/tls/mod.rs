//! TLS: rustls makes the handshake; then the kernel encrypts where it can, otherwise this process.
//!
//! A [`Handshake`] becomes a [`Session`], which is the engine's `TlsTransport`: bytes of files pass
//! through kernel TLS if it is available, otherwise through this process. This is decided when the
//! handshake is done and never changes.

mod acceptor;
mod blocking;
mod certificates;
mod connector;
mod error;
mod handshake;
#[cfg(test)]
mod handshake_tests;
mod kernel_offer;
mod records;
mod session;
mod suites;

pub use acceptor::Acceptor;
pub use certificates::{Identities, Identity, KeyFiles};
pub use connector::Connector;
pub use error::{Fault, HandshakeError, TlsError};
pub use handshake::{Handshake, HandshakeProgress};
pub use records::control;
pub use session::Session;

pub use crate::session_facts::{
    CERTIFICATE_REQUIRED, EncryptedBy, KernelTlsObstacle, SessionFacts,
};
pub use crate::trust::{Pin, Trust, UnknownPin};
