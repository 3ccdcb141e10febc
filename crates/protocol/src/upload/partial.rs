//! The names of incomplete uploads.
//!
//! They are in the folder of the file, so that the last step is a rename, and are recognized by
//! their form: requests cannot list, read or overwrite them by these names.

use std::fmt;

use sha2::{Digest, Sha256};

/// The token by which a client identifies an upload.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// Creates a token of these bytes, which must not be guessable.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub(super) const fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Returns what all tokens of one owner begin with.
    pub(super) fn tag(self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }

    /// Reads 32 hexadecimal digits, in lower case as they are written.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        if text.len() != DIGITS {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Token {
    /// Hides the token, since knowing it is enough to continue the upload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The id that distinguishes the parts of files of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartId([u8; 16]);

impl PartId {
    pub(super) fn new(owner: [u8; 4], hash: [u8; 12]) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&owner);
        bytes[4..].copy_from_slice(&hash);
        Self(bytes)
    }

    /// Returns the id of the same part once all of it has arrived and only its final name is
    /// missing. It contains a hash of a state, such as the mount epoch in which the part was
    /// written: in another one there is no part of this name.
    #[must_use]
    pub fn complete_in(self, state: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"complete part\0");
        hash.update(self.0);
        hash.update(state);
        let mut bytes = self.0;
        bytes[4..].copy_from_slice(&hash.finalize()[..12]);
        Self(bytes)
    }
}

impl fmt::Display for PartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Token(self.0).fmt(f)
    }
}

/// Returns the name of the part of a file: `.name.ID.upload`, of which `name` is cut where it
/// would be too long.
#[must_use]
pub fn partial_name(name: &[u8], id: PartId) -> Vec<u8> {
    let mut end = name.len().min(MAX_NAME - AFFIXES);
    // Not in the middle of a character, for file systems that want text.
    while end > 0 && end < name.len() && name[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    let mut partial = Vec::with_capacity(end + AFFIXES);
    partial.push(b'.');
    partial.extend_from_slice(&name[..end]);
    partial.extend_from_slice(format!(".{id}").as_bytes());
    partial.extend_from_slice(END);
    partial
}

/// Returns whether a name is one of these.
#[must_use]
pub fn is_partial_name(name: &[u8]) -> bool {
    owner_tag(name).is_some()
}

/// Returns the [tag](super::Owner::tag) of the owner that has sent the part of this name; `None`
/// if it is that of no part.
#[must_use]
pub fn owner_tag(name: &[u8]) -> Option<[u8; 4]> {
    let rest = name.strip_prefix(b".")?.strip_suffix(END)?;
    let start = rest.len().checked_sub(DIGITS + 1)?;
    let id = Token::parse(&rest[start + 1..])?;
    (rest[start] == b'.').then(|| id.tag())
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

const END: &[u8] = b".upload";

/// The number of hexadecimal digits of a token, and of a part's id.
const DIGITS: usize = 32;

/// The length of what surrounds the name: two dots, the digits, the end.
const AFFIXES: usize = 2 + DIGITS + END.len();

/// The maximum length of a file name on all common file systems, even those that encrypt names.
const MAX_NAME: usize = 143;
