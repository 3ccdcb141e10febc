//! Where a connection goes, and what it may be used for.

use url::Url;

use super::client::HttpClient;
use super::connect::address;

/// The way to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Whom the socket is connected to: host and port.
    hop: String,
    /// The server at the end of a connection that nobody on the way can read: host and port.
    secured: Option<String>,
    /// Whether somebody is on the way.
    pub(super) is_proxied: bool,
}

impl Route {
    /// The way to the server of a URL.
    pub(super) fn of(client: &HttpClient<'_>, url: &Url) -> Self {
        let proxy = client.proxies.of(url);
        Self {
            hop: address(proxy.unwrap_or(url)),
            secured: (url.scheme() == "https").then(|| address(url)),
            is_proxied: proxy.is_some(),
        }
    }

    /// Whom it leads to, for messages: host and port.
    pub(super) fn address(&self) -> &str {
        self.secured.as_ref().unwrap_or(&self.hop)
    }

    /// Whether requests are read by a proxy, which has to know where they go.
    pub(super) fn is_read_on_the_way(&self) -> bool {
        self.is_proxied && self.secured.is_none()
    }

    /// Whether TLS goes over it.
    pub(super) fn is_secured(&self) -> bool {
        self.secured.is_some()
    }
}
