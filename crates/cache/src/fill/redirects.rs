//! Follows allowed redirects of an origin.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use underpass_client::{
    ClientError, HttpClient, OpenResponse, Request, UnusableUrl, Url, without_credentials,
};

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

/// Follows redirects to hosts that the operator has allowed; any other redirect is returned. The
/// other host receives neither credentials nor clients' fields.
///
/// # Errors
///
/// [`ResponseFault::Redirected`] for a redirect from https to http, or from a public into a
/// private network; others if the host does not answer.
pub(super) fn follow(
    client: &HttpClient<'static>,
    mut answer: OpenResponse<'static>,
    request: &Request<'_>,
    hosts: &[RedirectHost],
) -> Result<(OpenResponse<'static>, bool), CacheError> {
    let is_inside = |answer: &OpenResponse<'_>| {
        answer.connection.stream().peer_addr().is_ok_and(|peer| !is_public(peer.ip()))
    };
    let may_go_inside = is_inside(&answer);
    for number in 0..=MAX_REDIRECTS {
        let next = answer
            .response
            .redirect(&answer.url)
            .map_err(|error| CacheError::new(ResponseFault::Invalid, error))?;
        let Some(next) = next.filter(|next| hosts.iter().any(|host| host.includes(next))) else {
            return Ok((answer, number > 0));
        };
        if number == MAX_REDIRECTS {
            break;
        }
        if next.scheme() != "https" && answer.url.scheme() == "https" {
            return Err(ClientError::from(UnusableUrl::Downgrade { to: host_of(&next) }).into());
        }
        let next = without_credentials(&next);
        let mut connection = client.connect(&next).map_err(CacheError::from)?;
        // The name may resolve differently each time, so the address of the connection is checked.
        let peer = connection
            .stream()
            .peer_addr()
            .map_err(|error| CacheError::new(ConnectionFault::Unreachable, error))?;
        if !may_go_inside && !is_public(peer.ip()) {
            let host = host_of(&next);
            let source = io::Error::other(format!("{host} is in a private network"));
            return Err(CacheError::new(ResponseFault::Redirected, source));
        }
        let response = connection.exchange(client, request, &next, false);
        let response = response.map_err(CacheError::from)?;
        answer = OpenResponse { connection, response, url: next, is_trusted: false };
    }
    Err(ClientError::from(UnusableUrl::TooManyRedirects { max: MAX_REDIRECTS }).into())
}

/// Returns the host of a URL, whose path and query may be secret.
pub(super) fn host_of(url: &Url) -> String {
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
