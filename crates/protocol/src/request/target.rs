//! Decodes the target of a request to the bytes of a path, or refuses it.
//!
//! Names are bytes: decoding through text would ask the file system for another name than the one
//! that was meant. The kernel keeps every path beneath the root; this module decides which file
//! is meant, so that no part of the server can read a target differently.

use std::borrow::Cow;

use super::authority::split_absolute;
pub use crate::link::{encode_segment, slash_redirect, whole_slash_redirect};
use crate::link::{escaped, push_normal};

/// The path and the query that a request target names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'b> {
    /// The path with `%XX` decoded, below the prefix, without a slash at either end. It has no
    /// empty part, no `.`, no `..` and no NUL. Empty for the root.
    pub path: Cow<'b, [u8]>,
    /// Whether the target ended in a slash. It is true for the root, unless there is a prefix and
    /// the target is just that: then `path` is empty and this is false, and the answer is a
    /// redirect as for any folder.
    pub is_folder: bool,
    /// The part after `?`.
    pub query: Query<'b>,
    /// The path as it was received.
    pub raw_path: &'b [u8],
}

impl<'b> Target<'b> {
    /// Reads the target of a request, in origin or absolute form (RFC 9112 3.2.1, 3.2.2).
    ///
    /// `*` is refused here: it names the server and no path, so check for it before.
    ///
    /// `prefix` is empty or `/a/b`: decoded, with a slash at its start and none at its end.
    ///
    /// Doubled slashes count as one. `.` and `..` are resolved as RFC 3986 5.2.4 has it, also
    /// when written `%2e`, as browsers do; but a `..` above the root is refused where a browser
    /// would ignore it: only raw clients send that, to find out what is there.
    ///
    /// # Errors
    ///
    /// See [`TargetError`].
    pub fn parse(target: &'b [u8], prefix: &[u8]) -> Result<Self, TargetError> {
        let (absolute, rest) = match split_absolute(target) {
            Some((_, rest)) => (true, rest),
            None => (false, target),
        };
        if rest.contains(&b'#') {
            return Err(TargetError::Malformed(TargetFault::Fragment));
        }
        let end = rest.iter().position(|&byte| byte == b'?').unwrap_or(rest.len());
        let (raw_path, query) = (&rest[..end], rest.get(end + 1..));
        // RFC 9110 4.2.3: an empty path of an absolute target is "/".
        if raw_path.first() != Some(&b'/') && !(absolute && raw_path.is_empty()) {
            return Err(TargetError::Malformed(TargetFault::Form));
        }
        if raw_path.contains(&0) {
            return Err(TargetError::Malformed(TargetFault::Nul));
        }
        let query = Query { raw: query.unwrap_or_default() };
        if let Some(path) = plain_path(raw_path).filter(|_| prefix.is_empty()) {
            return Ok(Self { path: Cow::Borrowed(path), is_folder: false, query, raw_path });
        }
        let (mut path, mut is_folder) = decode_path(raw_path)?;
        below(&mut path, prefix)?;
        is_folder |= path.is_empty() && prefix.is_empty();
        Ok(Self { path: Cow::Owned(path), is_folder, query, raw_path })
    }
}

impl Target<'_> {
    /// Returns [`path`](Self::path) as the client has written it, below the prefix, with a slash
    /// before each part: in the normal form of RFC 3986 6.2.2, so that equivalent paths are the
    /// same text, and others are not. `%2B` stays apart from `+`, as those of all characters that
    /// may have a meaning in a part of a path.
    #[must_use]
    pub fn normal_path(&self) -> String {
        let mut parts: Vec<&[u8]> = Vec::new();
        let mut decoded = Vec::new();
        for part in self.raw_path.split(|&byte| byte == b'/') {
            decoded.clear();
            // The same part was decoded before without an error.
            let _ = decode_part(part, &mut decoded);
            match &decoded[..] {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                _ => parts.push(part),
            }
        }
        let names = self.path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).count();
        let mut out = String::with_capacity(self.raw_path.len() + 1);
        for part in &parts[parts.len().saturating_sub(names)..] {
            out.push('/');
            push_normal(&mut out, part);
        }
        out
    }
}

/// Returns the path of a file if it is written as it is, as most are: with nothing to decode, to
/// leave out or to resolve.
fn plain_path(raw: &[u8]) -> Option<&[u8]> {
    let path = raw.strip_prefix(b"/")?;
    let mut before = b'/';
    for &byte in path {
        // A name that begins with a dot is most likely not one of these two, but may be.
        if byte == b'%' || (before == b'/' && matches!(byte, b'/' | b'.')) {
            return None;
        }
        before = byte;
    }
    (before != b'/').then_some(path)
}

/// The reason why a target names no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The target is not a path that a file could have: 400.
    #[error("{0}")]
    Malformed(TargetFault),
    /// The target is not below the prefix: 404.
    #[error("nothing is served outside of the path prefix")]
    Outside,
    /// A name has `%2F`: 404, as no file's name has a slash.
    ///
    /// As a separator, it would let `/a%2Fb` bypass a rule for `/a/`, here or in a proxy.
    #[error("a file name cannot contain a slash")]
    SlashInName,
}

/// The fault of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// A `..` goes above the root.
    #[error("the path leads above the root")]
    AboveRoot,
    /// A `%` without two hexadecimal digits.
    ///
    /// To take it literally would accept `/100%.txt`, and then send the wrong file for
    /// `/100%25.txt`: a client that does not escape must get an error for the first one.
    #[error("a % in the path is not followed by two hexadecimal digits; a % itself is %25")]
    Escape,
    /// Neither a path nor a whole URL.
    #[error("the request target is not a path")]
    Form,
    /// A `#`, which belongs to the client (RFC 9112 3.2).
    #[error("a # in the path must be written %23")]
    Fragment,
    /// A NUL, which no name has and which ends names in C.
    #[error("the path contains a NUL")]
    Nul,
}

impl TargetError {
    /// Returns the status to answer with.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Outside | Self::SlashInName => 404,
        }
    }
}

/// The query of a target, the part after its `?`: `key=value` and `key`, joined by `&`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<'b> {
    /// The query as it was written, without the `?`.
    pub raw: &'b [u8],
}

impl<'b> Query<'b> {
    /// Returns whether the key is there, with a value or without.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.pairs().any(|(name, _)| name == key.as_bytes())
    }

    /// Returns the decoded value of the key, empty if it has none; the first one if it is there
    /// twice.
    ///
    /// `+` is a space, as forms send it. A bad escape stays as it is: a query chooses among
    /// things to show, so no name depends on it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Cow<'b, [u8]>> {
        self.pairs().find(|(name, _)| *name == key.as_bytes()).map(|(_, value)| decode_form(value))
    }

    /// Returns the value of the key as [`get`](Self::get) does, but for a path: in one of these `+`
    /// is no space.
    #[must_use]
    pub fn get_path(&self, key: &str) -> Option<Cow<'b, [u8]>> {
        let (_, value) = self.pairs().find(|(name, _)| *name == key.as_bytes())?;
        Some(decode(value, b'+'))
    }

    /// Returns the decoded values of the key, in their order.
    pub fn all(&self, key: &str) -> impl Iterator<Item = Cow<'b, [u8]>> {
        self.pairs()
            .filter(move |(name, _)| *name == key.as_bytes())
            .map(|(_, value)| decode_form(value))
    }

    /// Returns the keys and values as they were received.
    fn pairs(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> {
        self.raw.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
            let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            (&pair[..end], pair.get(end + 1..).unwrap_or_default())
        })
    }
}

/// Returns the decoded parts joined by slashes, and whether the last one was empty, `.` or `..`.
fn decode_path(raw: &[u8]) -> Result<(Vec<u8>, bool), TargetError> {
    let mut path = Vec::with_capacity(raw.len());
    let mut is_folder = false;
    for part in raw.split(|&byte| byte == b'/') {
        let start = path.len();
        if start > 0 {
            path.push(b'/');
        }
        let name = path.len();
        decode_part(part, &mut path)?;
        is_folder = matches!(&path[name..], b"" | b"." | b"..");
        match &path[name..] {
            b".." if start == 0 => return Err(TargetError::Malformed(TargetFault::AboveRoot)),
            b".." => {
                path.truncate(start);
                path.truncate(path.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
            }
            b"" | b"." => path.truncate(start),
            _ => {}
        }
    }
    Ok((path, is_folder))
}

/// Appends one part of a path, decoded.
fn decode_part(part: &[u8], path: &mut Vec<u8>) -> Result<(), TargetError> {
    if !part.contains(&b'%') {
        path.extend_from_slice(part);
        return Ok(());
    }
    let mut rest = part;
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match byte {
            b'%' => {
                let (byte, after) =
                    escaped(after).ok_or(TargetError::Malformed(TargetFault::Escape))?;
                rest = after;
                byte
            }
            byte => *byte,
        };
        match byte {
            0 => return Err(TargetError::Malformed(TargetFault::Nul)),
            b'/' => return Err(TargetError::SlashInName),
            byte => path.push(byte),
        }
    }
    Ok(())
}

/// Removes the prefix from the path.
fn below(path: &mut Vec<u8>, prefix: &[u8]) -> Result<(), TargetError> {
    let Some(prefix) = prefix.strip_prefix(b"/") else { return Ok(()) };
    match path.strip_prefix(prefix) {
        Some([]) => path.clear(),
        Some([b'/', ..]) => drop(path.drain(..=prefix.len())),
        _ => return Err(TargetError::Outside),
    }
    Ok(())
}

/// Returns a value of a query, decoded.
fn decode_form(value: &[u8]) -> Cow<'_, [u8]> {
    decode(value, b' ')
}

/// Returns a decoded value, in which `+` means this.
fn decode(value: &[u8], plus: u8) -> Cow<'_, [u8]> {
    if !value.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(value);
    }
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, escaped(after)) {
            (b'%', Some((byte, after))) => {
                out.push(byte);
                rest = after;
            }
            (b'+', _) => out.push(plus),
            (byte, _) => out.push(*byte),
        }
    }
    Cow::Owned(out)
}
