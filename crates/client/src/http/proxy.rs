//! The proxies that requests go through.

use std::net::IpAddr;

use url::Url;

/// The proxies that requests go through, as the common environment variables define them.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// The proxy for `http` URLs. A request for which a proxy is not reached over `http` fails.
    pub http: Option<Url>,
    /// The proxy for `https` URLs. It tunnels the connection (`CONNECT`) and cannot read it.
    pub https: Option<Url>,
    /// Servers that are contacted directly: `example.org` with all subdomains, `10.0.0.1`, or `*`
    /// for all, each optionally with `:PORT`; and networks such as `10.0.0.0/8`.
    pub except: Vec<String>,
}

impl Proxies {
    /// Returns the proxy for a URL, if there is one.
    pub(crate) fn of(&self, url: &Url) -> Option<&Url> {
        let proxy = if url.scheme() == "https" { &self.https } else { &self.http }.as_ref()?;
        (!self.except.iter().any(|name| is_meant(name.trim(), url))).then_some(proxy)
    }
}

/// Returns whether an exception matches the server of a URL.
fn is_meant(name: &str, url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    if name == "*" {
        return true;
    }
    if let Some((network, length)) = name.split_once('/') {
        return is_in_network(host, network.trim_matches(['[', ']']), length);
    }
    let is_address = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let (name, port) = match name.rsplit_once(':') {
        Some((name, port)) if !is_address(&format!("{name}:{port}")) => (name, port.parse().ok()),
        _ => (name, None),
    };
    if port.is_some() && port != url.port_or_known_default() {
        return false;
    }
    let name = name.trim_matches(['[', ']']).trim_end_matches('.');
    if let (Ok(name), Ok(host)) = (name.parse::<IpAddr>(), host.parse::<IpAddr>()) {
        return name == host;
    }
    let name = name.trim_start_matches("*.").trim_start_matches('.');
    let (name, host) = (name.to_ascii_lowercase(), host.to_ascii_lowercase());
    let is_below = host.strip_suffix(&name).is_some_and(|rest| rest.ends_with('.'));
    !name.is_empty() && (host == name || (is_below && !is_address(&host)))
}

/// Returns whether a host is an IP address whose first `length` bits equal those of `network`.
fn is_in_network(host: &str, network: &str, length: &str) -> bool {
    let (Ok(host), Ok(network), Ok(length)) =
        (host.parse(), network.parse(), length.parse::<u32>())
    else {
        return false;
    };
    let (differing, bits) = match (host, network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            ((host.to_bits() ^ network.to_bits()).into(), 32)
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => (host.to_bits() ^ network.to_bits(), 128),
        _ => return false,
    };
    length <= bits && differing.checked_shr(bits - length).unwrap_or(0_u128) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_its_own_proxy() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        let proxies = Proxies {
            http: Some(url("http://a:1/")),
            https: Some(url("http://b:2/")),
            except: vec!["d".to_owned()],
        };
        for (address, port) in [
            ("http://c/", Some(1)),
            ("https://c/", Some(2)),
            ("http://d/", None),
            ("https://d/", None),
        ] {
            let found = proxies.of(&url(address)).and_then(Url::port);
            assert_eq!(found, port, "{address}");
        }
    }

    #[test]
    fn exceptions_are_names_addresses_networks_ports_and_all() {
        let url = |text: &str| Url::parse(text).expect("a URL");
        for (name, address, is) in [
            ("example.org", "http://example.org/", true),
            ("example.org", "http://a.example.org/", true),
            (".example.org", "http://a.example.org/", true),
            ("*.example.org", "http://a.example.org/", true),
            ("example.org", "http://badexample.org/", false),
            ("example.org:8080", "http://example.org:8080/", true),
            ("example.org:8080", "http://example.org/", false),
            ("10.0.0.1", "http://10.0.0.1/", true),
            ("0.0.1", "http://10.0.0.1/", false),
            ("example.org.", "http://example.org/", true),
            ("example.org", "http://a.example.org./", true),
            ("::1", "http://[::1]:80/", true),
            ("0:0:0:0:0:0:0:1", "http://[::1]/", true),
            ("[FD00::0]:80", "http://[fd00::]/", true),
            ("10.0.0.0/8", "http://10.1.2.3:8080/", true),
            ("10.0.0.0/8", "http://11.0.0.0/", false),
            ("10.1.2.3/31", "http://10.1.2.2/", true),
            ("0.0.0.0/0", "http://10.0.0.1/", true),
            ("0.0.0.0/0", "http://[::1]/", false),
            ("10.0.0.0/33", "http://10.0.0.0/", false),
            ("10.0.0.0/", "http://10.0.0.0/", false),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("[fd00::]/8", "http://[fd12::1]/", true),
            ("fd00::/128", "http://[fd00::1]/", false),
            ("example.org/8", "http://example.org/", false),
            ("*", "http://a/", true),
            ("", "http://a/", false),
        ] {
            assert_eq!(is_meant(name, &url(address)), is, "{name} {address}");
        }
    }
}
