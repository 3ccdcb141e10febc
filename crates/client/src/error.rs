//! The reason why a request failed.

mod connection;
mod hints;
mod keys;
mod response;

use std::io;
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::Error;
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::CERTIFICATE_REQUIRED;
use url::Url;

pub use connection::{ConnectionError, NetworkAction, is_of_network};
pub use keys::{KeyServiceError, KeysError, ProfileError};
pub use response::InvalidResponse;

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The request was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// No connection could be made, or it failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The response cannot be used.
    #[error("invalid response from the server: {0}")]
    InvalidResponse(#[from] InvalidResponse),
    /// The keys of an object store are missing or cannot be read.
    #[error(transparent)]
    Keys(Box<KeysError>),
    /// The proxy does not connect to the server, or its response is invalid.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The server answered with an error status.
    #[error("{}", refusal_text(*.status, .code, .detail))]
    Status {
        /// The status.
        status: u16,
        /// The object store's error code, such as `NoSuchKey`; empty otherwise.
        code: String,
        /// The server's explanation, if it is a short text; empty otherwise.
        detail: String,
        /// Whether the request had credentials.
        has_identified: bool,
        /// Whether the server only offers authentication schemes that this client lacks.
        needs_other_scheme: bool,
        /// How long the server asks the client to wait (`Retry-After`).
        retry_after: Option<Duration>,
    },
    /// The response was too slow.
    #[error(transparent)]
    TimedOut(#[from] TimeoutError),
    /// The URL, or one that it redirects to, cannot be requested.
    #[error(transparent)]
    Url(#[from] UnusableUrl),
}

impl ClientError {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_temporary(),
            Self::TimedOut(_) => true,
            Self::Status { code, .. } if code == "RequestTimeout" => true,
            Self::Proxy(ProxyError::Refused { status, .. }) | Self::Status { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504)
            }
            _ => false,
        }
    }

    /// Returns whether an established connection broke before the response.
    pub(super) fn is_broken_off(&self) -> bool {
        match self {
            Self::Connection(error) => error.is_broken_off(),
            Self::TimedOut(TimeoutError::Stalled) => true,
            _ => false,
        }
    }

    /// Returns how long the server asks to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether there seems to be no server at the address.
    #[must_use]
    pub fn is_unreachable_host(&self) -> bool {
        matches!(self, Self::Connection(error) if error.is_unreachable_host())
    }

    /// Converts an error that occurred while reading a response of `address`.
    #[must_use]
    pub fn receiving(address: &str, error: ReceiveError) -> Self {
        let network = |source| {
            let (action, address) = (NetworkAction::Receiving, address.to_owned());
            ConnectionError::Network { action, address, source }.into()
        };
        match error {
            ReceiveError::Cancelled => Self::Cancelled,
            ReceiveError::Stalled => TimeoutError::Stalled.into(),
            ReceiveError::Late => TimeoutError::Late.into(),
            ReceiveError::Cut => {
                network(io::Error::new(io::ErrorKind::UnexpectedEof, error.to_string()))
            }
            ReceiveError::Ended => {
                let message = "the connection ended before the last byte";
                network(io::Error::new(io::ErrorKind::UnexpectedEof, message))
            }
            ReceiveError::Io(source)
                if Errno::from_io_error(&source) == Some(CERTIFICATE_REQUIRED) =>
            {
                ConnectionError::ClientCertificate { address: address.to_owned() }.into()
            }
            ReceiveError::Io(source) => network(source),
            ReceiveError::Engine(error) => match *error {
                Error::Io { source, .. } if is_of_network(&source) => network(source),
                error => InvalidResponse::Body(ReceiveError::Engine(Box::new(error))).into(),
            },
            error => InvalidResponse::Body(error).into(),
        }
    }
}

/// The reason why nothing can be fetched through a proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// It refused to connect to the server.
    #[error("the proxy {address} refuses to connect to {to}: {}", status_text(*.status, .detail))]
    Refused {
        /// The address of the proxy.
        address: Box<str>,
        /// The address of the server.
        to: Box<str>,
        /// The proxy's status.
        status: u16,
        /// The proxy's explanation, if it is a short text; empty otherwise.
        detail: String,
    },
    /// Its response cannot be used.
    #[error("invalid response from {by}: {problem}")]
    InvalidResponse {
        /// The proxy, with its address.
        by: Box<str>,
        /// What is wrong with it.
        problem: InvalidResponse,
    },
    /// It is one of another kind, to which a redirect may lead.
    #[error("the proxy for this address uses {scheme}: only proxies over http are supported")]
    Scheme {
        /// The scheme of its URL.
        scheme: String,
    },
}

/// The time limit that a response has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeoutError {
    /// The response was not complete at the deadline.
    #[error("the response was not complete in time")]
    Late,
    /// The transfer was slower than the minimum rate for too long.
    #[error("too little progress within the time limit")]
    Stalled,
}

/// The reason why a URL cannot be requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UnusableUrl {
    /// An `https` server redirects to an `http` URL.
    #[error("the server redirects from https to {to}, which is not encrypted")]
    Downgrade {
        /// The target of the redirect.
        to: String,
    },
    /// The scheme of the URL is neither `http` nor `https`.
    #[error("unsupported URL scheme {scheme}: use http or https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// The server redirects too often.
    #[error("more than {max} redirect{}", if *max == 1 { "" } else { "s" })]
    TooManyRedirects {
        /// The maximum number of redirects.
        max: u32,
    },
}

impl UnusableUrl {
    /// Refuses a redirect that leaves encryption.
    pub(crate) fn check_redirect(from: &Url, to: &Url) -> Result<(), Self> {
        if from.scheme() == "https" && to.scheme() == "http" {
            return Err(Self::Downgrade { to: to.to_string() });
        }
        Ok(())
    }
}

/// Describes the refusal of a server, or of an object store if there is a `code`.
fn refusal_text(status: u16, code: &str, detail: &str) -> String {
    // RFC 9110 15.5.8: only a proxy requires this.
    let by = if status == 407 { "proxy" } else { "server" };
    let status = status_text(status, detail);
    match code {
        "" => format!("the {by} answered {status}"),
        code => format!("the store answered {status} ({code})"),
    }
}

/// Returns a status as text, with the server's explanation if there is one.
fn status_text(status: u16, detail: &str) -> String {
    let reason = underpass_protocol::response::head::reason(status);
    let status_text = format!("{status} {reason}");
    let status_text = status_text.trim_end();
    if detail.is_empty() { status_text.to_owned() } else { format!("{status_text}: {detail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_fails_in_the_middle_of_a_body_is_worth_another_attempt() {
        let engine = |errno: Errno| {
            let report = Box::default();
            let error = Error::Io { mechanism: None, source: errno.into(), report };
            ClientError::receiving("h:1", ReceiveError::Engine(Box::new(error)))
        };
        for errno in [Errno::CONNRESET, Errno::TIMEDOUT, Errno::HOSTUNREACH] {
            let error = engine(errno);
            assert!(error.is_temporary(), "{error}");
            assert!(error.to_string().starts_with("receiving from h:1: "), "{error}");
        }
        assert!(!engine(Errno::NOSPC).is_temporary());
        let ended = ClientError::receiving("h:1", ReceiveError::Ended);
        assert!(ended.is_temporary() && ended.to_string().contains("before the last byte"));
    }

    #[test]
    fn a_server_that_requires_a_certificate_is_not_tried_again() {
        let error = ClientError::receiving("h:1", ReceiveError::Io(CERTIFICATE_REQUIRED.into()));
        assert!(!error.is_temporary() && error.to_string().contains("client certificate"));
    }
}
