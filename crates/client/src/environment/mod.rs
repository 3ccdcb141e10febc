//! Request settings from the user's environment: proxies, passwords, object stores, the journal
//! folder.
//!
//! Nothing else in this crate reads the environment. A program calls these functions where its user
//! has set nothing else.

mod journal_path;
mod netrc;
mod s3;

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use percent_encoding::percent_decode_str;
use underpass_engine::hint::{Action, Hint, Hinted, Plain};
use url::Url;

use crate::error::KeysError;
use crate::http::{Credentials, Proxies};
use crate::input::{self, UrlError};

pub use journal_path::{journal_path, state_folder};
pub use s3::store;

/// The reason why the environment cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// A variable does not name a proxy.
    #[error("${name} is '{value}': {reason}; --no-proxy connects directly")]
    Proxy {
        /// The variable.
        name: &'static str,
        /// Its value, without a password.
        value: String,
        /// What is wrong with it.
        reason: UrlError,
    },
    /// The netrc file cannot be read.
    #[error("reading {}: {}", .path.display(), Plain(.source))]
    Netrc {
        /// Its path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Only one of the two variables with the keys of an object store is set.
    #[error("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set")]
    IncompleteKeys,
    /// The profile of an object store cannot be used.
    #[error(transparent)]
    Keys(KeysError),
    /// The value of a variable is not UTF-8.
    #[error("the value of {name} is not UTF-8")]
    NotUtf8 {
        /// The variable.
        name: &'static str,
    },
    /// A setting of an object store is not a URL.
    #[error("{name} is '{value}', which is not a URL")]
    Url {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

impl Hinted for EnvironmentError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Keys(_)
            | Self::IncompleteKeys
            | Self::NotUtf8 { .. }
            | Self::Proxy { .. }
            | Self::Url { .. } => None,
            Self::Netrc { source, .. } => Action::from("reading").hint(source),
        }
    }
}

/// Returns the name and password for `url` in a netrc file: this one, `$NETRC` or `~/.netrc`. If
/// the URL has a user name, only an entry with that name matches.
///
/// # Errors
///
/// [`EnvironmentError::Netrc`] if the file cannot be read; `~/.netrc` may be missing.
pub fn netrc(file: Option<&Path>, url: &Url) -> Result<Credentials, EnvironmentError> {
    Ok(Netrc::read(file)?.credentials(url))
}

/// The contents of a netrc file, which may come from a pipe and then be read only once.
#[derive(Clone, Default)]
pub struct Netrc {
    text: String,
}

impl Netrc {
    /// Reads a netrc file: this one, `$NETRC` or `~/.netrc`.
    ///
    /// # Errors
    ///
    /// [`EnvironmentError::Netrc`] if the file cannot be read; `~/.netrc` may be missing.
    pub fn read(file: Option<&Path>) -> Result<Self, EnvironmentError> {
        let named = file.map(Path::to_owned).or_else(|| path_variable("NETRC"));
        let text = match named {
            Some(path) => {
                fs::read(&path).map_err(|source| EnvironmentError::Netrc { path, source })?
            }
            None => {
                let home = path_variable("HOME");
                home.and_then(|home| fs::read(home.join(".netrc")).ok()).unwrap_or_default()
            }
        };
        // A comment in another encoding is no reason to go without a password.
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Self { text })
    }

    /// Returns the name and password for `url`. If the URL has a user name, only an entry with that
    /// name matches.
    #[must_use]
    pub fn credentials(&self, url: &Url) -> Credentials {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let user = percent_decode_str(url.username()).decode_utf8_lossy();
        let found = netrc::find(&self.text, host, Some(&*user).filter(|user| !user.is_empty()));
        found.map_or(Credentials::None, |(user, password)| Credentials::Basic { user, password })
    }
}

impl fmt::Debug for Netrc {
    /// Leaves out the passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netrc").finish_non_exhaustive()
    }
}

/// Returns the proxies that `$http_proxy`, `$https_proxy`, `$all_proxy` and `$no_proxy` name.
///
/// # Errors
///
/// [`EnvironmentError::Proxy`] if one of them is not a URL, or if that for `url` is not one over
/// `http`.
pub fn proxies(url: &Url) -> Result<Proxies, EnvironmentError> {
    // Not HTTP_PROXY: a CGI program gets the client's `Proxy` field in it.
    let http = proxy_of(&["http_proxy", "all_proxy", "ALL_PROXY"])?;
    let https = proxy_of(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?;
    let except = first_of(&["no_proxy", "NO_PROXY"])?.map(|(_, names)| names).unwrap_or_default();
    let except = except.split([',', ' ']).filter(|name| !name.is_empty());
    let name = if url.scheme() == "https" { https.as_ref() } else { http.as_ref() };
    let name = name.map(|(name, _)| *name);
    let proxies = Proxies {
        http: http.map(|(_, proxy)| proxy),
        https: https.map(|(_, proxy)| proxy),
        except: except.map(str::to_owned).collect(),
    };
    // A proxy for other servers may be one that only other programs support.
    match (name, proxies.of(url)) {
        (Some(name), Some(proxy)) if proxy.scheme() != "http" => {
            let value = input::redacted(&variable(name)?.unwrap_or_default());
            Err(EnvironmentError::Proxy { name, value, reason: UrlError::Proxy })
        }
        _ => Ok(proxies),
    }
}

/// Returns the value of a variable, unless it is empty.
///
/// # Errors
///
/// [`EnvironmentError::NotUtf8`]: as if it were not set, a request would go without a password or
/// past a proxy.
pub fn variable(name: &'static str) -> Result<Option<String>, EnvironmentError> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    let text = value.map(|value| value.into_string());
    text.transpose().map_err(|_| EnvironmentError::NotUtf8 { name })
}

/// Returns the first of these variables that has a value, and that.
fn first_of(names: &[&'static str]) -> Result<Option<(&'static str, String)>, EnvironmentError> {
    for name in names {
        if let Some(value) = variable(name)? {
            return Ok(Some((name, value)));
        }
    }
    Ok(None)
}

/// Returns the path in a variable, which need not be UTF-8, unless it is empty.
fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the first of these variables that names a proxy, and its URL.
fn proxy_of(names: &[&'static str]) -> Result<Option<(&'static str, Url)>, EnvironmentError> {
    let Some((name, value)) = first_of(names)? else { return Ok(None) };
    match input::parsed(&value) {
        Ok(url) => Ok(Some((name, url))),
        Err(reason) => {
            Err(EnvironmentError::Proxy { name, value: input::redacted(&value), reason })
        }
    }
}
