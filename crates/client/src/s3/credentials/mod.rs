//! The sources of the keys of a store.
//!
//! The sources are tried in order until one has keys; from then on only that one is asked for newer
//! ones. Keys are never printed.

mod profiles;
mod remote;

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use url::Url;

use crate::error::{ClientError, KeysError};
use crate::http::{HttpClient, TlsSetup};

pub use profiles::{ProfileFiles, Profiles};

/// The keys of a user of a store.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keys {
    /// The access key ID.
    pub id: String,
    /// The secret key.
    pub secret: String,
    /// The session token, if the keys are those of a session.
    pub token: Option<String>,
    /// The time at which they expire, if they do.
    pub expires: Option<SystemTime>,
}

impl Keys {
    /// Refuses keys that would not fit into a header field.
    fn check(&self, place: &'static str) -> Result<(), ClientError> {
        let texts = [Some(&self.id), Some(&self.secret), self.token.as_ref()];
        let is_plain = |text: &String| text.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
        if texts.into_iter().flatten().all(is_plain) {
            Ok(())
        } else {
            Err(KeysError::InvalidKeys { place }.into())
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// A source of keys.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// These keys, from the environment.
    Keys(Keys),
    /// A profile in the files that Amazon's tools share.
    Profile(ProfileFiles),
    /// A token in a file, which a service exchanges for keys (`AssumeRoleWithWebIdentity`).
    WebIdentity {
        /// The file, which is read each time.
        token_file: PathBuf,
        /// The role that the keys are for.
        role: String,
        /// The name of the session.
        session: String,
        /// The URL of the service.
        service: Url,
    },
    /// The container's metadata server.
    Container {
        /// Its URL.
        url: Url,
        /// The value of the `Authorization` field.
        token: Option<String>,
        /// The file with that value, which is read each time.
        token_file: Option<PathBuf>,
    },
    /// The metadata service of a virtual machine (IMDSv2).
    Metadata {
        /// Its URL.
        url: Url,
    },
}

impl KeySource {
    /// Returns the files that are read again when keys are replaced, and the targets of links.
    fn files(&self) -> Vec<PathBuf> {
        let files: Vec<&PathBuf> = match self {
            Self::Profile(files) => files.credentials.iter().chain(files.config.as_ref()).collect(),
            Self::WebIdentity { token_file, .. } => vec![token_file],
            Self::Container { token_file: Some(token_file), .. } => vec![token_file],
            Self::Keys(_) | Self::Container { .. } | Self::Metadata { .. } => Vec::new(),
        };
        let linked = files.iter().filter_map(|file| file.canonicalize().ok());
        files.iter().map(|file| (*file).clone()).chain(linked).collect()
    }

    /// Returns the port of the key service.
    fn port(&self) -> Option<u16> {
        match self {
            Self::Keys(_) | Self::Profile(_) => None,
            Self::WebIdentity { service: url, .. }
            | Self::Container { url, .. }
            | Self::Metadata { url } => url.port_or_known_default(),
        }
    }

    /// Returns its name for messages.
    fn name(&self) -> &'static str {
        match self {
            Self::Keys(_) => "the environment",
            Self::Profile(_) => "the shared files",
            Self::WebIdentity { .. } => "a web identity",
            Self::Container { .. } => "the container",
            Self::Metadata { .. } => "the machine",
        }
    }
}

/// The sources of keys, in order.
#[derive(Debug)]
pub(super) struct KeySources {
    sources: Vec<KeySource>,
    client: HttpClient<'static>,
    /// The index of the source in which keys were found.
    found: OnceLock<usize>,
}

impl KeySources {
    pub(super) fn new(sources: Vec<KeySource>, tls: TlsSetup) -> Self {
        let client = HttpClient {
            tls,
            connect_timeout: CONNECT_TIMEOUT,
            timeout: TIMEOUT,
            max_redirects: 0,
            ..HttpClient::default()
        };
        Self { sources, client, found: OnceLock::new() }
    }

    /// Returns the files and the port that are needed to replace the keys that were found.
    pub(super) fn needs(&self) -> (Vec<PathBuf>, Option<u16>) {
        let found = self.found.get().and_then(|index| self.sources.get(*index));
        found.map_or_else(Default::default, |found| (found.files(), found.port()))
    }

    /// Returns the keys of the first source that has some, and its name.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if a source should have keys but they cannot be obtained.
    pub(super) fn find(&self) -> Result<Option<(Keys, &'static str)>, ClientError> {
        for (index, source) in self.sources.iter().enumerate() {
            if self.found.get().is_some_and(|found| *found != index) {
                continue;
            }
            let keys = match source {
                KeySource::Keys(keys) => Some(keys.clone()),
                KeySource::Profile(files) => files.keys()?,
                source => remote::keys(&self.client, source)?,
            };
            if let Some(keys) = keys {
                keys.check(source.name())?;
                // Another thread that was faster has found the same.
                let _ = self.found.set(index);
                return Ok(Some((keys, source.name())));
            }
        }
        Ok(None)
    }
}

/// The time limit for connecting to a key service, which is nearby or does not exist.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The time limit for its response.
const TIMEOUT: Duration = Duration::from_secs(5);
