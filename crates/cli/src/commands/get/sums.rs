//! Files of digests, as `sha256sum` and `shasum --tag` write them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass_client::backoff::Backoff;
use underpass_client::{ClientError, HttpClient, InvalidResponse, Request, Url, input};
use underpass_protocol::digest::Digest;

use crate::failure::{Failure, Result, WithPath};

/// The place of a file of digests.
#[derive(Clone, Debug)]
pub(crate) enum ChecksumSource {
    /// On this machine.
    File(PathBuf),
    /// On a server.
    Url(Url),
}

impl ChecksumSource {
    /// Parses a path, or a URL with its scheme.
    ///
    /// # Errors
    ///
    /// The reason why a URL cannot be used.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        if text.contains("://") {
            input::url_or_object(text).map(Self::Url)
        } else {
            Ok(Self::File(text.into()))
        }
    }
}

/// The digests of files by their paths.
#[derive(Debug)]
pub(super) struct ChecksumList {
    /// The place where they come from, for messages.
    name: String,
    digests: HashMap<Vec<u8>, Vec<Digest>>,
    /// The paths by their last names; `None` for a name of several files.
    paths: HashMap<Vec<u8>, Option<Vec<u8>>>,
}

impl ChecksumList {
    /// Reads the digests in a file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut text = Vec::new();
        let file = File::open(path).with_path("opening", path)?;
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text).with_path("reading", path)?;
        if text.len() > MAX_BYTES {
            let message = format!("{} is longer than 64 MiB: split it", path.display());
            return Err(Failure::line(message));
        }
        Self::parse(&path.display().to_string(), &text)
    }

    /// Fetches the digests at a URL, with retries as for files. `report` is called before each.
    pub(super) fn fetch(
        client: &HttpClient<'_>,
        url: &Url,
        (retries, cancel): (u32, &AtomicBool),
        report: impl Fn(&ClientError, Duration),
    ) -> Result<Self> {
        let name = underpass_receipt::shown(url);
        let fetched = || {
            let request = Request { method: "GET", fields: &[] };
            let mut answer = client.execute(None, &request, url)?;
            if answer.response.status != 200 {
                return Err(answer.connection.refusal(&answer.response));
            }
            let body = answer.connection.incoming().memory(answer.response.framing, MAX_BYTES);
            body.map_err(|error| ClientError::from(InvalidResponse::Body(error)))
        };
        let mut backoff = Backoff::new(retries);
        loop {
            let error = match fetched() {
                Ok(text) => return Self::parse(&name, &text),
                Err(error) => error,
            };
            backoff.wait(error, false, &[cancel], &report).map_err(|error| {
                Failure::hinted(format!("fetching the digests of {name}: {error}"), &error)
            })?;
        }
    }

    fn parse(name: &str, text: &[u8]) -> Result<Self> {
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let mut digests: HashMap<_, Vec<_>> = HashMap::new();
        for (path, digest) in text.split(|byte| *byte == b'\n').filter_map(line) {
            digests.entry(path).or_default().push(digest);
        }
        if digests.is_empty() {
            let message =
                format!("{name} has no digests by SHA-256 or SHA-512, as sha256sum writes");
            return Err(Failure::line(message));
        }
        let mut paths = HashMap::new();
        for path in digests.keys() {
            let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let found = paths.entry(last.to_owned());
            found.and_modify(|found| *found = None).or_insert_with(|| Some(path.clone()));
        }
        Ok(Self { name: name.to_owned(), digests, paths })
    }

    /// Returns the digests of a file, by its path or, if that is not there, by its name.
    pub(super) fn of(&self, path: &Path) -> Result<&[Digest]> {
        let bytes = path.as_os_str().as_bytes();
        if let Some(digests) = self.digests.get(bytes) {
            return Ok(digests);
        }
        let name = path.file_name().map_or(bytes, OsStr::as_bytes);
        match self.paths.get(name) {
            Some(Some(one)) => Ok(&self.digests[one]),
            None => Err(Failure::line(format!(
                "{} has no digest of {}: nothing was fetched",
                self.name,
                path.display()
            ))),
            Some(None) => Err(Failure::line(format!(
                "{} has several files of the name {}: say which with -d or -o",
                self.name,
                path.display()
            ))),
        }
    }
}

/// Parses `HEX  NAME`, `HEX *NAME` or `SHA256 (NAME) = HEX`; any other line is `None`, such as
/// those of a signature.
fn line(text: &[u8]) -> Option<(Vec<u8>, Digest)> {
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    // GNU escapes names with line feeds and backslashes, and says so at the front.
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

/// The maximum length of a file of digests in bytes.
const MAX_BYTES: usize = 64 << 20;

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
        let sums = ChecksumList::parse("SUMS", text.as_bytes()).expect("digests");
        let marked = format!("\u{feff}{text}");
        let sums_too = ChecksumList::parse("SUMS", marked.as_bytes()).expect("digests");
        assert!(sums_too.of(Path::new("x/a")).is_ok());
        assert!(sums.of(Path::new("b")).is_ok() && sums.of(Path::new("z/b")).is_ok());
        assert!(sums.of(Path::new("x/a")).is_ok());
        assert!(sums.of(Path::new("a")).is_err() && sums.of(Path::new("c")).is_err());
        assert!(ChecksumList::parse("SUMS", b"nothing").is_err());
    }
}
