//! The host names of the server, checked to prevent DNS rebinding: a page could make a browser send
//! requests to this server under the page's own host name, and the browser would treat the
//! responses as part of that page.
//!
//! Only requests without a password are checked, since a browser keeps passwords for each name.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use underpass_protocol::request::host;

/// The host names of a server, besides `localhost` and addresses.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The names in the settings.
    allowed: Vec<String>,
    /// The names of this machine.
    own: Vec<String>,
    /// Whether every name is allowed.
    allows_all: bool,
}

impl Hosts {
    /// Reads the names in the settings and those of this machine.
    pub(crate) fn new(allowed: &[String]) -> Self {
        let node = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let first = node.split('.').next().unwrap_or_default().to_owned();
        let own = [node.clone(), format!("{first}.local"), first];
        Self {
            allows_all: allowed.iter().any(|name| name == "*"),
            allowed: allowed
                .iter()
                .map(|name| bare(name.as_bytes()).to_ascii_lowercase())
                .collect(),
            own: own
                .into_iter()
                .filter(|name| !name.starts_with('.') && !name.is_empty())
                .collect(),
        }
    }

    /// Returns the name in an authority if it is not one of the server's.
    ///
    /// Names are always checked on loopback addresses, and on all others if there are names in the
    /// settings.
    pub(crate) fn unknown_name(
        &self,
        authority: &[u8],
        is_to_loopback: impl FnOnce() -> bool,
    ) -> Option<String> {
        if self.allows(authority) {
            return None;
        }
        (!self.allowed.is_empty() || is_to_loopback()).then(|| bare(authority).into_owned())
    }

    /// Returns whether the host in an authority is allowed at every address of this machine.
    pub(crate) fn allows(&self, authority: &[u8]) -> bool {
        self.allows_all || is_plain(authority) || self.has(&bare(authority))
    }

    /// Returns whether a name is in the settings or belongs to this machine.
    fn has(&self, name: &str) -> bool {
        let mut known = self.allowed.iter().chain(&self.own);
        known.any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Returns whether the host is `localhost` or an IP address: DNS can rebind neither.
fn is_plain(authority: &[u8]) -> bool {
    is_localhost(authority) || address(authority).is_some()
}

/// Returns whether the host is `localhost` or a loopback address.
pub(crate) fn is_loopback(authority: &[u8]) -> bool {
    let address = address(authority);
    is_localhost(authority) || address.is_some_and(|address| address.to_canonical().is_loopback())
}

/// Returns whether the host is `localhost` or a name below it.
fn is_localhost(authority: &[u8]) -> bool {
    let host = host(authority);
    let host = host.strip_suffix(b".").unwrap_or(host);
    host.eq_ignore_ascii_case(b"localhost")
        || host.len().checked_sub(b".localhost".len()).is_some_and(|at| {
            // RFC 6761 6.3: browsers do not query a name server for these.
            host[at..].eq_ignore_ascii_case(b".localhost")
        })
}

/// Returns the host as an address; `None` if it is a name.
fn address(authority: &[u8]) -> Option<IpAddr> {
    let host = host(authority);
    if let [b'[', address @ .., b']'] = host {
        return Some(str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?.into());
    }
    let host = host.strip_suffix(b".").unwrap_or(host);
    Some(str::from_utf8(host).ok()?.parse::<Ipv4Addr>().ok()?.into())
}

/// Returns the host as text, without a trailing dot.
fn bare(authority: &[u8]) -> Cow<'_, str> {
    let host = host(authority);
    String::from_utf8_lossy(host.strip_suffix(b".").unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_are_plain() {
        for plain in [
            "localhost",
            "LocalHost:80",
            "localhost.",
            "a.b.localhost:1",
            "127.0.0.1",
            "10.0.0.1:8080",
            "[::1]",
            "[2001:db8::1]:443",
        ] {
            assert!(is_plain(plain.as_bytes()), "{plain}");
            let is_address = plain.starts_with("10.") || plain.starts_with("[2001");
            assert_ne!(is_loopback(plain.as_bytes()), is_address, "{plain}");
        }
        for name in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "notlocalhost",
            "[::1",
            "[evil]",
            "1.2.3",
        ] {
            assert!(!is_plain(name.as_bytes()) && !is_loopback(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn names_have_no_case_no_port_and_no_last_dot() {
        let hosts = Hosts::new(&["Files.Example:8080".to_owned()]);
        assert!(hosts.has(&bare(b"files.EXAMPLE.:5000")));
        assert!(!hosts.has(&bare(b"files.example.org")) && !hosts.allows_all);
        assert!(Hosts::new(&["*".to_owned()]).allows_all);
    }
}
