//! Addresses of objects, `s3://bucket/key`, and their URLs.

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{ClientError, KeysError, UnusableUrl};

/// Where a URL has the name of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressingStyle {
    /// At the beginning of the path, as with most stores but Amazon's.
    Path,
    /// At the beginning of the host.
    Virtual,
}

impl std::str::FromStr for AddressingStyle {
    type Err = UnknownStyle;

    fn from_str(text: &str) -> Result<Self, UnknownStyle> {
        match text {
            "path" => Ok(Self::Path),
            "virtual" => Ok(Self::Virtual),
            _ => Err(UnknownStyle),
        }
    }
}

/// A text is not the name of an [`AddressingStyle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write path or virtual")]
pub struct UnknownStyle;

/// The address of an object, or of all objects whose keys begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The name of the bucket.
    pub bucket: String,
    /// The key, percent-encoded as in a URL; empty for the whole bucket.
    pub key: String,
    /// The region, if the address has one.
    pub region: Option<String>,
    /// The URL of the store, if the address has one.
    pub endpoint: Option<Url>,
    /// The style of URLs, if the address has one.
    pub style: Option<AddressingStyle>,
}

/// The reason why the address of an object is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadLocation {
    /// It has no bucket, or an invalid bucket name.
    #[error("a bucket has 3 to 63 letters, digits, dots and hyphens: write s3://BUCKET/KEY")]
    Bucket,
    /// It has a query with anything but `region`, `endpoint` and `style`.
    #[error(
        "only region=, endpoint= and style=path or virtual can follow a ?; in a key, write %3F"
    )]
    Query,
    /// It has a fragment, which is never sent: another object would be requested.
    #[error("what follows a # is not sent; in a key, write %23")]
    Fragment,
    /// It has white space or a control character that URLs drop.
    #[error("URLs drop tabs, line feeds and spaces at their ends; in a key, write %09, %0A or %20")]
    Dropped,
    /// A part of the key is `.` or `..`, so another object would be requested.
    #[error("a key with . or .. between slashes cannot be named")]
    Dots,
}

impl Location {
    /// Checks the text of an address before it is parsed as a URL, which would resolve `.` and `..`
    /// and drop some characters, although these are ordinary parts of a key.
    ///
    /// # Errors
    ///
    /// [`BadLocation::Dots`], [`BadLocation::Dropped`] and [`BadLocation::Fragment`].
    pub fn check(text: &str) -> Result<(), BadLocation> {
        let is_store =
            |text: &str| text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3://"));
        let is_control = |c: char| c <= ' ';
        let trimmed = text.trim_matches(is_control);
        if is_store(trimmed) && (trimmed != text || text.contains(['\t', '\n', '\r'])) {
            return Err(BadLocation::Dropped);
        }
        if is_store(text) && text.contains('#') {
            return Err(BadLocation::Fragment);
        }
        let path = text.split('?').next().unwrap_or_default();
        let is_dots = |part: &str| {
            let bytes: Vec<u8> = percent_decode_str(part).collect();
            matches!(&bytes[..], b"." | b"..")
        };
        // The part after the bucket.
        if is_store(text) && path.split('/').skip(3).any(is_dots) {
            Err(BadLocation::Dots)
        } else {
            Ok(())
        }
    }

    /// Parses `s3://bucket/key`, optionally followed by `?region=`, `endpoint=` and `style=`;
    /// `None` for any other kind of address.
    ///
    /// # Errors
    ///
    /// [`BadLocation`].
    #[must_use]
    pub fn parse(url: &Url) -> Option<Result<Self, BadLocation>> {
        (url.scheme() == "s3").then(|| Self::of(url))
    }

    fn of(url: &Url) -> Result<Self, BadLocation> {
        let bucket = url.host_str().unwrap_or_default();
        let is_fit = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.port().is_none();
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_fit) || !is_plain {
            return Err(BadLocation::Bucket);
        }
        let key = url.path().strip_prefix('/').unwrap_or_default().to_owned();
        let mut location =
            Self { bucket: bucket.to_owned(), key, region: None, endpoint: None, style: None };
        for (name, value) in url.query_pairs() {
            match &*name {
                "region" => location.region = Some(value.into_owned()),
                "endpoint" => {
                    let endpoint = Url::parse(&value).map_err(|_| BadLocation::Query)?;
                    location.endpoint = Some(endpoint);
                }
                "style" => {
                    location.style = Some(value.parse().map_err(|_| BadLocation::Query)?);
                }
                _ => return Err(BadLocation::Query),
            }
        }
        Ok(location)
    }

    /// Returns the URL of the bucket, which ends in a slash.
    pub(super) fn bucket_url(
        &self,
        endpoint: Option<&Url>,
        region: &str,
        style: Option<AddressingStyle>,
    ) -> Result<Url, ClientError> {
        let bad = |text: &str| ClientError::from(UnusableUrl::Scheme { scheme: text.to_owned() });
        let is_name = region.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if region.is_empty() || !is_name {
            return Err(KeysError::InvalidRegion(region.to_owned()).into());
        }
        let mut url = match endpoint {
            Some(endpoint) if matches!(endpoint.scheme(), "http" | "https") => endpoint.clone(),
            Some(endpoint) => return Err(bad(endpoint.scheme())),
            None => Url::parse(&format!("https://s3.{region}.amazonaws.com{}/", suffix(region)))
                .map_err(|_| bad(region))?,
        };
        url.set_query(None);
        url.set_fragment(None);
        let base = url.path().trim_end_matches('/').to_owned();
        // A wildcard certificate does not cover host names with additional dots.
        let fits = !self.bucket.contains(['.', '_']) || url.scheme() == "http";
        let default = if endpoint.is_none() && fits {
            AddressingStyle::Virtual
        } else {
            AddressingStyle::Path
        };
        match self.style.or(style).unwrap_or(default) {
            AddressingStyle::Path => url.set_path(&format!("{base}/{}/", self.bucket)),
            AddressingStyle::Virtual => {
                let host = format!("{}.{}", self.bucket, url.host_str().unwrap_or_default());
                url.set_host(Some(&host)).map_err(|_| bad(&host))?;
                url.set_path(&format!("{base}/"));
            }
        }
        Ok(url)
    }
}

/// Returns the end of the host names of a region after `amazonaws.com`.
pub(crate) fn suffix(region: &str) -> &'static str {
    if region.starts_with("cn-") { ".cn" } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_urls() {
        let other = Url::parse("http://127.0.0.1:9000/x").expect("a URL");
        for (text, endpoint, style, url) in [
            ("s3://abc/k", None, None, "https://abc.s3.us-east-1.amazonaws.com/"),
            ("s3://a.c/k", None, None, "https://s3.us-east-1.amazonaws.com/a.c/"),
            (
                "s3://abc",
                None,
                Some(AddressingStyle::Path),
                "https://s3.us-east-1.amazonaws.com/abc/",
            ),
            (
                "s3://abc/?region=cn-north-1",
                None,
                None,
                "https://abc.s3.cn-north-1.amazonaws.com.cn/",
            ),
            ("s3://abc/k", Some(&other), None, "http://127.0.0.1:9000/x/abc/"),
            ("s3://abc/?endpoint=http://h:1&style=virtual", Some(&other), None, "http://abc.h:1/"),
        ] {
            let location = Location::parse(&Url::parse(text).expect(text));
            let location = location.expect(text).expect(text);
            let region = location.region.as_deref().unwrap_or("us-east-1");
            let endpoint = location.endpoint.as_ref().or(endpoint);
            let made = location.bucket_url(endpoint, region, style).expect(text);
            assert_eq!(made.as_str(), url);
        }
    }

    #[test]
    fn malformed_s3_addresses_are_refused() {
        for (text, wrong) in [
            ("s3://ab/k", BadLocation::Bucket),
            ("s3:///k", BadLocation::Bucket),
            ("s3://a:b@abc/k", BadLocation::Bucket),
            ("s3://:b@abc/k", BadLocation::Bucket),
            ("s3://a$bc/k", BadLocation::Bucket),
            ("s3://abc/k?versionId=1", BadLocation::Query),
            ("s3://abc/k?style=no", BadLocation::Query),
        ] {
            let Ok(url) = Url::parse(text) else { continue };
            assert_eq!(Location::parse(&url), Some(Err(wrong)), "{text}");
        }
        assert_eq!(Location::parse(&Url::parse("http://abc/k").expect("a URL")), None);
    }

    #[test]
    fn no_address_requests_another_key() {
        for text in
            ["s3://abc/..", "s3://abc/a/../b", "S3://abc/a/%2e%2E/b?style=path", "s3://abc/./"]
        {
            assert_eq!(Location::check(text), Err(BadLocation::Dots), "{text}");
        }
        for text in ["s3://abc/report#1.csv", "S3://abc/a?region=x#b", "s3://abc/#"] {
            assert_eq!(Location::check(text), Err(BadLocation::Fragment), "{text}");
        }
        for text in ["s3://abc/report ", " s3://abc/a", "s3://abc/a\tb", "s3://abc/a\nb"] {
            assert_eq!(Location::check(text), Err(BadLocation::Dropped), "{text}");
        }
        for text in [
            "s3://abc",
            "s3://abc/a..b/.../%2e%2e%2e//",
            "s3://abc/a?endpoint=http://h/../",
            "s3://abc/a b%23c%20",
            "http://abc/../a#b",
        ] {
            assert_eq!(Location::check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn keys_keep_their_escapes() {
        let url = Url::parse("s3://abc//a%20b/%3F c/").expect("a URL");
        let location = Location::parse(&url).expect("s3").expect("a location");
        assert_eq!(location.key, "/a%20b/%3F%20c/");
    }
}
