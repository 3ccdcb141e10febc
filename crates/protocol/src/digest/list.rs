//! Lists of digests, as `sha256sum` and `shasum --tag` write them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Digest;

/// The digests of files by their paths.
#[derive(Debug)]
pub struct DigestList {
    digests: HashMap<Vec<u8>, Vec<Digest>>,
    /// The paths by their last names; `None` for a name of several files.
    paths: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

/// The reason why a list gives no digest of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlisted {
    /// It has no file of this path or name.
    Missing,
    /// It has several files of this name, and none of this path.
    Ambiguous,
}

impl DigestList {
    /// Parses a list; `None` if it has no digests. Lines without a digest are skipped, such as
    /// those of a signature.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut digests: HashMap<_, Vec<_>> = HashMap::new();
        for (path, digest) in text.split(|byte| *byte == b'\n').filter_map(line) {
            digests.entry(path).or_default().push(digest);
        }
        let mut paths = HashMap::new();
        for path in digests.keys() {
            let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let found = paths.entry(last.to_owned());
            found.and_modify(|found| *found = None).or_insert_with(|| Some(path.clone()));
        }
        (!digests.is_empty()).then_some(Self { digests, paths })
    }

    /// Returns the digests of a file, by its path or, if the list lacks that, by its name.
    ///
    /// # Errors
    ///
    /// If there is neither, or more than one file has the name.
    pub fn of(&self, path: &[u8]) -> Result<&[Digest], Unlisted> {
        if let Some(digests) = self.digests.get(path) {
            return Ok(digests);
        }
        let name = Path::new(OsStr::from_bytes(path)).file_name().map_or(path, OsStr::as_bytes);
        match self.paths.get(name) {
            Some(Some(one)) => Ok(&self.digests[one]),
            None => Err(Unlisted::Missing),
            Some(None) => Err(Unlisted::Ambiguous),
        }
    }
}

/// Parses `HEX  NAME`, `HEX *NAME` or `SHA256 (NAME) = HEX`; any other line is `None`.
fn line(text: &[u8]) -> Option<(Vec<u8>, Digest)> {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    // GNU escapes names with line feeds and backslashes, and marks such a line with a backslash.
    let (is_escaped, text) = match text.strip_prefix(b"\\") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (name, hex, algorithm) = match tagged(text) {
        Some(tagged) => tagged,
        None => {
            let end = text.iter().position(|byte| *byte == b' ')?;
            let name = text[end..].strip_prefix(b"  ").or(text[end..].strip_prefix(b" *"))?;
            (name, &text[..end], None)
        }
    };
    let algorithm = match (algorithm, hex.len()) {
        (None | Some("sha-256"), 64) => "sha-256",
        (None | Some("sha-512"), 128) => "sha-512",
        _ => return None,
    };
    let digest = format!("{algorithm}:{}", str::from_utf8(hex).ok()?).parse().ok()?;
    let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
    let name = name.strip_prefix(b"./").unwrap_or(&name).to_vec();
    (!name.is_empty()).then_some((name, digest))
}

/// Parses the format of the BSDs: the name, the digits and the algorithm.
fn tagged(text: &[u8]) -> Option<(&[u8], &[u8], Option<&'static str>)> {
    let (algorithm, rest) = match text.strip_prefix(b"SHA256 (") {
        Some(rest) => ("sha-256", rest),
        None => ("sha-512", text.strip_prefix(b"SHA512 (")?),
    };
    let at = rest.windows(4).rposition(|window| window == b") = ")?;
    Some((&rest[..at], &rest[at + 4..], Some(algorithm)))
}

fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = name.iter();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            byte => *byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_programs_write_them() {
        let hex = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let long = hex.repeat(2);
        for (text, name) in [
            (format!("{hex}  a b"), Some("a b")),
            (format!("{hex} *a"), Some("a")),
            (format!("{}  ./x/a\r", hex.to_uppercase()), Some("x/a")),
            (format!("\\{hex}  a\\nb\\\\c"), Some("a\nb\\c")),
            (format!("SHA256 (a) = {hex}"), Some("a")),
            (format!("SHA512 (a (1)) = {long}"), Some("a (1)")),
            (format!("{long}  a"), Some("a")),
            (format!("SHA256 (a) = {long}"), None),
            (format!("{}  a", &hex[..40]), None),
            (format!("{hex} a"), None),
            (format!("{hex}  "), None),
            ("-----BEGIN PGP SIGNED MESSAGE-----".to_owned(), None),
            ("Hash: SHA256".to_owned(), None),
            (String::new(), None),
        ] {
            let found = line(text.as_bytes()).map(|(name, _)| name);
            assert_eq!(found.as_deref(), name.map(str::as_bytes), "{text}");
        }
        let text = format!("{hex}  x/a\n{hex}  b\n{hex}  y/a\n");
        let sums = DigestList::parse(text.as_bytes()).expect("digests");
        let marked = format!("\u{feff}{text}");
        let sums_too = DigestList::parse(marked.as_bytes()).expect("digests");
        assert!(sums_too.of(b"x/a").is_ok());
        assert!(sums.of(b"b").is_ok() && sums.of(b"z/b").is_ok());
        assert!(sums.of(b"x/a").is_ok());
        assert_eq!(sums.of(b"a"), Err(Unlisted::Ambiguous));
        assert_eq!(sums.of(b"c"), Err(Unlisted::Missing));
        assert!(DigestList::parse(b"nothing").is_none());
    }
}
