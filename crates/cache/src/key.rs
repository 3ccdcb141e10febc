//! The key of an object: its path and query at the origin, and the fields by which it varies.

use std::fmt;

use sha2::{Digest as _, Sha256};
use underpass_protocol::encode_segment;

/// The name of an object on disk: the digest of its key.
pub(crate) type Digest = [u8; 32];

/// The path and query of an object at the origin, in the one form in which it is requested, and the
/// client fields by which it varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    text: String,
    fields: Vec<(String, String)>,
    digest: Digest,
}

impl Key {
    /// Creates the key of a decoded path without a slash at either end, such as `a/b`. `is_folder`
    /// adds a slash at its end. `None` if it is longer than 8 KiB.
    #[must_use]
    pub fn new(path: &[u8], is_folder: bool, query: &[u8]) -> Option<Self> {
        let mut text = String::with_capacity(path.len() + query.len() + 2);
        for segment in path.split(|&byte| byte == b'/').filter(|segment| !segment.is_empty()) {
            text.push('/');
            text.push_str(&encode_segment(segment));
        }
        if is_folder || text.is_empty() {
            text.push('/');
        }
        if !query.is_empty() {
            text.push('?');
        }
        for &byte in query {
            // These bytes are left unchanged by every URL parser.
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

    /// Adds the fields by which objects vary: each name, and its value if the client has sent one.
    /// `None` if they are longer than 1 KiB.
    #[must_use]
    pub fn with_fields<'f>(
        mut self,
        fields: impl Iterator<Item = (&'f str, Option<String>)>,
    ) -> Option<Self> {
        let mut hash = Sha256::new_with_prefix(self.text.as_bytes());
        let mut len = 0;
        for (name, value) in fields {
            // Neither is in a name or a value: no two keys have the same text.
            hash.update([b"\n", name.as_bytes()].concat());
            if let Some(value) = value {
                hash.update([b"\r", value.as_bytes()].concat());
                len += name.len() + value.len();
                self.fields.push((name.to_owned(), value));
            }
        }
        self.digest = hash.finalize().into();
        (len <= MAX_FIELDS_LEN).then_some(self)
    }

    /// Returns the fields of clients that are sent to the origin.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the path and query.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the digest that names the object on disk.
    pub(crate) fn digest(&self) -> &Digest {
        &self.digest
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The maximum length of a key in bytes.
const MAX_LEN: usize = 8 << 10;

/// The maximum length of the names and values of its fields in bytes.
const MAX_FIELDS_LEN: usize = 1 << 10;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
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
            assert_eq!(Key::new(path, is_folder, query).map(|key| key.text), Some(text.to_owned()));
        }
        assert_eq!(Key::new(&[b'a'; 9 << 10], false, b""), None);
    }

    #[test]
    fn objects_differ_by_the_fields_by_which_they_vary() {
        let digest = |fields: &[(&str, Option<&str>)]| {
            let fields = fields.iter().map(|(name, value)| (*name, value.map(str::to_owned)));
            Key::new(b"a", false, b"").unwrap().with_fields(fields).map(|key| key.digest)
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
        assert_eq!(digests[0], Some(Key::new(b"a", false, b"").unwrap().digest));
        assert_eq!(digest(&[("a", Some(&"b".repeat(1 << 10)))]), None);
    }
}
