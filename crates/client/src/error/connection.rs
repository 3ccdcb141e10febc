//! The reason why no connection could be made, or why it failed.

use std::fmt;
use std::io;

use rustix::io::Errno;
use underpass_engine::hint::Plain;
use underpass_transport::tls::{HandshakeError, TlsError};

/// The reason why no connection could be made, or why it failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The trusted certificate authorities cannot be read.
    #[error(transparent)]
    Authorities(Box<TlsError>),
    /// The server requires a client certificate.
    #[error(
        "receiving from {address}: the server requires a client certificate, which is not supported"
    )]
    ClientCertificate {
        /// The address of the server.
        address: String,
    },
    /// The peer closed the connection without a response.
    #[error("{by} closed the connection without a response")]
    Closed {
        /// The peer, in words: the server, or its proxy with the address.
        by: Box<str>,
    },
    /// A connection could not be made, or failed.
    #[error("{action} {address}: {}", Plain(.source))]
    Network {
        /// What the connection was used for.
        action: NetworkAction,
        /// The address of the server.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server's certificate was not accepted, or the server violates the TLS protocol.
    #[error("TLS with {address}: {error}")]
    Tls {
        /// The address of the server.
        address: String,
        /// The error of the handshake.
        #[source]
        error: Box<HandshakeError>,
    },
}

impl ConnectionError {
    /// Returns whether the same request may succeed later.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Closed { .. } => true,
            // connect(2) rejects the address itself.
            Self::Network { source, .. } => Errno::from_io_error(source) != Some(Errno::INVAL),
            Self::Tls { error, .. } => matches!(**error, HandshakeError::Closed),
            Self::Authorities(_) | Self::ClientCertificate { .. } => false,
        }
    }

    /// Returns whether an established connection broke before the response.
    pub(super) fn is_broken_off(&self) -> bool {
        match self {
            Self::Closed { .. } => true,
            Self::Network { action, .. } => {
                matches!(action, NetworkAction::Receiving | NetworkAction::Sending)
            }
            _ => false,
        }
    }

    /// Returns whether there seems to be no server at the address.
    pub(super) fn is_unreachable_host(&self) -> bool {
        match self {
            Self::Network { action, source, .. } => {
                // If the handshake failed, no byte of HTTP was exchanged.
                matches!(action, NetworkAction::LookingUp | NetworkAction::Handshaking)
                    || source.kind() == io::ErrorKind::ConnectionRefused
            }
            Self::Tls { .. } => true,
            _ => false,
        }
    }
}

/// What a connection was used for when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetworkAction {
    /// Connecting to the server, or to its proxy.
    Connecting,
    /// The TLS handshake.
    Handshaking,
    /// Looking up the address of the server.
    LookingUp,
    /// Receiving a response.
    Receiving,
    /// Sending a request.
    Sending,
}

impl fmt::Display for NetworkAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "connecting to",
            Self::Handshaking => "TLS handshake with",
            Self::LookingUp => "looking up",
            Self::Receiving => "receiving from",
            Self::Sending => "sending to",
        })
    }
}

/// Returns whether an error can only come from a connection, never from a file.
#[must_use]
pub fn is_of_network(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::HOSTDOWN
                | Errno::HOSTUNREACH
                | Errno::NETDOWN
                | Errno::NETRESET
                | Errno::NETUNREACH
                | Errno::TIMEDOUT
        )
    )
}
