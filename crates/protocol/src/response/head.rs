//! Writes the head of a response into the caller's memory: no formatting, no allocation.
//!
//! A small hot file is answered in a few microseconds, so a head is put together from bytes that
//! mostly exist already.

use super::media_types::is_media_type;

/// The `Connection` field of the response (RFC 9112 9.3, 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionField {
    /// The connection ends with this response.
    Close,
    /// Another request may follow.
    KeepAlive,
}

/// The head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status (RFC 9110 15). The version beside it is 1.1 for a client of 1.0 too (6.2: the
    /// highest that the server has).
    pub status: u16,
    /// The value of `Date` (RFC 9110 6.6.1).
    pub date: &'a str,
    /// Whether the connection stays open.
    pub connection: ConnectionField,
    /// Whether the request was of HTTP/1.0, where staying open must be said.
    pub is_http10: bool,
    /// The lines that every response has, see [`custom_fields`]. They end in CRLF or are empty.
    pub custom: &'a [u8],
    /// The lines of this response, in the same form.
    pub fields: &'a [u8],
}

impl ResponseHead<'_> {
    /// Appends the status line, date and connection, then the lines and the blank line.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(96 + self.custom.len() + self.fields.len());
        out.extend_from_slice(b"HTTP/1.1 ");
        push_decimal(out, u64::from(self.status));
        out.push(b' ');
        out.extend_from_slice(reason(self.status).as_bytes());
        out.extend_from_slice(b"\r\nDate: ");
        out.extend_from_slice(self.date.as_bytes());
        out.extend_from_slice(match (self.connection, self.is_http10) {
            (ConnectionField::Close, _) => b"\r\nConnection: close\r\n".as_slice(),
            (ConnectionField::KeepAlive, true) => b"\r\nConnection: keep-alive\r\n",
            (ConnectionField::KeepAlive, false) => b"\r\n",
        });
        out.extend_from_slice(self.custom);
        out.extend_from_slice(self.fields);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends one line, `Name: value`.
pub fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends one line whose value is a number.
pub fn push_number_field(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    push_decimal(out, value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal.
pub fn push_decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20]; // the digits of u64::MAX
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Returns the lines that every response has: `Server`, `X-Content-Type-Options`, and those that
/// the operator configured.
///
/// # Errors
///
/// If a line would break the response: see [`BadField`].
pub fn custom_fields(fields: &[(String, String)]) -> Result<Vec<u8>, BadField> {
    let mut out = Vec::new();
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("server")) {
        push_field(&mut out, "Server", SERVER.as_bytes());
    }
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case(NO_SNIFFING)) {
        push_field(&mut out, NO_SNIFFING, b"nosniff");
    }
    for (name, value) in fields {
        check_field(name, value)?;
        if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(BadField::Reserved(name.clone()));
        }
        push_field(&mut out, name, value.trim_ascii().as_bytes());
    }
    Ok(out)
}

/// Checks a field that the operator adds to the responses about some files. It may be the media
/// type, which then has to be one.
///
/// # Errors
///
/// If it would break the response: see [`BadField`].
pub fn path_field(name: &str, value: &str) -> Result<(), BadField> {
    check_field(name, value)?;
    if name.eq_ignore_ascii_case("content-type") {
        return if is_media_type(value.trim_ascii()) {
            Ok(())
        } else {
            Err(BadField::MediaType(value.to_owned()))
        };
    }
    if OWN_FIELDS.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        Err(BadField::Reserved(name.to_owned()))
    } else {
        Ok(())
    }
}

/// Checks the form of a field.
fn check_field(name: &str, value: &str) -> Result<(), BadField> {
    if name.is_empty() || !name.bytes().all(is_token_char) {
        return Err(BadField::Name(name.to_owned()));
    }
    // RFC 9110 5.5: a line break would begin another field, or end the head.
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err(BadField::Value(name.to_owned()));
    }
    Ok(())
}

/// The reason why a field cannot be added to responses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadField {
    /// The value is not a media type (RFC 9110 8.3.1).
    #[error("{0:?} is not a media type")]
    MediaType(String),
    /// The name is not a token (RFC 9110 5.1).
    #[error("{0:?} is not the name of a header field")]
    Name(String),
    /// The server sets this field itself.
    #[error("the server decides {0} itself")]
    Reserved(String),
    /// The value of the field of this name has a control character.
    #[error("the value of {0} has a control character")]
    Value(String),
}

/// Returns the standard phrase of a status, empty if it has none here.
#[must_use]
pub fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        104 => "Upload Resumption Supported", // draft-ietf-httpbis-resumable-upload
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        423 => "Locked",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        507 => "Insufficient Storage",
        _ => "",
    }
}

/// Returns whether a byte may be in a token, such as the name of a field (RFC 9110 5.6.2).
#[must_use]
pub fn is_token_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The media type of messages to people.
pub const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The value of `Server`, without the version, which only helps attackers.
const SERVER: &str = "underpass";

/// The field that keeps browsers from guessing another type than the given one.
const NO_SNIFFING: &str = "X-Content-Type-Options";

/// The fields that the server sets itself: a second one would contradict.
const OWN_FIELDS: [&str; 17] = [
    "Accept-Ranges",
    "Allow",
    "Connection",
    "Content-Disposition",
    "Content-Encoding",
    "Content-Length",
    "Content-Range",
    "Content-Type",
    "Date",
    "ETag",
    "Keep-Alive",
    "Last-Modified",
    "Location",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "WWW-Authenticate",
];
