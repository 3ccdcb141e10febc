//! The reason why a request to an object store cannot be made or signed.

use std::io;
use std::path::PathBuf;

use underpass_engine::hint::Plain;

use crate::error::ClientError;

/// The reason why a request to an object store cannot be made or signed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// Keys contain characters that a header field cannot have.
    #[error("the keys from {place} have spaces or other invalid characters")]
    InvalidKeys {
        /// The source of the keys.
        place: &'static str,
    },
    /// The text is not the key of an object.
    #[error("'{}' is not a key", .0.escape_debug())]
    InvalidObject(String),
    /// The text is not the name of a region.
    #[error("'{}' is not the name of a region", .0.escape_debug())]
    InvalidRegion(String),
    /// A file has no token.
    #[error("{} has no token", .0.display())]
    NoToken(PathBuf),
    /// The profile does not give the keys.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A file with a token or a profile cannot be read.
    #[error("reading {}: {}", .file.display(), Plain(.source))]
    Read {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A service does not give the keys.
    #[error(transparent)]
    Service(#[from] KeyServiceError),
}

/// The reason why a profile does not give the keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The profile has only one of the two keys.
    #[error(
        "the profile '{0}' has only one of aws_access_key_id and \
         aws_secret_access_key"
    )]
    Incomplete(String),
    /// No file contains the requested profile.
    #[error(
        "there is no profile '{profile}' in {} and {}",
        .credentials.display(), .config.display()
    )]
    NotFound {
        /// The profile.
        profile: String,
        /// The credentials file.
        credentials: PathBuf,
        /// The config file.
        config: PathBuf,
    },
    /// The profile gets its keys by an unsupported method.
    #[error(
        "the profile '{profile}' gets its keys by {setting}, which is not supported: \
         eval \"$(aws configure export-credentials --format env)\" puts them into the \
         environment"
    )]
    Unsupported {
        /// The profile.
        profile: String,
        /// The setting that selects the method.
        setting: &'static str,
    },
}

/// The reason why a key service does not give the keys.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyServiceError {
    /// The URL of the container's key service would send its token unencrypted to another machine.
    #[error(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI: it is neither https nor an address of this \
         machine or its container service"
    )]
    Insecure,
    /// The response of a service has no keys.
    #[error("{service} returned no keys")]
    NoKeys {
        /// The service, without the parts of its URL that may be secret.
        service: String,
    },
    /// It cannot be reached, or refuses the request.
    #[error("requesting {what} from {service}: {source}")]
    Request {
        /// What was requested, in words.
        what: &'static str,
        /// The service, without the parts of its URL that may be secret.
        service: String,
        /// The error of the request.
        source: Box<ClientError>,
    },
}

impl From<KeysError> for ClientError {
    fn from(error: KeysError) -> Self {
        Self::Keys(Box::new(error))
    }
}
