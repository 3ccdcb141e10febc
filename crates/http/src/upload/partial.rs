//! The names under which parts of files wait for their rest.
//!
//! They are in the folder of the file, so that the last step is a rename, and are known by their
//! shape: nobody lists, reads or overwrites them by these names.

use std::fmt;

use sha2::{Digest, Sha256};

/// What tells the uploads of one name from each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A token of these bytes, which nobody should be able to guess.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The token of what a user has sent of a file of this name, for those who send no other.
    #[must_use]
    pub fn derived(name: &[u8], user: Option<&str>) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"partial upload\0");
        // No user of the empty name is nobody: lengths keep the parts apart.
        hash.update(user.map_or(0, |user| user.len() as u64 + 1).to_le_bytes());
        hash.update(user.unwrap_or_default());
        hash.update(name);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Self(bytes)
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
    /// Whoever knows a token can go on with the upload.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// The name of the part of a file: `.name.TOKEN.upload`, of which `name` is cut where it would be
/// too long.
#[must_use]
pub fn partial_name(name: &[u8], token: Token) -> Vec<u8> {
    let mut end = name.len().min(LONGEST - AROUND);
    // Not in the middle of a character, for file systems that want text.
    while end > 0 && end < name.len() && name[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    let mut partial = Vec::with_capacity(end + AROUND);
    partial.push(b'.');
    partial.extend_from_slice(&name[..end]);
    partial.extend_from_slice(format!(".{token}").as_bytes());
    partial.extend_from_slice(END);
    partial
}

/// Whether a name is one of these.
#[must_use]
pub fn is_partial_name(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".").and_then(|rest| rest.strip_suffix(END)) else {
        return false;
    };
    let Some(start) = rest.len().checked_sub(DIGITS + 1) else { return false };
    rest[start] == b'.' && Token::parse(&rest[start + 1..]).is_some()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

const END: &[u8] = b".upload";

/// Hexadecimal digits of a token.
const DIGITS: usize = 32;

/// What stands around the name: two dots, the token, the end.
const AROUND: usize = 2 + DIGITS + END.len();

/// The longest name of a file that Linux file systems take.
const LONGEST: usize = 255;
