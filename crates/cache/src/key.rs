//! The key of an object: its path and query at the origin, and the fields by which it varies.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};
use underpass_protocol::encode_segment;
use underpass_protocol::request::target::Target;

/// The name of an object on disk: the digest of its key.
pub(crate) type KeyDigest = [u8; 32];

/// The path and query of an object at the origin in their normalized form, and the request fields
/// by which it varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    text: String,
    fields: Vec<(String, Option<String>)>,
    digest: KeyDigest,
}

impl CacheKey {
    /// Creates the key of a target with the path as the client wrote it ([`Target::normal_path`]),
    /// because an origin may distinguish `+` from `%2B`. `None` above 8 KiB.
    #[must_use]
    pub fn of(target: &Target<'_>) -> Option<Self> {
        Self::with_path(target.normal_path(), target.is_folder, target.query.raw)
    }

    /// Creates the key of a decoded path without leading and trailing slashes, such as `a/b`. All
    /// but unreserved characters are percent-encoded, as object stores require. `is_folder` appends
    /// a slash. `None` if it is longer than 8 KiB.
    #[must_use]
    pub fn new(path: &[u8], is_folder: bool, query: &[u8]) -> Option<Self> {
        let mut text = String::with_capacity(path.len() + query.len() + 2);
        for segment in path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
            text.push('/');
            text.push_str(&encode_segment(segment));
        }
        Self::with_path(text, is_folder, query)
    }

    fn with_path(mut text: String, is_folder: bool, query: &[u8]) -> Option<Self> {
        if is_folder || text.is_empty() {
            text.push('/');
        }
        if !query.is_empty() {
            text.push('?');
        }
        for &byte in query {
            // All URL parsers leave these bytes unchanged.
            match byte {
                b'!' | b'$'..=b'&' | b'('..=b';' | b'=' | b'?'..=b'_' | b'a'..=b'~' => {
                    text.push(char::from(byte));
                }
                _ => text.push_str(&encode_segment(&[byte])),
            }
        }
        let digest = Sha256::digest(text.as_bytes()).into();
        (text.len() <= MAX_LEN).then_some(Self { text, fields: Vec::new(), digest })
    }

    /// Adds the fields by which objects vary: each name, and its value if the client sent one.
    /// `None` if they are longer than 1 KiB.
    #[must_use]
    pub fn with_fields<'f>(
        mut self,
        fields: impl Iterator<Item = (&'f str, Option<String>)>,
    ) -> Option<Self> {
        self.fields = fields.map(|(name, value)| (name.to_owned(), value)).collect();
        let len: usize = self.fields().map(|(name, value)| name.len() + value.len()).sum();
        self.digest = self.digest_of(&self.text);
        (len <= MAX_FIELDS_LEN).then_some(self)
    }

    fn digest_of(&self, text: &str) -> KeyDigest {
        let mut hash = Sha256::new_with_prefix(text.as_bytes());
        for (name, value) in &self.fields {
            // Neither separator occurs in a name or value, so no two keys hash the same text.
            hash.update([b"\n", name.as_bytes()].concat());
            if let Some(value) = value {
                hash.update([b"\r", value.as_bytes()].concat());
            }
        }
        hash.finalize().into()
    }

    /// Returns the client's fields that are sent to the origin.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.fields.iter();
        fields.filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?)))
    }

    /// Returns the path and query.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the path and query with every character of the path percent-encoded that may be: the
    /// same text for all spellings that name the same file in this node's rules.
    pub(crate) fn escaped(&self) -> Cow<'_, str> {
        let (path, query) = self.path_and_query();
        if !path.bytes().any(is_delimiter) {
            return Cow::Borrowed(&self.text);
        }
        let mut out = String::with_capacity(self.text.len() + 16);
        for byte in path.bytes() {
            if is_delimiter(byte) {
                out.push_str(&encode_segment(&[byte]))
            } else {
                out.push(char::from(byte))
            }
        }
        out.push_str(query);
        Cow::Owned(out)
    }

    /// Returns the key and its variants in the spellings of other programs: with every character
    /// percent-encoded that may be, with none, and with those that `encodeURIComponent` encodes.
    pub(crate) fn spellings(&self) -> Vec<Self> {
        let escaped = self.escaped();
        let with = |plain: &[u8]| {
            let (path, query) = escaped.split_at(escaped.find('?').unwrap_or(escaped.len()));
            let plain = plain.iter().map(|byte| (encode_segment(&[*byte]), char::from(*byte)));
            let path = plain.fold(path.to_owned(), |path, (escape, character)| {
                path.replace(&*escape, character.encode_utf8(&mut [0; 4]))
            });
            path + query
        };
        let texts = [self.text.clone(), with(b""), with(DELIMITERS), with(b"!'()*")];
        let mut keys: Vec<_> = texts
            .into_iter()
            .map(|text| Self { digest: self.digest_of(&text), fields: self.fields.clone(), text })
            .collect();
        keys.sort_by(|one, other| one.text.cmp(&other.text));
        keys.dedup();
        keys
    }

    fn path_and_query(&self) -> (&str, &str) {
        self.text.split_at(self.text.find('?').unwrap_or(self.text.len()))
    }

    /// Returns the digest that names the object on disk.
    pub(crate) fn digest(&self) -> &KeyDigest {
        &self.digest
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The characters that need not be percent-encoded in a path segment (RFC 3986 3.3).
const DELIMITERS: &[u8] = b"!$&'()*+,:;=@";

/// Returns whether a path segment may have this character encoded or not (RFC 3986 3.3).
fn is_delimiter(byte: u8) -> bool {
    DELIMITERS.contains(&byte)
}

/// The maximum length of a key in bytes.
const MAX_LEN: usize = 8 << 10;

/// The maximum length of the names and values of the fields in bytes.
const MAX_FIELDS_LEN: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_has_one_key() {
        for (path, is_folder, query, text) in [
            (&b"a/b"[..], false, &b""[..], "/a/b"),
            (b"", true, b"", "/"),
            (b"a b/\xff?#", true, b"", "/a%20b/%FF%3F%23/"),
            (b"a", false, b"x=1&y=%20'\"<>", "/a?x=1&y=%20%27%22%3C%3E"),
            (b"a", false, b"\\a|^`", "/a?\\a|^%60"),
        ] {
            assert_eq!(
                CacheKey::new(path, is_folder, query).map(|key| key.text),
                Some(text.to_owned())
            );
        }
        assert_eq!(CacheKey::new(&[b'a'; 9 << 10], false, b""), None);
    }

    #[test]
    fn a_path_is_requested_as_the_client_has_written_it() {
        for (target, text, escaped) in [
            ("/a+b", "/a+b", "/a%2Bb"),
            ("/a%2bb", "/a%2Bb", "/a%2Bb"),
            ("/%61!$&'()*,;=:@b/", "/a!$&'()*,;=:@b/", "/a%21%24%26%27%28%29%2A%2C%3B%3D%3A%40b/"),
            ("//x/.././a+/./%7e|\"", "/a+/~%7C%22", "/a%2B/~%7C%22"),
            ("/a?b+c", "/a?b+c", "/a?b+c"),
            ("/", "/", "/"),
        ] {
            let key = CacheKey::of(&Target::parse(target.as_bytes(), b"").unwrap()).unwrap();
            assert_eq!((key.as_str(), &*key.escaped()), (text, escaped), "{target}");
        }
        let below = Target::parse(b"/p%2Bq/a+b", b"/p+q").unwrap();
        assert_eq!(CacheKey::of(&below).unwrap().text, "/a+b");
    }

    #[test]
    fn objects_differ_by_the_fields_by_which_they_vary() {
        let digest = |fields: &[(&str, Option<&str>)]| {
            let fields = fields.iter().map(|(name, value)| (*name, value.map(str::to_owned)));
            CacheKey::new(b"a", false, b"").unwrap().with_fields(fields).map(|key| key.digest)
        };
        let digests = [
            digest(&[]),
            digest(&[("a", None)]),
            digest(&[("a", Some(""))]),
            digest(&[("a", Some("b"))]),
            digest(&[("a", None), ("b", None)]),
        ];
        for (index, digest) in digests.iter().enumerate() {
            assert!(digest.is_some() && !digests[..index].contains(digest), "{index}");
        }
        assert_eq!(digests[0], Some(CacheKey::new(b"a", false, b"").unwrap().digest));
        assert_eq!(digest(&[("a", Some(&"b".repeat(1 << 10)))]), None);
    }
}
