//! The owner of an upload, and the name of its stored part.
//!
//! The name of a part does not reveal how to continue it. An upload with an address is identified
//! by a random token, and its part by a hash of the token and the user: a reader of the folder
//! cannot derive the address from it, and no other client can use the address. An upload by
//! `Content-Range` has no address, so its part is identified by a hash of its owner, which no
//! token leads to. So no key has to be kept, and a restarted server finds the same parts.

use std::net::IpAddr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::partial::{PartId, Token};
use crate::request::ClientNet;

/// The owner of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// An authenticated user.
    User(Arc<str>),
    /// An anonymous client.
    Anonymous(ClientNet),
}

impl Owner {
    /// Creates the owner: the user if there is one, or else the client.
    #[must_use]
    pub fn new(user: Option<&Arc<str>>, client: ClientNet) -> Self {
        user.map_or(Self::Anonymous(client), |user| Self::User(Arc::clone(user)))
    }

    /// Returns the name of the user, if it is one.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::User(user) => Some(user),
            Self::Anonymous(_) => None,
        }
    }

    /// Returns what the parts of one owner have in common, so that they can be counted.
    #[must_use]
    pub fn tag(&self) -> [u8; 4] {
        let mut hash = Sha256::new();
        hash.update(b"owner of uploads\0");
        self.hash_into(&mut hash);
        first(&hash)
    }

    /// Returns a token of these bytes, which must not be guessable.
    #[must_use]
    pub fn token(&self, random: [u8; 12]) -> Token {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.tag());
        bytes[4..].copy_from_slice(&random);
        Token::new(bytes)
    }

    /// Returns the part of the upload of this file name that a token identifies. It belongs to
    /// the user who began it; an anonymous client may return from another address, or as a user.
    #[must_use]
    pub fn part_of_token(&self, token: Token, name: &[u8]) -> PartId {
        let mut hash = Sha256::new();
        hash.update(b"part by token\0");
        match self {
            Self::User(_) if token.tag() == self.tag() => self.hash_into(&mut hash),
            _ => hash.update([0]),
        }
        hash.update(token.bytes());
        hash.update(name);
        PartId::new(token.tag(), first(&hash))
    }

    /// Returns the part that the owner has sent of this file name without a token.
    #[must_use]
    pub fn part_of_name(&self, name: &[u8]) -> PartId {
        let mut hash = Sha256::new();
        hash.update(b"part by name\0");
        self.hash_into(&mut hash);
        hash.update(name);
        PartId::new(self.tag(), first(&hash))
    }

    fn hash_into(&self, hash: &mut Sha256) {
        match self {
            Self::Anonymous(client) => match client.address() {
                None => hash.update([1]),
                Some(IpAddr::V4(address)) => {
                    hash.update([2]);
                    hash.update(address.octets());
                }
                Some(IpAddr::V6(address)) => {
                    hash.update([3]);
                    hash.update(address.octets());
                }
            },
            Self::User(user) => {
                hash.update([4]);
                // The length separates the user from the following file name.
                hash.update((user.len() as u64).to_le_bytes());
                hash.update(user.as_bytes());
            }
        }
    }
}

/// Returns the first bytes of a hash.
fn first<const N: usize>(hash: &Sha256) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&hash.clone().finalize()[..N]);
    bytes
}
