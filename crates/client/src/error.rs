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
    /// The server closed the connection without an answer.
    #[error("the server closed the connection without a response")]
    Closed,
    /// The server sends the file in a coding that was not asked for.
    #[error("the response has Content-Encoding {coding}, which was not requested")]
    Encoded {
        /// The coding, such as `gzip`.
        coding: String,
    },
    /// A server of `https` redirects to one of `http`.
    #[error("the server redirects from https to {to}, which is not encrypted")]
    Downgrade {
        /// The address.
        to: String,
    },
    /// There are no keys for an object store where there should be some, or they cannot be read.
    #[error(transparent)]
    Keys(Box<KeysError>),
    /// A connection could not be made, or failed.
    #[error("{action} {address}: {}", Plain(.source))]
    Network {
        /// The action that failed.
        action: NetworkAction,
        /// The address of the server.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The proxy does not lead to the server.
    #[error("the proxy {address} refuses to connect to {to}: {}", status_text(*.status, .detail))]
    Proxy {
        /// Its address.
        address: Box<str>,
        /// The address of the server.
        to: Box<str>,
        /// Its status.
        status: u16,
        /// Its explanation, if that is a short text; empty otherwise.
        detail: String,
    },
    /// The response of the proxy cannot be used.
    #[error("invalid response from the proxy {address}: {problem}")]
    ProxyResponse {
        /// Its address.
        address: Box<str>,
        /// What is wrong with it.
        problem: InvalidResponse,
    },
    /// The scheme of the address is neither `http` nor `https`.
    #[error("unsupported URL scheme {scheme}: use http or https")]
    Scheme {
        /// Its scheme.
        scheme: String,
    },
    /// The server answered with a failure.
    #[error("{}", refusal_text(*.status, .code, .detail))]
    Status {
        /// Its status.
        status: u16,
        /// The word of an object store for it, such as `NoSuchKey`; empty otherwise.
        code: String,
        /// Its explanation, if that is a short text; empty otherwise.
        detail: String,
        /// Whether the request had credentials.
        has_identified: bool,
        /// Whether the server requires authentication by other schemes than those of this program.
        needs_other_scheme: bool,
        /// The time that the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// Too little moved for too long.
    #[error("too little progress within the time limit")]
    Stalled,
    /// The answer was not complete at the deadline.
    #[error("the response was not complete in time")]
    Late,
    /// The server redirects too often.
    #[error("more than {max} redirects")]
    TooManyRedirects {
        /// The maximum that is followed.
        max: u32,
    },
    /// The server requires a certificate of the client.
    #[error(
        "receiving from {address}: the server requires a client certificate, which is not supported"
    )]
    ClientCertificate {
        /// Its address.
        address: String,
    },
    /// The server could not prove who it is, or does not speak TLS as it should.
    #[error("TLS with {address}: {error}")]
    Tls {
        /// Its address.
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
            Self::Closed | Self::Stalled | Self::Late => true,
            // An address that connect(2) rejects.
            Self::Network { source, .. } => Errno::from_io_error(source) != Some(Errno::INVAL),
            Self::Tls { error, .. } => matches!(**error, HandshakeError::Closed),
            Self::Status { code, .. } if code == "RequestTimeout" => true,
            Self::Proxy { status, .. } | Self::Status { status, .. } => {
                matches!(status, 408 | 425 | 429 | 500 | 502..=504)
            }
            _ => false,
        }
    }

    /// Returns whether a connection that was made broke before the answer.
    pub(super) fn is_broken_off(&self) -> bool {
        match self {
            Self::Closed | Self::Stalled => true,
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
                // Without a handshake, not a byte of HTTP was exchanged.
                matches!(action, NetworkAction::LookingUp | NetworkAction::Handshaking)
                    || source.kind() == io::ErrorKind::ConnectionRefused
            }
            Self::Tls { .. } => true,
            _ => false,
        }
    }
}

/// The use of a connection when it failed.
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
    /// The body has another length than the file.
    #[error("{}", body_length_text(*.bytes, *.expected, .path.as_deref()))]
    BodyLength {
        /// The length of the body in bytes.
        bytes: u64,
        /// The length that was announced.
        expected: u64,
        /// The path in the tree, if the file is part of one.
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
    /// The server breaks the rules of HTTP or of an object store in this way.
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
    /// The URL of the container's service would send its token unencrypted to another machine.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI: it is neither https nor an address of this \
         machine or its container service"
    )]
    InsecureService,
    /// Keys have characters that do not fit into a field of a request.
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
        /// The service, without what might be secret in its URL.
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
    /// No file has the profile that was named.
    #[error(
        "there is no profile '{profile}' in {} and {}",
        .credentials.display(), .config.display()
    )]
    ProfileNotFound {
        /// The profile.
        profile: String,
        /// The file of keys.
        credentials: PathBuf,
        /// The file of settings.
        config: PathBuf,
    },
    /// The profile gets its keys in a way that is not supported.
    #[error(
        "the profile '{profile}' gets its keys by {setting}, which is not supported: \
         eval \"$(aws configure export-credentials --format env)\" puts them into the \
         environment"
    )]
    ProfileUnsupported {
        /// The profile.
        profile: String,
        /// The setting that names the way.
        setting: &'static str,
    },
    /// A file with a token or a profile cannot be read.
    #[error("reading {}: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The error of the file.
        source: io::Error,
    },
    /// A service that has keys cannot be reached, or refuses them.
    #[error("requesting {what} from {service}: {source}")]
    Service {
        /// The thing that was requested, in words.
        what: &'static str,
        /// The service, without what might be secret in its URL.
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

/// Returns whether an error can only come from a connection, not from a file.
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

/// Describes a refusal of a server, or of an object store, which has a `code` for it.
fn refusal_text(status: u16, code: &str, detail: &str) -> String {
    let status = status_text(status, detail);
    match code {
        "" => format!("the server answered {status}"),
        code => format!("the store answered {status} ({code})"),
    }
}

/// Returns a status for people, with the server's explanation if there is one.
fn status_text(status: u16, detail: &str) -> String {
    let reason = underpass_protocol::response::head::reason(status);
    let status_text = format!("{status} {reason}");
    let status_text = status_text.trim_end();
    if detail.is_empty() { status_text.to_owned() } else { format!("{status_text}: {detail}") }
}

impl ClientError {
    /// Converts an error from reading an answer of `address`.
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
