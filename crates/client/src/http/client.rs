//! The settings that all requests share.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use underpass_engine::wait::MIN_RATE;

use super::credentials::Credentials;
use super::proxy::Proxies;
use super::tls::TlsSetup;

/// The settings of requests.
#[derive(Clone, Debug)]
pub struct HttpClient<'a> {
    /// The value of `User-Agent`.
    pub user_agent: String,
    /// Fields added to every request to the given server, but not to other servers that it
    /// redirects to.
    pub headers: Vec<(String, String)>,
    /// The credentials of the user.
    pub credentials: Credentials,
    /// The proxies that requests go through.
    pub proxies: Proxies,
    /// The trusted certificate authorities and the keys of `https` servers.
    pub tls: TlsSetup,
    /// The time limit for establishing a connection, including TLS.
    pub connect_timeout: Duration,
    /// The time limit without progress.
    pub timeout: Duration,
    /// The bytes per second that a server must send or accept on average over that time; 0 for no
    /// minimum.
    pub min_rate: u64,
    /// The deadline for every connection and every response that is read into memory; `None` for
    /// none.
    pub deadline: Option<Instant>,
    /// The maximum number of redirects.
    pub max_redirects: u32,
    /// The flag that cancels every request.
    pub cancel: Option<&'a AtomicBool>,
}

impl Default for HttpClient<'_> {
    /// Returns settings without credentials, proxies or a cancel flag: 30 seconds to connect, 60
    /// seconds without progress of at least 10 bytes per second, 10 redirects.
    fn default() -> Self {
        Self {
            user_agent: concat!("underpass/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
            credentials: Credentials::default(),
            proxies: Proxies::default(),
            tls: TlsSetup::default(),
            connect_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(60),
            min_rate: MIN_RATE,
            deadline: None,
            max_redirects: 10,
            cancel: None,
        }
    }
}

impl<'a> HttpClient<'a> {
    /// Returns the same settings without credentials and added fields, for a server that the user
    /// has not named.
    pub(crate) fn without_credentials(&self) -> HttpClient<'a> {
        let (headers, credentials) = (Vec::new(), Credentials::default());
        HttpClient { headers, credentials, ..self.clone() }
    }

    /// Returns whether the requests were cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }
}
