//! The names of this machine.

use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use rustix::system::uname;

/// Returns the names of this machine: its host name, `localhost`, and the addresses of its
/// interfaces, except link-local ones.
pub(super) fn names_of_this_host() -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    let host = uname().nodename().to_string_lossy().to_ascii_lowercase();
    if !host.is_empty() && host != "localhost" && host != "(none)" {
        names.insert(0, host);
    }
    let address = |interface: InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
    };
    let mut addresses: Vec<IpAddr> =
        getifaddrs().into_iter().flatten().filter_map(address).collect();
    addresses.extend([IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])]);
    addresses.retain(|address| match address {
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_unspecified(),
    });
    addresses.sort_unstable();
    addresses.dedup();
    names.extend(addresses.iter().map(ToString::to_string));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_at_least_called_localhost() {
        let names = names_of_this_host();
        for name in ["localhost", "127.0.0.1", "::1"] {
            assert_eq!(names.iter().filter(|one| *one == name).count(), 1, "{name} in {names:?}");
        }
        assert!(names.iter().all(|name| !name.starts_with("fe80:")), "{names:?}");
    }
}
