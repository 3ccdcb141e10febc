//! Object stores that speak the protocol of Amazon S3.
//!
//! An address `s3://bucket/key` becomes an `http` or `https` URL and a signer. The client signs
//! every request to the store when it writes the head, so downloads, folders, uploads and fills
//! need no code for this. If the store refuses a request because of its region, its time or expired
//! keys, the request is repeated with the right ones.
//!
//! # Examples
//!
//! ```no_run
//! use underpass_client::s3::{Location, Store};
//! use underpass_client::{HttpClient, TlsSetup, Url, environment};
//!
//! let location = Location::parse(&Url::parse("s3://bucket/SHA256SUMS")?).expect("an s3 URL")?;
//! let store = Store::open(&location, &environment::store(true)?, &TlsSetup::default())?;
//! let client = HttpClient { credentials: store.credentials(), ..HttpClient::default() };
//! let sums = client.fetch_to_memory(&store.url, 1 << 20, 8, |error, _| eprintln!("{error}"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod credentials;
mod listing;
mod location;
mod multipart;
mod signer;
mod signing;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::error::ClientError;
pub use crate::error::{KeyServiceError, KeysError, ProfileError};
use crate::http::{Credentials, HttpClient, TlsSetup};
use credentials::KeySources;
use signer::Signer;

pub use credentials::{KeySource, Keys, ProfileFiles, Profiles};
pub use listing::{ListedKey, ListedPage, Pages};
pub(crate) use listing::{parse_time, tag_fingerprint};
pub(crate) use location::suffix;
pub use location::{AddressingStyle, BadLocation, Location, UnknownStyle};
pub use multipart::{CHECKSUM, checksum};
pub use signing::is_about_signature;
pub use upload::{CONNECTIONS, upload};

/// The options of a store that its address may leave open.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The URL of the store; Amazon's by default.
    pub endpoint: Option<Url>,
    /// The region; the store's responses correct a wrong one.
    pub region: Option<String>,
    /// Where URLs have the name of the bucket.
    pub style: Option<AddressingStyle>,
    /// The sources of keys, in order. Without any, requests are not signed.
    pub sources: Vec<KeySource>,
}

/// A bucket of a store, and the signer of requests to it.
#[derive(Clone, Debug)]
pub struct Store {
    /// The URL of the requested object or folder.
    pub url: Url,
    /// The URL of the bucket, which ends in a slash.
    pub bucket: Url,
    /// The source of the keys; `None` if there are none and requests are not signed.
    pub keys_from: Option<&'static str>,
    signer: Arc<Signer>,
}

impl Store {
    /// Looks for keys, and prepares requests to the store of a location.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if there should be keys but they cannot be read, and
    /// [`UnusableUrl`](crate::UnusableUrl) if the URL of the store is neither `http` nor `https`.
    pub fn open(
        location: &Location,
        options: &StoreOptions,
        tls: &TlsSetup,
    ) -> Result<Self, ClientError> {
        let region = location.region.as_ref().or(options.region.as_ref());
        let region = region.map_or(DEFAULT_REGION, String::as_str);
        let endpoint = location.endpoint.as_ref().or(options.endpoint.as_ref());
        let bucket = location.bucket_url(endpoint, region, options.style)?;
        let chain = KeySources::new(options.sources.clone(), tls.clone());
        let (keys, keys_from) = match chain.find()? {
            Some((keys, name)) => (Some(keys), Some(name)),
            None => (None, None),
        };
        let moves = endpoint.is_none();
        let signer = Arc::new(Signer::new(chain, keys, region, moves));
        let url = object_url(&bucket, &location.key)?;
        Ok(Self { url, bucket, keys_from, signer })
    }

    /// Returns the same bucket, with the same credentials, for another key in it, percent-encoded
    /// as in a URL.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if the key leads out of the bucket.
    pub fn with_key(&self, key: &str) -> Result<Self, ClientError> {
        Ok(Self { url: object_url(&self.bucket, key)?, ..self.clone() })
    }

    /// Asks the store for the first keys of the bucket.
    ///
    /// # Errors
    ///
    /// The response that the bucket does not exist or that the keys are wrong. A store that does not
    /// respond within `timeout`, or responds otherwise, may be usable later.
    pub fn check(&self, tls: &TlsSetup, timeout: Duration) -> Result<(), ClientError> {
        let client = HttpClient {
            credentials: self.credentials(),
            tls: tls.clone(),
            connect_timeout: timeout,
            timeout,
            ..HttpClient::default()
        };
        let is_final = |error: &ClientError| match error {
            ClientError::Status { status, code, .. } => {
                *status == 404 || WRONG_KEYS.contains(&code.as_str())
            }
            _ => false,
        };
        match Pages::new(None).next(&client, &self.bucket, "") {
            Err(error) if is_final(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the files and the ports that a confined process needs: those of the store, and those
    /// of the source from which keys are replaced.
    #[must_use]
    pub fn needs(&self) -> (Vec<PathBuf>, Vec<u16>) {
        let (files, port) = self.signer.needs();
        (files, self.url.port_or_known_default().into_iter().chain(port).collect())
    }

    /// Returns the given region, or the default.
    #[must_use]
    pub fn region(&self) -> &str {
        self.signer.region()
    }

    /// Returns the region for which requests are signed: a different one if the store has named it.
    #[must_use]
    pub fn signed_region(&self) -> String {
        self.signer.signed_region()
    }

    /// Returns the credentials for requests to the store.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        Credentials::Store(Arc::<Signer>::clone(&self.signer))
    }
}

/// Returns the URL of an object of a bucket, whose key is percent-encoded as in a URL.
///
/// # Errors
///
/// [`ClientError::Keys`] if the key leads out of the bucket.
pub fn object_url(bucket: &Url, key: &str) -> Result<Url, ClientError> {
    let mut url = bucket.clone();
    // In `http` URLs, but not in `s3` ones, a backslash is treated as a slash.
    url.set_path(&format!("{}{}", bucket.path(), key.replace('\\', "%5C")));
    if url.path().starts_with(bucket.path()) {
        Ok(url)
    } else {
        Err(KeysError::InvalidObject(key.to_owned()).into())
    }
}

/// The error codes of stores for unknown keys and wrong secrets.
const WRONG_KEYS: [&str; 2] = ["InvalidAccessKeyId", "SignatureDoesNotMatch"];

/// The default region of requests.
const DEFAULT_REGION: &str = "us-east-1";
