//! URLs and fields of requests as users write them.

use underpass_transport::tls;
use url::Url;

/// Parses a URL; without a scheme it is one of `http`. A bucket alone, `s3://name`, is a folder.
///
/// # Errors
///
/// A few words about what is wrong with it.
pub fn url(text: &str) -> Result<Url, String> {
    let parsed = match text.contains("://") {
        true => Url::parse(text),
        false => Url::parse(&format!("http://{text}")),
    };
    let mut url = parsed.map_err(|error| format!("that is no URL: {error}"))?;
    if url.scheme() == "s3" && url.path().is_empty() {
        url.set_path("/");
    }
    match (url.scheme(), tls::MISSING) {
        ("https", Some(reason)) => Err(reason.to_owned()),
        ("http" | "https", _) => Ok(url),
        (scheme, _) => Err(format!("the scheme {scheme} is not supported, only http and https")),
    }
}

/// Parses the URL of a proxy.
///
/// # Errors
///
/// A few words about what is wrong with it.
pub fn proxy(text: &str) -> Result<Url, String> {
    let url = url(text)?;
    if url.scheme() == "http" { Ok(url) } else { Err("a proxy is asked over http".to_owned()) }
}

/// Parses `Name: value`.
///
/// # Errors
///
/// A few words about what is wrong with it. A value with a line end is refused, because that would
/// begin another field (RFC 9110, section 5.5).
pub fn field(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write 'Name: value'")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err("a name has letters, digits and hyphens".to_owned());
    }
    let value = value.trim();
    match value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        true => Err("a value has no line ends".to_owned()),
        false => Ok((name.to_owned(), value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_lack_its_scheme() {
        let port = |text: &str| url(text).ok().and_then(|url| url.port());
        assert_eq!(port("localhost:8000/a"), Some(8000));
        assert_eq!(port("https://localhost:8443/"), tls::MISSING.map_or(Some(8443), |_| None));
        assert!(url("http://").is_err() && url("ftp://localhost/").is_err());
        assert!(proxy("https://localhost/").is_err());
    }

    #[test]
    fn a_field_cannot_begin_another() {
        assert_eq!(field("A: b: c"), Ok(("A".to_owned(), "b: c".to_owned())));
        for text in ["", "A", "A b: c", ": c", "A: b\r\nC: d"] {
            assert!(field(text).is_err(), "{text:?}");
        }
    }
}
