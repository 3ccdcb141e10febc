//! Why a server could not be asked, or its answer not be used.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::incoming::ReceiveError;
use crate::tls::{HandshakeError, TlsError};

/// Why a server could not be asked, or its answer not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientError {
    /// It cannot be known whom to believe.
    Authorities(Box<TlsError>),
    /// What was received is no answer in HTTP/1.1.
    BadResponse(String),
    /// Nobody wants it any more.
    Cancelled,
    /// The server closed the connection without an answer.
    Closed,
    /// The server sends another form of the file than was asked for.
    Encoded {
        /// The coding, such as `gzip`.
        coding: String,
    },
    /// A server of `https` points to one of `http`.
    Downgrade {
        /// The address.
        to: String,
    },
    /// A connection could not be made, or failed.
    Network {
        /// What was being done, such as `connecting to`.
        action: &'static str,
        /// With which address.
        address: String,
        /// What the system answered.
        source: io::Error,
    },
    /// The proxy does not lead to the server.
    Proxy {
        /// Its address.
        address: Box<str>,
        /// The address of the server.
        to: Box<str>,
        /// What it answered.
        status: u16,
        /// What it says for people, if that is a short text.
        detail: String,
    },
    /// The address is of a kind that cannot be asked.
    Scheme {
        /// Its scheme.
        scheme: String,
    },
    /// The server answered with a failure.
    Status {
        /// Its status.
        status: u16,
        /// What it says for people, if that is a short text.
        detail: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// Nothing moved for too long.
    Stalled,
    /// The server points from address to address.
    TooManyRedirects {
        /// How many are followed.
        most: u32,
    },
    /// The server could not prove who it is, or does not speak TLS as it should.
    Tls {
        /// Its address.
        address: String,
        /// What went wrong.
        error: Box<HandshakeError>,
    },
}

impl ClientError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Closed | Self::Stalled => true,
            Self::Network { source, .. } => source.kind() != io::ErrorKind::InvalidInput,
            Self::Tls { error, .. } => matches!(**error, HandshakeError::Closed),
            Self::Proxy { status, .. } | Self::Status { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504)
            }
            _ => false,
        }
    }

    /// How long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Whether no server seems to be at the address.
    pub(super) fn is_nobody(&self) -> bool {
        match self {
            Self::Network { action, source, .. } => {
                // Whatever shakes no hands has not said a word of HTTP.
                matches!(*action, "looking up" | "shaking hands with")
                    || source.kind() == io::ErrorKind::ConnectionRefused
            }
            Self::Tls { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorities(error) => error.fmt(f),
            Self::BadResponse(what) => write!(f, "the server's answer is not HTTP: {what}"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Closed => f.write_str("the server closed the connection without an answer"),
            Self::Downgrade { to } => {
                write!(f, "the server redirects from https to {to}, where anybody could read along")
            }
            Self::Encoded { coding } => {
                write!(f, "the server sends it encoded as {coding}, which was not asked for")
            }
            Self::Network { action, address, source } => {
                let text = source.to_string();
                let plain = text.split(" (os error").next().unwrap_or(&text);
                write!(f, "{action} {address}: {plain}")
            }
            Self::Proxy { address, to, status, detail } => {
                let reason = crate::head::reason(*status);
                write!(f, "the proxy {address} does not lead to {to}: {status} {reason}")?;
                if detail.is_empty() { Ok(()) } else { write!(f, ": {detail}") }
            }
            Self::Scheme { scheme } => {
                write!(f, "{scheme} addresses cannot be asked, only http and https ones")
            }
            Self::Status { status, detail, .. } => {
                write!(f, "the server answered {status} {}", crate::head::reason(*status))?;
                if detail.is_empty() { Ok(()) } else { write!(f, ": {detail}") }
            }
            Self::Stalled => f.write_str("nothing moved for too long"),
            Self::TooManyRedirects { most } => write!(f, "more than {most} redirects"),
            Self::Tls { address, error } => write!(f, "TLS with {address}: {error}"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Authorities(error) => Some(error),
            Self::Network { source, .. } => Some(source),
            Self::Tls { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl ClientError {
    /// What went wrong while something was being received from `address`.
    pub(crate) fn receiving(address: &str, error: ReceiveError) -> Self {
        match error {
            ReceiveError::Cancelled => Self::Cancelled,
            ReceiveError::Stalled => Self::Stalled,
            ReceiveError::Cut => {
                let source = io::Error::new(io::ErrorKind::UnexpectedEof, error.to_string());
                Self::Network { action: "receiving from", address: address.to_owned(), source }
            }
            ReceiveError::Ended => Self::Closed,
            ReceiveError::Io(source) => {
                Self::Network { action: "receiving from", address: address.to_owned(), source }
            }
            error => Self::BadResponse(error.to_string()),
        }
    }
}
