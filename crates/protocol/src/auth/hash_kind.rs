//! Recognises the kind of hash that a password of a rule is.

/// The kind of hash that a rule's password looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// Argon2 in one of its variants.
    Argon2,
    /// SHA-512 in the format of crypt(3).
    Sha512Crypt,
    /// Another format of crypt(3), such as bcrypt.
    Unknown,
}

impl HashKind {
    /// Returns the kind of a hash; `None` for a plain password.
    #[must_use]
    pub fn of(password: &str) -> Option<Self> {
        let (id, _) = password.strip_prefix('$')?.split_once('$')?;
        Some(match id {
            "6" => Self::Sha512Crypt,
            "argon2d" | "argon2i" | "argon2id" => Self::Argon2,
            // If the hash were taken for a plain password, knowing the hash would be enough to log
            // in.
            "1" | "2" | "2a" | "2b" | "2x" | "2y" | "3" | "5" | "7" | "apr1" | "gy" | "md5"
            | "scrypt" | "sha1" | "sm3" | "y" => Self::Unknown,
            _ => return None,
        })
    }
}
