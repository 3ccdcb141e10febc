//! A map from host names and wildcards to values: the site of a request, or the certificate of a
//! handshake.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::authority::host;

/// A name of a host, or all names below one: `files.example.org`, `*.example.org`.
///
/// # Examples
///
/// ```
/// use underpass_protocol::request::host_map::{BadHost, HostPattern};
///
/// assert_eq!("Files.Example.org".parse::<HostPattern>()?.exact(), Some("files.example.org"));
/// assert_eq!("*.example.org".parse::<HostPattern>()?.exact(), None);
/// # Ok::<(), BadHost>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPattern {
    /// The name in lower case, without `*.`.
    name: Box<str>,
    is_wildcard: bool,
}

impl HostPattern {
    /// Returns the name, unless it is a wildcard.
    #[must_use]
    pub fn exact(&self) -> Option<&str> {
        (!self.is_wildcard).then_some(&*self.name)
    }
}

impl FromStr for HostPattern {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        let (is_wildcard, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_address = !is_wildcard && name.starts_with('[') && name.ends_with(']');
        let is_part = |part: &str| {
            !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        let is_name = name.split('.').all(is_part)
            || (is_address && host(name.as_bytes()) == name.as_bytes());
        if !is_name || name.len() > MAX_NAME {
            return Err(BadHost);
        }
        Ok(Self { name: name.to_ascii_lowercase().into(), is_wildcard })
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_wildcard { "*." } else { "" };
        write!(f, "{star}{}", self.name)
    }
}

/// The text is not the name of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a name without a port, such as files.example.org or *.example.org")]
pub struct BadHost;

/// A map from host names and wildcards to values.
#[derive(Clone, Debug)]
pub struct HostMap<T> {
    exact: HashMap<Box<[u8]>, T>,
    /// By the name after `*.`.
    wildcards: HashMap<Box<[u8]>, T>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        Self { exact: HashMap::default(), wildcards: HashMap::default() }
    }
}

impl<T> HostMap<T> {
    /// Returns whether there are no names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcards.is_empty()
    }

    /// Returns all values.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wildcards.values())
    }

    /// Returns all names as they are written, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (String, &T)> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let exact = self.exact.iter().map(move |(name, value)| (text(name), value));
        exact.chain(
            self.wildcards.iter().map(move |(name, value)| (format!("*.{}", text(name)), value)),
        )
    }

    /// Adds a value, and returns the one that had the same name.
    pub fn insert(&mut self, pattern: &HostPattern, value: T) -> Option<T> {
        let map = if pattern.is_wildcard { &mut self.wildcards } else { &mut self.exact };
        map.insert(pattern.name.as_bytes().into(), value)
    }

    /// Returns the value for the host of an authority, with or without a port: that of the name
    /// itself, or else that of the longest wildcard above it.
    ///
    /// Names ignore case, and may end in a dot (RFC 9110 4.2.3, RFC 1034 3.1). Nothing is
    /// allocated.
    #[must_use]
    pub fn get(&self, authority: &[u8]) -> Option<&T> {
        let host = host(authority);
        let host = host.strip_suffix(b".").unwrap_or(host);
        let mut buffer = [0; MAX_NAME];
        let name = buffer.get_mut(..host.len())?;
        name.copy_from_slice(host);
        name.make_ascii_lowercase();
        let mut rest = &*name;
        if let Some(found) = self.exact.get(rest) {
            return Some(found);
        }
        while !self.wildcards.is_empty()
            && let Some(dot) = rest.iter().position(|&byte| byte == b'.')
        {
            rest = &rest[dot + 1..];
            if let Some(found) = self.wildcards.get(rest) {
                return Some(found);
            }
        }
        None
    }
}

/// The maximum length of a name (RFC 1035 2.3.4).
const MAX_NAME: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    fn map(names: &[&str]) -> HostMap<usize> {
        let mut map = HostMap::default();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(map.insert(&name.parse().unwrap(), number), None);
        }
        map
    }

    #[test]
    fn a_name_wins_over_wildcards_and_a_long_wildcard_over_a_short_one() {
        let map = map(&["*.example.org", "a.example.org", "*.b.example.org", "[::1]", "10.0.0.1"]);
        for (authority, found) in [
            ("a.example.org", Some(1)),
            ("A.Example.ORG.:8080", Some(1)),
            ("b.example.org", Some(0)),
            ("c.b.example.org", Some(2)),
            ("d.c.b.example.org:1", Some(2)),
            ("x.a.example.org", Some(0)),
            ("example.org", None),
            ("badexample.org", None),
            (".example.org", Some(0)),
            ("", None),
            ("[::1]:80", Some(3)),
            ("10.0.0.1", Some(4)),
        ] {
            assert_eq!(map.get(authority.as_bytes()).copied(), found, "{authority}");
        }
        assert_eq!(map.get(&[b'a'; MAX_NAME + 1]), None);
    }

    #[test]
    fn malformed_host_patterns_are_refused() {
        for text in ["", "*", "*.", "a b", "a..b", "a:80", "http://a", "a/b", "*.*.a", "a.*", "[x"]
        {
            assert_eq!(text.parse::<HostPattern>(), Err(BadHost), "{text}");
        }
        for text in ["localhost", "files.example.org", "*.example.org", "xn--nxasmq6b", "_a.b"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
    }
}
