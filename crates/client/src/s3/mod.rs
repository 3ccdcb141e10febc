//! Object stores that speak the protocol of Amazon S3.
//!
//! An address `s3://bucket/key` becomes an `http` or `https` URL and a signer: every request of the
//! client to the store is signed where its head is written, so downloads, folders, uploads and
//! fills need to know nothing of it. If the store refuses a request because of its region, its time
//! or expired keys, the request is repeated with the right ones.

mod credentials;
mod listing;
mod location;
mod multipart;
mod signer;
mod signing;
mod upload;

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

use crate::error::ClientError;
pub use crate::error::KeysError;
use crate::http::{Credentials, TlsSetup};
use credentials::KeySources;
use signer::Signer;

pub use credentials::{KeySource, Keys, ProfileFiles, Profiles};
pub use listing::{ListedKey, ListedPage, Pages};
pub(crate) use listing::{parse_time, tag_fingerprint};
pub(crate) use location::suffix;
pub use location::{AddressingStyle, BadLocation, Location};
pub use multipart::{CHECKSUM, checksum};
pub use signing::is_about_signature;
pub use upload::{CONNECTIONS, upload};

/// The options of a store that its address leaves open.
#[derive(Clone, Debug, Default)]
pub struct StoreOptions {
    /// The URL of the store; Amazon's by default.
    pub endpoint: Option<Url>,
    /// The region; the store's answers correct a wrong one.
    pub region: Option<String>,
    /// The place of the name of the bucket in URLs.
    pub style: Option<AddressingStyle>,
    /// The places where keys are looked for, in this order. Without any, requests are not signed.
    pub sources: Vec<KeySource>,
}

/// A bucket of a store, and what signs the requests to it.
#[derive(Clone, Debug)]
pub struct Store {
    /// The URL of the object or folder that was named.
    pub url: Url,
    /// The URL of the bucket, which ends in a slash.
    pub bucket: Url,
    /// The place where the keys were found; `None` if there are none and requests are not signed.
    pub keys_from: Option<&'static str>,
    signer: Arc<Signer>,
}

impl Store {
    /// Looks for keys, and prepares requests to the store of a location.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if there should be keys and they cannot be read, and
    /// [`ClientError::Scheme`] if the URL of the store is neither `http` nor `https`.
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

    /// Returns the same bucket, with the same keys, for another key in it, which is escaped as in a
    /// URL.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if the key is not in the bucket.
    pub fn with_key(&self, key: &str) -> Result<Self, ClientError> {
        Ok(Self { url: object_url(&self.bucket, key)?, ..self.clone() })
    }

    /// Returns the files and the ports that a confined process needs: those of the store, and those
    /// from which keys are replaced.
    #[must_use]
    pub fn needs(&self) -> (Vec<PathBuf>, Vec<u16>) {
        let (files, port) = self.signer.needs();
        (files, self.url.port_or_known_default().into_iter().chain(port).collect())
    }

    /// Returns the region that was given or is the default.
    #[must_use]
    pub fn region(&self) -> &str {
        self.signer.region()
    }

    /// Returns the region that requests are signed for: another one if the store has named it.
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

/// Returns the URL of an object of a bucket, whose key is escaped as in a URL.
///
/// # Errors
///
/// [`ClientError::Keys`] if the key is not in the bucket.
pub fn object_url(bucket: &Url, key: &str) -> Result<Url, ClientError> {
    let mut url = bucket.clone();
    // In a URL of http, but not in one of s3, a backslash is another slash.
    url.set_path(&format!("{}{}", bucket.path(), key.replace('\\', "%5C")));
    if url.path().starts_with(bucket.path()) {
        Ok(url)
    } else {
        Err(KeysError::InvalidObject(key.to_owned()).into())
    }
}

/// The region of requests to stores that have none.
const DEFAULT_REGION: &str = "us-east-1";
