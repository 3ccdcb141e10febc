//! The reason why a request failed.

mod hints;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::Error;
use underpass_engine::hint::Plain;
use underpass_transport::incoming::ReceiveError;
use underpass_transport::tls::{CERTIFICATE_REQUIRED, HandshakeError, TlsError};

/// The reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The trusted certificate authorities cannot be read.
    #[error(transparent)]
    Authorities(Box<TlsError>),
    /// The response cannot be used.
    #[error("invalid response from the server: {0}")]
    InvalidResponse(#[from] InvalidResponse),
    /// The request was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The peer closed the connection without a response.
    #[error("{by} closed the connection without a response")]
    Closed {
        /// The peer, in words: the server, or its proxy with the address.
        by: Box<str>,
    },
    /// The response has a content coding that was not requested.
    #[error("the response has Content-Encoding {coding}, which was not requested")]
    Encoded {
        /// The coding, such as `gzip`.
        coding: String,
    },
    /// An `https` server redirects to an `http` URL.
    #[error("the server redirects from https to {to}, which is not encrypted")]
    Downgrade {
        /// The target of the redirect.
        to: String,
    },
    /// The keys of an object store are missing or cannot be read.
    #[error(transparent)]
    Keys(Box<KeysError>),
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
    /// The proxy refused to connect to the server.
    #[error("the proxy {address} refuses to connect to {to}: {}", status_text(*.status, .detail))]
    Proxy {
        /// The address of the proxy.
        address: Box<str>,
        /// The address of the server.
        to: Box<str>,
        /// The proxy's status.
        status: u16,
        /// The proxy's explanation, if it is a short text; empty otherwise.
        detail: String,
    },
    /// The response of the proxy cannot be used.
    #[error("invalid response from the proxy {address}: {problem}")]
    ProxyResponse {
        /// The address of the proxy.
        address: Box<str>,
        /// What is wrong with it.
        problem: InvalidResponse,
    },
    /// The scheme of the URL is neither `http` nor `https`.
    #[error("unsupported URL scheme {scheme}: use http or https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
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
    /// The transfer was slower than the minimum rate for too long.
    #[error("too little progress within the time limit")]
    Stalled,
    /// The response was not complete at the deadline.
    #[error("the response was not complete in time")]
    Late,
    /// The server redirects too often.
    #[error("more than {max} redirects")]
    TooManyRedirects {
        /// The maximum number of redirects.
        max: u32,
    },
    /// The server requires a client certificate.
    #[error(
        "receiving from {address}: the server requires a client certificate, which is not supported"
    )]
    ClientCertificate {
        /// The address of the server.
        address: String,
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

impl ClientError {
    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Closed { .. } | Self::Stalled | Self::Late => true,
            // connect(2) rejects the address itself.
            Self::Network { source, .. } => Errno::from_io_error(source) != Some(Errno::INVAL),
            Self::Tls { error, .. } => matches!(**error, HandshakeError::Closed),
            Self::Status { code, .. } if code == "RequestTimeout" => true,
            Self::Proxy { status, .. } | Self::Status { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504)
            }
            _ => false,
        }
    }

    /// Returns whether an established connection broke before the response.
    pub(super) fn is_broken_off(&self) -> bool {
        match self {
            Self::Closed { .. } | Self::Stalled => true,
            Self::Network { action, .. } => {
                matches!(action, NetworkAction::Receiving | NetworkAction::Sending)
            }
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

/// The reason why a response cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidResponse {
    /// The body is broken.
    #[error(transparent)]
    Body(ReceiveError),
    /// The length of the body differs from that of the file.
    #[error("{}", body_length_text(*.bytes, *.expected, .path.as_deref()))]
    BodyLength {
        /// The length of the body in bytes.
        bytes: u64,
        /// The expected length.
        expected: u64,
        /// The path in the tree, if the file belongs to one.
        path: Option<PathBuf>,
    },
    /// `Content-Range` contradicts the request or the rest of the head.
    #[error("{problem} '{value}'")]
    ContentRange {
        /// What is wrong with the value, up to the value.
        problem: &'static str,
        /// The value of the field.
        value: String,
    },
    /// The head is not valid HTTP/1.1.
    #[error(transparent)]
    Head(httparse::Error),
    /// The server violates HTTP or the protocol of an object store.
    #[error("{0}")]
    Protocol(&'static str),
    /// A redirect has no valid target.
    #[error("redirect to '{location}': {source}")]
    Redirect {
        /// The value of `Location`.
        location: String,
        /// The error of the parser.
        source: url::ParseError,
    },
}

/// The reason why a request to an object store cannot be made or signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The URL of the container's key service would send its token unencrypted to another machine.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI: it is neither https nor an address of this \
         machine or its container service"
    )]
    InsecureService,
    /// Keys contain characters that a header field cannot have.
    #[error("the keys from {place} have spaces or other invalid characters")]
    InvalidKeys {
        /// The source of the keys.
        place: &'static str,
    },
    /// The text is not the key of an object.
    #[error("'{}' is not a key", .0.escape_debug())]
    InvalidObject(String),
    /// The text is not the name of a region.
    #[error("'{}' is not the name of a region", .0.escape_debug())]
    InvalidRegion(String),
    /// The response of a service has no keys.
    #[error("{service} returned no keys")]
    NoKeys {
        /// The service, without the parts of its URL that may be secret.
        service: String,
    },
    /// A file has no token.
    #[error("{} has no token", .0.display())]
    NoToken(PathBuf),
    /// The profile has only one of the two keys.
    #[error(
        "the profile '{0}' has only one of aws_access_key_id and \
         aws_secret_access_key"
    )]
    ProfileIncomplete(String),
    /// No file contains the requested profile.
    #[error(
        "there is no profile '{profile}' in {} and {}",
        .credentials.display(), .config.display()
    )]
    ProfileNotFound {
        /// The profile.
        profile: String,
        /// The credentials file.
        credentials: PathBuf,
        /// The config file.
        config: PathBuf,
    },
    /// The profile gets its keys by an unsupported method.
    #[error(
        "the profile '{profile}' gets its keys by {setting}, which is not supported: \
         eval \"$(aws configure export-credentials --format env)\" puts them into the \
         environment"
    )]
    ProfileUnsupported {
        /// The profile.
        profile: String,
        /// The setting that selects the method.
        setting: &'static str,
    },
    /// A file with a token or a profile cannot be read.
    #[error("reading {}: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A key service cannot be reached, or refuses the request.
    #[error("requesting {what} from {service}: {source}")]
    Service {
        /// What was requested, in words.
        what: &'static str,
        /// The service, without the parts of its URL that may be secret.
        service: String,
        /// The error of the request.
        source: Box<ClientError>,
    },
}

impl From<KeysError> for ClientError {
    fn from(error: KeysError) -> Self {
        Self::Keys(Box::new(error))
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

fn body_length_text(bytes: u64, expected: u64, path: Option<&Path>) -> String {
    match path {
        Some(path) => {
            format!("a body of {bytes} bytes for {}, instead of {expected}", path.display())
        }
        None => format!("a body of {bytes} bytes instead of {expected}"),
    }
}

/// Describes the refusal of a server, or of an object store if there is a `code`.
fn refusal_text(status: u16, code: &str, detail: &str) -> String {
    let status = status_text(status, detail);
    match code {
        "" => format!("the server answered {status}"),
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

impl ClientError {
    /// Converts an error that occurred while reading a response of `address`.
    #[must_use]
    pub fn receiving(address: &str, error: ReceiveError) -> Self {
        let network = |source| Self::Network {
            action: NetworkAction::Receiving,
            address: address.to_owned(),
            source,
        };
        match error {
            ReceiveError::Cancelled => Self::Cancelled,
            ReceiveError::Stalled => Self::Stalled,
            ReceiveError::Late => Self::Late,
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
                Self::ClientCertificate { address: address.to_owned() }
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
