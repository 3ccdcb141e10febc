//! The reasons why an input is invalid.

use url::ParseError;

use crate::s3::BadLocation;

/// The reason why a text is not a URL that can be used. Its text has no part of the URL but the
/// scheme: the rest may contain a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It cannot be parsed.
    #[error("it is not a URL: {0}")]
    Malformed(ParseError),
    /// The scheme is required here, and missing.
    #[error("write http://HOST/ or https://HOST/")]
    NoScheme,
    /// It is no address of an object.
    #[error(transparent)]
    Object(#[from] BadLocation),
    /// It is a proxy with another scheme than `http`.
    #[error("only proxies over http are supported")]
    Proxy,
    /// The scheme is not supported.
    #[error("the scheme {scheme} is not supported, only {supported}")]
    Scheme {
        /// The scheme.
        scheme: String,
        /// Those that are supported.
        supported: &'static str,
    },
    /// A slash or the colon after the scheme is missing.
    #[error("a URL begins with http:// or https://")]
    Slashes,
    /// It is the address of a Unix socket.
    #[error("unix: is an address of recv, send and serve, not a URL")]
    UnixSocket,
    /// The host is an address with a zone (RFC 6874).
    #[error(
        "an address with a zone, such as [fe80::1%25eth0], is not supported: use the name of the server, or an address without a zone"
    )]
    Zone,
}

/// The reason why a text is not a header field that can be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FieldError {
    /// The name is empty, or has a character that names cannot have.
    #[error("a name consists of letters, digits and hyphens")]
    Name,
    /// There is no colon.
    #[error("write 'Name: value'")]
    NoColon,
    /// The client itself sets a field of this name.
    #[error("{0} is set by the client itself")]
    Reserved(String),
    /// The value has a line break or another control character.
    #[error("a value cannot contain line breaks")]
    Value,
}

/// A token is empty, or has a character that is not visible ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token cannot be empty or contain spaces or line breaks")]
pub struct InvalidToken;
