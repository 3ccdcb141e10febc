//! Credentials: the value of `Authorization`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

/// The credentials of the user.
#[derive(Clone, Default)]
pub enum Credentials {
    /// None but those in the URL.
    #[default]
    None,
    /// A name and a password (RFC 7617).
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token (RFC 6750).
    Bearer(String),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic",
            Self::Bearer(_) => "Bearer",
        })
    }
}

impl Credentials {
    /// Returns the value of `Authorization` for a URL; credentials in the URL come first.
    pub(super) fn value(&self, url: &Url) -> Option<String> {
        if let Some(named) = in_url(url) {
            return Some(named);
        }
        match self {
            Self::None => None,
            Self::Basic { user, password } => Some(basic(user.as_bytes(), password.as_bytes())),
            Self::Bearer(token) => Some(format!("Bearer {token}")),
        }
    }
}

/// Returns the value for the name and password in a URL, if there are any.
pub(super) fn in_url(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    Some(basic(&decode(url.username()), &decode(url.password().unwrap_or_default())))
}

fn basic(user: &[u8], password: &[u8]) -> String {
    format!("Basic {}", STANDARD.encode([user, b":", password].concat()))
}
