//! The addresses under which other devices reach a server that listens on every address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// An address of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachableAddress {
    /// The address with the port of the server.
    pub address: SocketAddr,
    /// The name of the interface.
    pub interface: String,
}

/// Returns the addresses of this machine that clients can use for a server at `bound`, the one of
/// the default route first. There are none if the server is bound to a single address, or if the
/// interfaces cannot be listed.
///
/// Left out are interfaces that are down, loopback, and link-local addresses, which mean nothing to
/// another device without its own name of the interface.
#[must_use]
pub fn reachable_addresses(bound: SocketAddr) -> Vec<ReachableAddress> {
    if !bound.ip().is_unspecified() {
        return Vec::new();
    }
    let Ok(interfaces) = getifaddrs() else { return Vec::new() };
    let mut found: Vec<ReachableAddress> = interfaces
        .filter(|each| each.flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING))
        .filter(|each| !each.flags.contains(InterfaceFlags::IFF_LOOPBACK))
        .filter_map(|each| {
            let address = each.address?;
            let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => IpAddr::V4(v4.ip()),
                (_, Some(v6)) => IpAddr::V6(v6.ip()),
                _ => return None,
            };
            let address = SocketAddr::new(ip, bound.port());
            is_useful(ip, bound)
                .then_some(ReachableAddress { address, interface: each.interface_name })
        })
        .collect();
    let usual = usual_address(bound);
    found.sort_by_key(|each| (Some(each.address.ip()) != usual, !is_private(each.address.ip())));
    found.dedup_by(|a, b| a.address == b.address);
    found
}

/// Returns whether a client elsewhere can use an address for a server at `bound`.
fn is_useful(ip: IpAddr, bound: SocketAddr) -> bool {
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    ip.is_ipv4() == bound.is_ipv4() && !ip.is_loopback() && !ip.is_unspecified() && !is_link_local
}

/// Returns whether an address is one of a network at home or at work.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_private(),
        IpAddr::V6(ip) => ip.is_unique_local(),
    }
}

/// Returns the source address of packets to the Internet. No packet is sent.
fn usual_address(bound: SocketAddr) -> Option<IpAddr> {
    // Documentation addresses, RFC 5737 and RFC 3849.
    let far: SocketAddr = if bound.is_ipv4() {
        (Ipv4Addr::new(192, 0, 2, 1), 9).into()
    } else {
        "[2001:db8::1]:9".parse().ok()?
    };
    let socket = UdpSocket::bind(SocketAddr::new(bound.ip(), 0)).ok()?;
    socket.connect(far).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useful_addresses_are_reachable_from_other_machines() {
        let socket = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (v4, v6) = (socket("0.0.0.0:80"), socket("[::]:80"));
        for (ip, bound, expected) in [
            ("192.168.1.7", v4, true),
            ("192.168.1.7", v6, false),
            ("127.0.0.1", v4, false),
            ("169.254.3.4", v4, false),
            ("2001:db8::7", v6, true),
            ("fd00::7", v6, true),
            ("fe80::7", v6, false),
            ("::1", v6, false),
        ] {
            assert_eq!(is_useful(ip.parse().expect("an address"), bound), expected, "{ip}");
        }
        assert_eq!(reachable_addresses(socket("127.0.0.1:80")), []);
        assert!(reachable_addresses(v4).iter().all(|each| each.address.port() == 80));
    }
}
