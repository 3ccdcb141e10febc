//! Credentials: the value of `Authorization`, or a signer of requests to a store.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use url::Url;

use super::response::Response;
use super::xml::StoreRefusal;
use crate::error::ClientError;

/// Returns a URL without user name and password, which may be shown and stored.
#[must_use]
pub fn without_credentials(url: &Url) -> Url {
    let mut url = url.clone();
    // This fails only for URLs without a host, which cannot have them.
    let _ = (url.set_username(""), url.set_password(None));
    url
}

/// Signs requests to an object store, and adopts region and time from its responses.
pub trait Sign: fmt::Debug + Send + Sync {
    /// Returns the URL under which the store has this one, if it differs.
    fn locate(&self, url: &Url) -> Option<Url>;

    /// Returns the additional fields that sign a request with these fields.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if there should be keys but they cannot be read.
    fn sign(
        &self,
        method: &str,
        url: &Url,
        fields: &[(&str, &str)],
    ) -> Result<Signature, ClientError>;

    /// Learns from the refusal of a signed request: the region, the time, or that new keys are
    /// needed. Returns whether the same request may succeed now.
    fn learn(&self, response: &Response, refusal: &StoreRefusal, signed: &Signature) -> bool;

    /// Returns why newer keys could not be obtained, if so; the text contains no keys.
    fn failure(&self) -> Option<String>;
}

/// The fields added to a request, and the region, clock and keys behind them.
#[derive(Clone, Default)]
pub struct Signature {
    /// The fields; none if there are no keys.
    pub fields: Vec<(&'static str, String)>,
    /// The region.
    pub region: String,
    /// How far the clock of the store is ahead.
    pub skew: SignedDuration,
    /// How often the keys had been replaced.
    pub key_changes: u64,
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signature").field("region", &self.region).finish_non_exhaustive()
    }
}

/// The credentials of the user.
#[derive(Clone, Default)]
pub enum Credentials {
    /// Only those in the URL.
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
    /// The signer for an object store, which signs each request.
    Store(Arc<dyn Sign>),
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic",
            Self::Bearer(_) => "Bearer",
            Self::Store(_) => "Store",
        })
    }
}

impl Credentials {
    /// Returns the signer, if the server is an object store.
    #[must_use]
    pub fn store(&self) -> Option<&dyn Sign> {
        if let Self::Store(signer) = self { Some(&**signer) } else { None }
    }

    /// Returns the value of `Authorization` for a URL. Credentials in the URL take precedence, but
    /// a missing password is taken from these.
    pub(super) fn value(&self, url: &Url) -> Option<String> {
        let named = in_url(url);
        match self {
            // The URL only has the user name, and these have the password.
            Self::Basic { user, password }
                if url.password().is_none() && named == Some(basic(user.as_bytes(), b"")) =>
            {
                Some(basic(user.as_bytes(), password.as_bytes()))
            }
            _ if named.is_some() => named,
            Self::None | Self::Store(_) => None,
            Self::Basic { user, password } => Some(basic(user.as_bytes(), password.as_bytes())),
            Self::Bearer(token) => Some(format!("Bearer {token}")),
        }
    }
}

/// Returns the value for the user name and password in a URL, if there are any.
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
