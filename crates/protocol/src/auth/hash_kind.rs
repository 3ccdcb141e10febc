//! Recognises the kind of hash that a password of a rule is.

/// The kind of hash that a rule's password looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// Argon2 in one of its variants.
    Argon2,
    /// SHA-512 in the format of crypt(3).
    Sha512Crypt,
    /// Another format, such as bcrypt of crypt(3) or `{SSHA}` of LDAP.
    Unknown,
}

impl HashKind {
    /// Returns the kind of a hash; `None` for a plain password.
    #[must_use]
    pub fn of(password: &str) -> Option<Self> {
        Some(match scheme(password)? {
            "6" => Self::Sha512Crypt,
            "argon2d" | "argon2i" | "argon2id" => Self::Argon2,
            // If the hash were taken for a plain password, knowing the hash would be enough to log
            // in.
            _ => Self::Unknown,
        })
    }
}

/// Returns the scheme of a hash of the form `$scheme$...` or `{scheme}...`.
fn scheme(password: &str) -> Option<&str> {
    let (scheme, _) = match password.strip_prefix('{') {
        Some(rest) => rest.split_once('}')?,
        None => password.strip_prefix('$')?.split_once('$')?,
    };
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!scheme.is_empty() && scheme.bytes().all(is_usual)).then_some(scheme)
}
