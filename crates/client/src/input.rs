//! Parses URLs, header fields and lists as users write them.

mod error;
pub mod list;

use std::net::Ipv6Addr;

use underpass_protocol::response::head::is_token_char;
use url::{ParseError, Url};

use crate::s3::Location;

pub use error::{FieldError, InvalidToken, UrlError};

/// Parses an `http` or `https` URL; a missing scheme means `http`.
///
/// # Errors
///
/// [`UrlError`], whose text does not repeat the URL, which may contain a password.
///
/// # Examples
///
/// ```
/// use underpass_client::input::{UrlError, url};
///
/// assert_eq!(url("localhost:5000/disk.img")?.as_str(), "http://localhost:5000/disk.img");
/// assert!(matches!(url("ftp://localhost/"), Err(UrlError::Scheme { .. })));
/// # Ok::<(), UrlError>(())
/// ```
pub fn url(text: &str) -> Result<Url, UrlError> {
    supported(parsed(text)?, "http and https")
}

fn supported(url: Url, supported: &'static str) -> Result<Url, UrlError> {
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(UrlError::Scheme { scheme: scheme.to_owned(), supported }),
    }
}

/// Parses a URL as [`url()`] does, or the address of an object, `s3://bucket/key`. A bucket alone,
/// `s3://bucket`, is a folder.
///
/// # Errors
///
/// [`UrlError`].
pub fn url_or_object(text: &str) -> Result<Url, UrlError> {
    Location::check(text)?;
    let mut address = parsed(text)?;
    if address.scheme() != "s3" {
        return supported(address, "http, https and s3");
    }
    if address.path().is_empty() {
        address.set_path("/");
    }
    Ok(address)
}

/// Parses the URL of an origin: as [`url_or_object()`], but the scheme is required.
///
/// # Errors
///
/// [`UrlError`].
pub fn origin(text: &str) -> Result<Url, UrlError> {
    if text.contains("://") { url_or_object(text) } else { Err(UrlError::NoScheme) }
}

/// Parses a URL of any scheme; `http` may be left out.
pub(crate) fn parsed(text: &str) -> Result<Url, UrlError> {
    let is_short = |begin: &str| text.starts_with(begin) && !text[begin.len()..].starts_with('/');
    if ["http:/", "https:/"].into_iter().any(is_short)
        || ["http//", "https//"].iter().any(|begin| text.starts_with(begin))
    {
        return Err(UrlError::Slashes);
    }
    if text.starts_with("unix:") {
        return Err(UrlError::UnixSocket);
    }
    let parsed =
        if text.contains("://") { Url::parse(text) } else { Url::parse(&format!("http://{text}")) };
    parsed.map_err(|error| match error {
        ParseError::InvalidIpv6Address if has_zone(text) => UrlError::Zone,
        error => UrlError::Malformed(error),
    })
}

/// Returns whether the host of an invalid URL is an address with a zone (RFC 6874).
fn has_zone(text: &str) -> bool {
    let host = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    host.and_then(|(host, _)| host.split_once('%'))
        .is_some_and(|(address, _)| address.parse::<Ipv6Addr>().is_ok())
}

/// Parses the URL of a proxy.
///
/// # Errors
///
/// [`UrlError`].
pub fn proxy(text: &str) -> Result<Url, UrlError> {
    let url = parsed(text)?;
    if url.scheme() == "http" { Ok(url) } else { Err(UrlError::Proxy) }
}

/// Returns an invalid URL in a form that may be shown, without a possible name and password.
#[must_use]
pub fn redacted(text: &str) -> String {
    // It may not even be a URL: a slash or space in the password may be the mistake.
    let begin = text.find("://").map_or(0, |at| at + 3);
    match text.rfind('@') {
        Some(end) if begin <= end => format!("{}***{}", &text[..begin], &text[end..]),
        _ => text.to_owned(),
    }
}

/// Parses `Name: value`.
///
/// # Errors
///
/// [`FieldError`]. A value with a line break is refused, because it would begin another field (RFC
/// 9110, section 5.5).
pub fn field(text: &str) -> Result<(String, String), FieldError> {
    let (name, value) = text.split_once(':').ok_or(FieldError::NoColon)?;
    if name.is_empty() || !name.bytes().all(is_token_char) {
        return Err(FieldError::Name);
    }
    let value = value.trim();
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        Err(FieldError::Value)
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}

/// Parses `Name: value` as [`field`] does, for a field that the user adds to every request.
///
/// # Errors
///
/// [`FieldError`]. Fields that frame the message, keep the connection or select a part of the file
/// are refused: if they contradicted the client's own, it would wait for bytes that never come, or
/// treat a part as the whole.
pub fn request_field(text: &str) -> Result<(String, String), FieldError> {
    let (name, value) = field(text)?;
    if OWN_FIELDS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        Err(FieldError::Reserved(name))
    } else {
        Ok((name, value))
    }
}

/// Request fields that only the client itself may set.
const OWN_FIELDS: [&str; 12] = [
    "Connection",
    "Content-Length",
    "Content-Range",
    "Expect",
    "If-Range",
    "Keep-Alive",
    "Proxy-Connection",
    "Range",
    "TE",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// Checks a token for the header field `Authorization`.
///
/// # Errors
///
/// [`InvalidToken`]. A token with a line break is refused, because it would begin another field.
pub fn token(text: &str) -> Result<String, InvalidToken> {
    let is_valid = text.bytes().all(|byte| byte.is_ascii_graphic()) && !text.is_empty();
    is_valid.then(|| text.to_owned()).ok_or(InvalidToken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (text, expected) in [
            ("socks5h://me:SECRET@h", "socks5h://***@h"),
            ("http://me:SE/C@RET@h:x/", "http://***@h:x/"),
            ("me:SECRET@h o", "***@h o"),
            ("http://h:x/", "http://h:x/"),
            ("@://", "@://"),
        ] {
            assert_eq!(redacted(text), expected);
        }
    }

    #[test]
    fn a_url_may_lack_its_scheme() {
        let port = |text: &str| url(text).ok().and_then(|url| url.port());
        assert_eq!(port("localhost:8000/a"), Some(8000));
        assert_eq!(port("https://localhost:8443/"), Some(8443));
        assert!(url("http://").is_err() && url("ftp://localhost/").is_err());
        for text in ["http:/localhost/", "https:/localhost", "http//localhost/a"] {
            assert_eq!(url(text), Err(UrlError::Slashes), "{text}");
        }
        assert_eq!(url("unix:/tmp/x"), Err(UrlError::UnixSocket));
        assert!(url("http:8000/a").is_ok_and(|url| url.port() == Some(8000)));
        assert!(proxy("https://localhost/").is_err());
    }

    #[test]
    fn s3_addresses_are_accepted_only_where_objects_are_supported() {
        let read = |text: &str| url_or_object(text).map(|url| url.to_string()).ok();
        assert_eq!(read("s3://bucket").as_deref(), Some("s3://bucket/"));
        assert_eq!(read("s3://bucket/a").as_deref(), Some("s3://bucket/a"));
        assert_eq!(read("localhost/a").as_deref(), Some("http://localhost/a"));
        assert_eq!(read("ftp://localhost/"), None);
        assert!(url("s3://bucket/a").is_err() && proxy("s3://bucket/a").is_err());
    }

    #[test]
    fn a_token_cannot_begin_another_field() {
        assert_eq!(token("a-b.c_d~e+f/g=="), Ok("a-b.c_d~e+f/g==".to_owned()));
        for text in ["", "a\nX: b", "a\n", "a b", "a\u{e9}"] {
            assert!(token(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_address_zone_is_named_in_the_refusal() {
        for text in ["http://[fe80::1%25eth0]/", "[fe80::1%eth0]:80/x", "https://[::1%251]"] {
            assert_eq!(url(text), Err(UrlError::Zone), "{text}");
        }
        for text in ["http://[fe80::1/%25]", "http://[x%25]/", "http://[::1]a%25"] {
            assert!(matches!(url(text), Err(UrlError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn framing_fields_cannot_be_set_by_users() {
        for text in ["content-length: 4", "Transfer-Encoding: chunked", "RANGE: bytes=0-1"] {
            assert!(matches!(request_field(text), Err(FieldError::Reserved(_))), "{text}");
        }
        assert!(request_field("Content-Type: a/b").is_ok() && field("Range: bytes=0-").is_ok());
    }

    #[test]
    fn a_field_cannot_begin_another() {
        assert_eq!(field("A: b: c"), Ok(("A".to_owned(), "b: c".to_owned())));
        for text in ["", "A", "A b: c", ": c", "A: b\r\nC: d"] {
            assert!(field(text).is_err(), "{text:?}");
        }
    }
}
