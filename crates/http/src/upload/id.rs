//! What the address of an upload says, so that nothing has to be remembered about it: a server that
//! was started anew knows as much as the one that gave the address.

use std::fmt;

use super::content_range::decimal;
use super::partial::Token;

/// What the address of an upload says, behind `?upload=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadId {
    /// Which upload of this name it is.
    pub token: Token,
    /// How many bytes it is to have, if the client has said so.
    pub length: Option<u64>,
    /// Whether there must be no file of this name when it is whole (`If-None-Match: *`).
    pub keeps: bool,
}

impl UploadId {
    /// Reads what [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = str::from_utf8(text).ok()?.split('-');
        let token = Token::parse(parts.next()?.as_bytes())?;
        let length = match parts.next()? {
            "x" => None,
            "" => return None,
            digits => Some(decimal(digits)?),
        };
        let keeps = match parts.next() {
            None => false,
            Some("k") => true,
            Some(_) => return None,
        };
        parts.next().is_none().then_some(Self { token, length, keeps })
    }
}

impl fmt::Display for UploadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-", self.token)?;
        match self.length {
            Some(length) => write!(f, "{length}")?,
            None => f.write_str("x")?,
        }
        f.write_str(if self.keeps { "-k" } else { "" })
    }
}
