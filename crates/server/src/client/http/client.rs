//! How servers are asked, as all requests of a program share it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::credentials::Credentials;
use super::proxy::Proxies;
use super::tls::TlsSetup;

/// How servers are asked.
#[derive(Clone, Debug)]
pub struct HttpClient<'a> {
    /// What the program calls itself.
    pub user_agent: String,
    /// Fields added to every request to the server that was named, and not to others that it
    /// points to if they could hold secrets.
    pub headers: Vec<(String, String)>,
    /// Who asks.
    pub credentials: Credentials,
    /// Through which other servers requests go.
    pub proxies: Proxies,
    /// Whom servers of `https` addresses have to prove to be.
    pub tls: TlsSetup,
    /// How long a connection may take to be made, with all that goes before the first request.
    pub connect_timeout: Duration,
    /// How long nothing may move.
    pub timeout: Duration,
    /// How often a server may point to another address.
    pub max_redirects: u32,
    /// Everything ends soon after this becomes true.
    pub cancel: Option<&'a AtomicBool>,
}

impl HttpClient<'_> {
    /// Whether nobody wants anything any more.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed))
    }
}
