//! Follows allowed redirects of an origin.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Mutex;

use underpass_client::{
    ClientError, Connection, HttpClient, OpenResponse, Request, UnusableUrl, Url,
    without_credentials,
};
use underpass_engine::wait::lock;

use super::availability::{AskedObject, Availability, OriginFailure};
use crate::error::{CacheError, ConnectionFault, ResponseFault};

/// A host to which an origin may redirect this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectHost {
    /// The host name in lower case; for `*.HOST` only the part from the dot on.
    name: String,
    /// The port; `None` for [`DEFAULT_PORTS`].
    port: Option<u16>,
}

impl FromStr for RedirectHost {
    type Err = &'static str;

    /// Parses `HOST`, `HOST:PORT` or `*.HOST`.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let (name, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
            Some((name, port)) => {
                (name, Some(port.parse().map_err(|_| "the port is not a number")?))
            }
            None => (text, None),
        };
        let suffix = name.strip_prefix('*').unwrap_or(name);
        let is_name = suffix.len() == name.len() || suffix.starts_with('.');
        let host = suffix.trim_start_matches('.');
        let parsed = Url::parse(&format!("https://{host}/"));
        match parsed.ok().and_then(|url| url.host_str().map(str::to_owned)) {
            Some(found) if is_name && found.eq_ignore_ascii_case(host) => {
                Ok(Self { name: suffix.to_ascii_lowercase(), port })
            }
            _ => Err("write HOST, HOST:PORT or *.HOST"),
        }
    }
}

impl RedirectHost {
    /// Returns the ports to which a redirect may lead.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.port.map_or_else(|| DEFAULT_PORTS.to_vec(), |port| vec![port])
    }

    fn includes(&self, url: &Url) -> bool {
        let is_port = url.port_or_known_default().is_some_and(|port| self.ports().contains(&port));
        let is_host = url.host_str().is_some_and(|host| {
            if self.name.starts_with('.') { host.ends_with(&self.name) } else { host == self.name }
        });
        is_port && is_host
    }
}

/// The hosts to which origins may redirect this server.
#[derive(Debug)]
pub(super) struct Redirects {
    client: HttpClient<'static>,
    allowed: Vec<RedirectHost>,
    /// The hosts that have failed since their last answer, at most [`MAX_FAILING`].
    failing: Mutex<HashMap<String, Availability>>,
}

/// The reason why a redirect leads to no response.
pub(super) enum RedirectFailure {
    /// The host is skipped, because it has failed before.
    Skipped(OriginFailure),
    /// It is followed no further, or the host has failed now.
    Failed(OriginFailure),
}

impl<E: Into<CacheError>> From<E> for RedirectFailure {
    fn from(error: E) -> Self {
        Self::Failed(OriginFailure { error: error.into(), retry_after: None })
    }
}

impl Redirects {
    pub(super) fn new(client: HttpClient<'static>, allowed: Vec<RedirectHost>) -> Self {
        Self { client, allowed, failing: Mutex::default() }
    }

    /// Follows redirects to hosts that the operator has allowed; any other redirect is returned.
    /// The other host receives neither credentials nor clients' fields. Returns whether any was
    /// followed.
    ///
    /// # Errors
    ///
    /// [`ResponseFault::Redirected`] for a redirect from https to http, or from a public into a
    /// private network; others if the host does not answer. A host that has failed is skipped, as
    /// an origin is.
    pub(super) fn follow(
        &self,
        mut answer: OpenResponse<'static>,
        request: &Request<'_>,
        asked: AskedObject<'_>,
    ) -> Result<(OpenResponse<'static>, bool), RedirectFailure> {
        // Other origins may redirect to the same host.
        let asked = AskedObject { is_only: true, ..asked };
        let may_go_inside = peer_of(&answer.connection).is_ok_and(|peer| !is_public(peer));
        for number in 0..=MAX_REDIRECTS {
            let next = answer
                .response
                .redirect(&answer.url)
                .map_err(|error| CacheError::new(ResponseFault::Invalid, error))?;
            let is_allowed = |next: &Url| self.allowed.iter().any(|host| host.includes(next));
            let Some(next) = next.filter(is_allowed) else { return Ok((answer, number > 0)) };
            if number == MAX_REDIRECTS {
                break;
            }
            if next.scheme() != "https" && answer.url.scheme() == "https" {
                let downgrade = UnusableUrl::Downgrade { to: host_of(&next) };
                return Err(ClientError::from(downgrade).into());
            }
            answer = self.request(&without_credentials(&next), request, may_go_inside, asked)?;
        }
        Err(ClientError::from(UnusableUrl::TooManyRedirects { max: MAX_REDIRECTS }).into())
    }

    /// Sends the request to another host, unless that has failed before.
    fn request(
        &self,
        url: &Url,
        request: &Request<'_>,
        may_go_inside: bool,
        asked: AskedObject<'_>,
    ) -> Result<OpenResponse<'static>, RedirectFailure> {
        let host = url.origin().ascii_serialization();
        let known = lock(&self.failing).get_mut(&host).map(|it| it.check(asked.is_resumed));
        if let Some(Err((wait, why))) = known {
            let skipped = OriginFailure { error: why.into(), retry_after: Some(wait) };
            return Err(RedirectFailure::Skipped(skipped));
        }
        let failed = |error| RedirectFailure::Failed(self.note_failure(&host, error, asked));
        let mut connection = self.client.connect(url).map_err(failed)?;
        // The name may resolve differently each time, so the address of the connection is checked.
        let peer = peer_of(&connection)
            .map_err(|error| CacheError::new(ConnectionFault::Unreachable, error))?;
        if !may_go_inside && !is_public(peer) {
            let source = io::Error::other(format!("{} is in a private network", host_of(url)));
            return Err(CacheError::new(ResponseFault::Redirected, source).into());
        }
        let exchanged = connection.exchange(&self.client, request, url, false);
        let response = exchanged.map_err(failed)?;
        lock(&self.failing).remove(&host);
        Ok(OpenResponse { connection, response, url: url.clone(), is_trusted: false })
    }

    /// Records an error of a host, and returns it with the time to wait before the next attempt.
    fn note_failure(
        &self,
        host: &str,
        error: ClientError,
        asked: AskedObject<'_>,
    ) -> OriginFailure {
        let mut failing = lock(&self.failing);
        if failing.len() >= MAX_FAILING && !failing.contains_key(host) {
            failing.clear();
        }
        failing.entry(host.to_owned()).or_default().failure(error, asked)
    }
}

/// Returns the address to which a connection leads.
fn peer_of(connection: &Connection<'_>) -> io::Result<IpAddr> {
    connection.stream().peer_addr().map(|peer| peer.ip())
}

/// Returns the host of a URL, whose path and query may be secret.
pub(crate) fn host_of(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// Returns whether an address is globally reachable: not of this machine or a private network.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match embedded(v6) {
            Some(v4) => is_public_v4(v4),
            None => {
                !(v6.is_loopback()
                    || v6.is_unspecified()
                    || v6.is_multicast()
                    || v6.is_unique_local()
                    || v6.is_unicast_link_local())
            }
        },
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    let [first, second, ..] = v4.octets();
    // 100.64.0.0/10 is the shared address space of providers (RFC 6598).
    let is_shared = first == 100 && second & 0xc0 == 64;
    !(first == 0
        || is_shared
        || v4.is_loopback()
        || v4.is_private()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast())
}

/// Returns the IPv4 address that is embedded in an IPv6 one (RFC 4291 2.5.5.2, RFC 6052 2.1).
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [.., a, b, c, d] = v6.octets();
    v6.to_ipv4_mapped().or(translated.then_some(Ipv4Addr::new(a, b, c, d)))
}

/// The ports of http and https.
const DEFAULT_PORTS: [u16; 2] = [80, 443];

/// The maximum number of failing hosts that are remembered; with more, all are asked again.
const MAX_FAILING: usize = 1024;

/// The maximum number of redirects of one request.
const MAX_REDIRECTS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_the_named_ones() {
        for (rule, url, expected) in [
            ("cdn.test", "https://cdn.test/x", true),
            ("cdn.test", "http://CDN.test/x", true),
            ("cdn.test", "https://cdn.test:444/x", false),
            ("cdn.test:444", "https://cdn.test:444/x", true),
            ("cdn.test", "https://a.cdn.test/", false),
            ("*.cdn.test", "https://a.b.cdn.test/", true),
            ("*.cdn.test", "https://cdn.test/", false),
            ("*.cdn.test", "https://evilcdn.test/", false),
            ("127.0.0.1:80", "http://127.1/", true),
            ("[::1]", "http://[::1]/", true),
        ] {
            let rule: RedirectHost = rule.parse().unwrap();
            assert_eq!(rule.includes(&Url::parse(url).unwrap()), expected, "{rule:?} {url}");
        }
        for text in ["", "*", "*.", "http://a/", "a/b", "a:b", "a b", "*a", "u@a", "a:70000"] {
            assert!(text.parse::<RedirectHost>().is_err(), "{text}");
        }
    }

    #[test]
    fn addresses_of_machines_nearby_are_not_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in
            ["192.0.2.1", "100.128.0.1", "2001:db8::1", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }
}
