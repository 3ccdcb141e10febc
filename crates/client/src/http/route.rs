//! The route of a connection, which determines the requests for which it can be reused.

use url::Url;

use super::client::HttpClient;
use super::connect::{address, hop};
use crate::error::{ClientError, InvalidResponse, ProxyError};

/// The route to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// Host and port of the connected peer, for messages.
    pub(super) hop: String,
    /// Host and port of the server that terminates TLS.
    pub(super) secured: Option<String>,
    /// Whether the connected peer is a proxy.
    pub(super) is_proxied: bool,
}

impl Route {
    /// Returns the route to the server of a URL.
    pub(super) fn of(client: &HttpClient<'_>, url: &Url) -> Self {
        let proxy = client.proxies.of(url);
        Self {
            hop: hop(url, proxy),
            secured: (url.scheme() == "https").then(|| address(url)),
            is_proxied: proxy.is_some(),
        }
    }

    /// Returns whether a proxy reads the requests and needs absolute URLs.
    pub(super) fn is_read_on_the_way(&self) -> bool {
        self.is_proxied && self.secured.is_none()
    }

    /// Returns who answers the requests, for messages.
    pub(super) fn peer(&self) -> &str {
        if self.is_read_on_the_way() { &self.hop } else { "the server" }
    }

    /// Returns the error of an invalid response.
    pub(super) fn invalid(&self, problem: &'static str) -> ClientError {
        self.attributed(InvalidResponse::Protocol(problem).into())
    }

    /// Attributes an invalid response to the proxy, if it reads the requests.
    pub(super) fn attributed(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::InvalidResponse(problem) if self.is_read_on_the_way() => {
                ProxyError::InvalidResponse { by: self.peer().into(), problem }.into()
            }
            error => error,
        }
    }
}
