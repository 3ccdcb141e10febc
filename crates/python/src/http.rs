//! The HTTP client of `get` and `put`: its options.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use underpass_client::environment::{self, variable};
use underpass_client::{Credentials, HttpClient, Proxies, TlsSetup, Url, input};
use underpass_engine::Policy;
use underpass_transport::tls::{Pin, Trust};

use crate::options::{invalid, parse, seconds};

/// The options of requests, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct HttpOptions {
    user: Option<(String, String)>,
    bearer: Option<String>,
    headers: Vec<(String, String)>,
    netrc: bool,
    /// `None` for the proxies of the environment, an empty text for no proxy.
    proxy: Option<String>,
    timeout: f64,
    connect_timeout: f64,
    retries: u32,
    max_redirects: u32,
    cacert: Option<PathBuf>,
    insecure: bool,
    pins: Vec<String>,
}

/// The settings of requests to one URL.
#[derive(Debug)]
pub(crate) struct HttpSettings {
    client: HttpClient<'static>,
    /// The number of consecutive attempts that may fail.
    pub(crate) retries: u32,
}

impl HttpOptions {
    /// Returns the settings of requests to `url`.
    ///
    /// # Errors
    ///
    /// A `ValueError` if an option or an environment variable has an invalid value.
    pub(crate) fn settings(self, url: &Url, policy: Policy) -> PyResult<HttpSettings> {
        let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
        let field = |(name, value): &(String, String)| {
            input::request_field(&format!("{name}: {value}"))
                .map_err(|reason| invalid("headers", reason))
        };
        if self.user.as_ref().is_some_and(|(name, _)| name.contains(':')) {
            return Err(invalid("user", "a name cannot contain a colon"));
        }
        let bearer = match self.bearer {
            None if self.user.is_none() => {
                variable("UNDERPASS_BEARER").map_err(|error| wrong(&error))?
            }
            bearer => bearer,
        };
        let credentials = match (&self.user, bearer) {
            (Some((user, password)), _) => {
                Credentials::Basic { user: user.clone(), password: password.clone() }
            }
            (None, Some(token)) => Credentials::Bearer(
                input::token(&token).map_err(|reason| invalid("bearer", reason))?,
            ),
            (None, None) if !self.netrc => Credentials::None,
            (None, None) => environment::netrc(None, url).map_err(|error| wrong(&error))?,
        };
        let proxies = match self.proxy.as_deref() {
            None => environment::proxies(url).map_err(|error| wrong(&error))?,
            Some("") => Proxies::default(),
            Some(text) => {
                let proxy = input::proxy(text).map_err(|reason| invalid("proxy", reason))?;
                Proxies { http: Some(proxy.clone()), https: Some(proxy), except: Vec::new() }
            }
        };
        let pins = self.pins.iter().map(|pin| parse::<Pin>("pins", pin));
        let pins = pins.collect::<PyResult<Vec<_>>>()?;
        let client = HttpClient {
            headers: self.headers.iter().map(field).collect::<PyResult<_>>()?,
            credentials,
            proxies,
            tls: TlsSetup::new(Trust::new(self.cacert, self.insecure, pins, policy)),
            timeout: seconds("timeout", self.timeout)?,
            connect_timeout: seconds("connect_timeout", self.connect_timeout)?,
            max_redirects: self.max_redirects,
            ..HttpClient::default()
        };
        Ok(HttpSettings { client, retries: self.retries })
    }
}

impl HttpSettings {
    /// Returns the client for these requests.
    pub(crate) fn client<'a>(&self, cancel: &'a AtomicBool) -> HttpClient<'a> {
        HttpClient { cancel: Some(cancel), ..self.client.clone() }
    }
}

/// Parses the URL of a request.
///
/// # Errors
///
/// A `ValueError` if it is not a URL.
pub(crate) fn url(text: &str) -> PyResult<Url> {
    let wrong = |reason| format!("'{}': {reason}", input::redacted(text));
    input::url(text).map_err(|reason| PyValueError::new_err(wrong(reason)))
}
