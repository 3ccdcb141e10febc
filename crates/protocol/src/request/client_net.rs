//! The addresses that count as one client.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The unit by which limits and shares of clients are counted: an IPv4 address, the first half of
/// an IPv6 address, because a customer usually has all addresses with the same half, or all
/// clients of Unix sockets together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientNet(Option<IpAddr>);

impl ClientNet {
    /// Returns the unit that an address belongs to; an IPv4 address in IPv6 is that IPv4 address.
    #[must_use]
    pub fn of(address: Option<SocketAddr>) -> Self {
        Self(address.map(|address| match address.ip().to_canonical() {
            IpAddr::V6(ip) => {
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << INTERFACE_BITS)))
            }
            ip @ IpAddr::V4(_) => ip,
        }))
    }

    /// Returns the address, or the first one of the network; `None` for Unix sockets.
    #[must_use]
    pub fn address(self) -> Option<IpAddr> {
        self.0
    }
}

/// The bits of an IPv6 address that a customer chooses (RFC 4291, section 2.5.1).
const INTERFACE_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_is_one_client() {
        let of = |text: &str| ClientNet::of(Some(text.parse().unwrap()));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:192.0.2.1]:1"), of("192.0.2.1:9"));
        assert_ne!(of("[::ffff:192.0.2.1]:1"), of("[::ffff:192.0.2.2]:1"));
        assert_ne!(of("192.0.2.1:1"), ClientNet::of(None));
    }
}
