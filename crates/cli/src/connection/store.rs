//! The options of object stores, which `get`, `put` and `serve` share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use clap::Args;
use underpass_client::environment;
use underpass_client::input;
use underpass_client::s3::{AddressingStyle, Location, Store};
use underpass_client::{ClientError, HttpClient, TlsSetup, Url};
use underpass_engine::wait::lock;
use underpass_receipt::shown;

use super::http_client::HttpClientArgs;
use crate::failure::{Failure, Result};
use crate::output;

/// The options of `s3://` addresses.
#[derive(Clone, Debug, Default, PartialEq, Args)]
#[command(next_help_heading = "Object stores (s3://)")]
pub(crate) struct StoreArgs {
    /// Use the store at this URL [env: AWS_ENDPOINT_URL_S3; default: Amazon's]
    #[arg(long, value_name = "URL", value_parser = input::url)]
    s3_endpoint: Option<Url>,

    /// Sign for this region [env: AWS_REGION; default: us-east-1, or the one that the store
    /// names]
    #[arg(long, value_name = "NAME")]
    s3_region: Option<String>,

    /// Put the bucket into the path of URLs (path) or into the host name (virtual) [default: path,
    /// but virtual for Amazon]
    #[arg(long, value_name = "STYLE")]
    s3_style: Option<AddressingStyle>,

    /// Do not sign requests: for public buckets
    #[arg(long)]
    s3_unsigned: bool,

    #[arg(skip)]
    opened: OpenedStores,
}

/// The buckets that a command has opened. Keys are looked up once for each bucket, not for each
/// object: some come from services that limit the rate of requests.
#[derive(Clone, Debug, Default)]
struct OpenedStores(Arc<Mutex<Vec<(Location, Store)>>>);

impl PartialEq for OpenedStores {
    /// Options are the same whatever was opened with them.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A URL of a command, and the client for it.
pub(crate) struct Remote<'a> {
    /// The client.
    pub(crate) client: HttpClient<'a>,
    /// The URL of requests.
    pub(crate) url: Url,
    /// The URL of the bucket, if the server is an object store.
    pub(crate) bucket: Option<Url>,
}

impl StoreArgs {
    /// Returns the client for requests to `url`, which may be that of an object.
    pub(crate) fn remote<'a>(
        &self,
        http: &HttpClientArgs,
        url: &Url,
        tls: &TlsSetup,
        cancel: &'a AtomicBool,
    ) -> Result<Remote<'a>> {
        match self.opened(url, tls)? {
            None => {
                let client = http.client(url, tls, cancel)?;
                Ok(Remote { client, url: url.clone(), bucket: None })
            }
            Some((store, is_first)) => {
                if let Some(note) = self.unsigned_note(&store).filter(|_| is_first) {
                    output::note(note);
                }
                let mut client = http.client(&store.url, tls, cancel)?;
                client.credentials = store.credentials();
                Ok(Remote { client, url: store.url, bucket: Some(store.bucket) })
            }
        }
    }

    /// Opens the store of an address; `None` if it is not that of a store.
    pub(crate) fn open(&self, url: &Url, tls: &TlsSetup) -> Result<Option<Store>> {
        Ok(self.opened(url, tls)?.map(|(store, _)| store))
    }

    /// Returns the store of an address, and whether it is the first one.
    fn opened(&self, url: &Url, tls: &TlsSetup) -> Result<Option<(Store, bool)>> {
        let Some(location) = Location::parse(url) else { return Ok(None) };
        let location = location.map_err(|why| Failure::value(shown(url), why))?;
        let failed = |error: ClientError| Failure::hinted(error.to_string(), &error);
        let bucket = Location { key: String::new(), ..location.clone() };
        let mut opened = lock(&self.opened.0);
        if let Some((_, store)) = opened.iter().find(|(known, _)| *known == bucket) {
            return Ok(Some((store.with_key(&location.key).map_err(failed)?, false)));
        }
        let mut options = environment::store(!self.s3_unsigned)?;
        options.endpoint = self.s3_endpoint.clone().or(options.endpoint);
        options.region = self.s3_region.clone().or(options.region);
        options.style = self.s3_style.or(options.style);
        let store = Store::open(&location, &options, tls).map_err(failed)?;
        let is_first = opened.is_empty();
        opened.push((bucket, store.clone()));
        Ok(Some((store, is_first)))
    }

    /// Returns the first option that is given, for commands that refuse them.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.s3_endpoint.is_some(), "--s3-endpoint"),
            (self.s3_region.is_some(), "--s3-region"),
            (self.s3_style.is_some(), "--s3-style"),
            (self.s3_unsigned, "--s3-unsigned"),
        ];
        given.into_iter().find_map(|(is_given, option)| is_given.then_some(option))
    }

    /// Returns the note to print if no keys were found.
    pub(crate) fn unsigned_note(&self, store: &Store) -> Option<&'static str> {
        (store.keys_from.is_none() && !self.s3_unsigned)
            .then_some("no keys for the store were found, so requests are not signed")
    }
}
