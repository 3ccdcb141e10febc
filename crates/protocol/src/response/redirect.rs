//! Redirects of paths to other addresses.

use std::str::FromStr;

use crate::link::encode_path;
use crate::request::target::Target;

/// A redirect: `/old https://example.org/new 301`.
///
/// # Examples
///
/// ```
/// use underpass_protocol::request::target::Target;
/// use underpass_protocol::response::redirect::Redirect;
///
/// let redirect: Redirect = "/old/* /new/* 308".parse()?;
/// assert_eq!(redirect.status(), 308);
/// let target = Target::parse(b"/old/disk.img", b"")?;
/// assert_eq!(redirect.location(&target).as_deref(), Some("/new/disk.img"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The decoded path, without a slash at its beginning.
    from: Box<[u8]>,
    /// Whether all paths that begin with it are meant.
    is_prefix: bool,
    /// The address, to which the rest of the path is added if `adds_rest` is set.
    to: Box<str>,
    adds_rest: bool,
    status: u16,
}

impl Redirect {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns whether every path is redirected.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.is_prefix && self.from.is_empty()
    }

    /// Returns the value of `Location` for a path; `None` if it is not redirected.
    #[must_use]
    pub fn location(&self, target: &Target<'_>) -> Option<String> {
        let rest = self.rest(&target.path, target.is_folder)?;
        // RFC 3986 3: the query precedes the fragment.
        let (to, fragment) = self.to.split_at(self.to.find('#').unwrap_or(self.to.len()));
        let mut location = to.to_owned();
        if self.adds_rest {
            // The address ends in a slash already: with a second one, a path would become a host.
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            location.push_str(&encode_path(rest));
            if !self.is_exact(&target.path) && target.is_folder {
                location.push('/');
            }
        }
        if !target.query.raw.is_empty() && !to.contains('?') {
            location.push('?');
            location.push_str(&String::from_utf8_lossy(target.query.raw));
        }
        Some(location + fragment)
    }

    /// Returns whether a path is all of what is redirected.
    fn is_exact(&self, path: &[u8]) -> bool {
        path == self.folder()
    }

    /// Returns the part of the path that was written, without a slash at its end.
    fn folder(&self) -> &[u8] {
        self.from.strip_suffix(b"/").unwrap_or(&self.from)
    }

    /// Returns what follows the redirected part of a path; `None` if it is another path.
    fn rest<'p>(&self, path: &'p [u8], is_folder: bool) -> Option<&'p [u8]> {
        if !self.is_prefix {
            let is_meant = is_folder == (self.from.is_empty() || self.from.ends_with(b"/"));
            return (is_meant && self.is_exact(path)).then_some(b"");
        }
        // `/old/*` also matches `/old`.
        if self.is_exact(path) {
            return Some(b"");
        }
        path.strip_prefix(&*self.from)
    }
}

impl FromStr for Redirect {
    type Err = BadRedirect;

    fn from_str(text: &str) -> Result<Self, BadRedirect> {
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        let (from, to, status) = match *words {
            [from, to] => (from, to, 302),
            [from, to, status] => (from, to, status.parse().map_err(|_| BadRedirect::Status)?),
            _ => return Err(BadRedirect::Form),
        };
        if !matches!(status, 301 | 302 | 307 | 308) {
            return Err(BadRedirect::Status);
        }
        let (path, is_prefix) = match from.strip_suffix('*') {
            Some(path) => (path, true),
            None => (from, false),
        };
        let target = Target::parse(path.as_bytes(), b"").map_err(|_| BadRedirect::From)?;
        if path.contains(['*', '?']) {
            return Err(BadRedirect::From);
        }
        let mut from = target.path.into_owned();
        if target.is_folder && !from.is_empty() {
            from.push(b'/');
        }
        let (address, adds_rest) = match to.strip_suffix("/*") {
            Some(_) if is_prefix => (&to[..to.len() - 1], true),
            Some(_) => return Err(BadRedirect::To),
            None => (to, false),
        };
        let is_address = ["http://", "https://", "/"].iter().any(|it| address.starts_with(it));
        let is_plain = address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*');
        if !is_address || !is_plain || address.starts_with("//") {
            return Err(BadRedirect::To);
        }
        Ok(Self { from: from.into(), is_prefix, to: address.into(), adds_rest, status })
    }
}

/// The fault of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRedirect {
    /// It is not two or three words.
    #[error("write a path, an address and a status: /old https://example.org/new 301")]
    Form,
    /// The first word is not a path.
    #[error("the path must begin with a slash, and * is allowed only at its end: /old/*")]
    From,
    /// The second word is not an address.
    #[error(
        "the address is a path or begins with http:// or https://, and may end in /* if \
         the path does"
    )]
    To,
    /// The third word is not a status of a redirect.
    #[error("the status must be 301, 302, 307 or 308")]
    Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn led(redirect: &str, target: &str) -> Option<String> {
        let redirect: Redirect = redirect.parse().unwrap();
        redirect.location(&Target::parse(target.as_bytes(), b"").unwrap())
    }

    #[test]
    fn a_path_or_all_that_begin_with_it_are_redirected() {
        for (redirect, target, location) in [
            ("/a /b", "/a", Some("/b")),
            ("/a /b", "/a?x=1", Some("/b?x=1")),
            ("/a /b?y", "/a?x=1", Some("/b?y")),
            ("/a /b#c?d", "/a?x=1", Some("/b?x=1#c?d")),
            ("/a /b", "/a/", None),
            ("/a/ /b", "/a/", Some("/b")),
            ("/a /b", "/a/c", None),
            ("/ https://h/", "/", Some("https://h/")),
            ("/ https://h/", "/a", None),
            ("/a/* https://h/b/*", "/a/c/d", Some("https://h/b/c/d")),
            ("/a/* https://h/b/*", "/a/c/", Some("https://h/b/c/")),
            ("/a/* https://h/b/*", "/a", Some("https://h/b/")),
            ("/a/* https://h/b/*", "/a/", Some("https://h/b/")),
            ("/a/* https://h/b/*", "/ab", None),
            ("/a/* https://h/b", "/a/c", Some("https://h/b")),
            ("/a* https://h/*", "/abc", Some("https://h/bc")),
            ("/a* https://h/*", "/a/c", Some("https://h/c")),
            ("/a* /*", "/a/evil.example", Some("/evil.example")),
            ("/a* /*", "/a/\\evil.example", Some("/%5Cevil.example")),
            ("/* https://h/*", "/", Some("https://h/")),
            ("/* https://h/*", "/a%20b/c?d", Some("https://h/a%20b/c?d")),
            ("/* https://h/*", "/%61/../b//c", Some("https://h/b/c")),
            ("/* /new/*", "//evil.example/", Some("/new/evil.example/")),
        ] {
            assert_eq!(led(redirect, target).as_deref(), location, "{redirect} of {target}");
        }
    }

    #[test]
    fn malformed_redirects_are_refused() {
        for (text, fault) in [
            ("/a", BadRedirect::Form),
            ("/a /b 301 c", BadRedirect::Form),
            ("a /b", BadRedirect::From),
            ("/*/a /b", BadRedirect::From),
            ("/a?b /b", BadRedirect::From),
            ("/a b", BadRedirect::To),
            ("/a //b", BadRedirect::To),
            ("/a /b/*", BadRedirect::To),
            ("/a* https://h*", BadRedirect::To),
            ("/a ftp://b", BadRedirect::To),
            ("/a /b 303", BadRedirect::Status),
            ("/a /b x", BadRedirect::Status),
        ] {
            assert_eq!(text.parse::<Redirect>(), Err(fault), "{text}");
        }
        assert_eq!("/a /b".parse::<Redirect>().unwrap().status(), 302);
        assert_eq!("/a /b 308".parse::<Redirect>().unwrap().status(), 308);
    }
}
