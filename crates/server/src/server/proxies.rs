//! The proxies that are trusted to name their clients.

use std::net::IpAddr;

/// Addresses of trusted proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<(IpAddr, u8)>,
    /// Whether every client of a Unix socket is trusted as a proxy.
    unix: bool,
}

impl TrustedProxies {
    /// Adds an address, a network such as `10.0.0.0/8`, or `unix` for all that connect to a unix
    /// socket.
    ///
    /// # Errors
    ///
    /// [`BadNetwork`] if the text is none of these.
    pub fn add(&mut self, text: &str) -> Result<(), BadNetwork> {
        if text == "unix" {
            self.unix = true;
            return Ok(());
        }
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let given: IpAddr = address.parse().map_err(|_| BadNetwork::Form)?;
        let bits = if given.is_ipv4() { 32 } else { 128 };
        let length: u8 = match length {
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
                length.parse().ok().filter(|length| *length <= bits).ok_or(BadNetwork::Form)?
            }
            Some(_) => return Err(BadNetwork::Form),
            None => bits,
        };
        // `::ffff:10.0.0.0/104` is `10.0.0.0/8`, the form in which client addresses are compared.
        let address = given.to_canonical();
        let is_mapped = address != given;
        let length =
            if is_mapped { length.checked_sub(96).ok_or(BadNetwork::Form)? } else { length };
        if masked(address, length) != address {
            return Err(BadNetwork::Host { network: masked(address, length), length });
        }
        self.networks.push((address, length));
        Ok(())
    }

    /// Returns whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Returns whether a connection from this address is one of a trusted proxy; `None` is a unix
    /// socket.
    #[must_use]
    pub fn trusts(&self, address: Option<IpAddr>) -> bool {
        address.map_or(self.unix, |address| self.has(address))
    }

    /// Returns whether an address is that of a trusted proxy.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|&(network, length)| masked(address, length) == network)
    }
}

/// The reason why a text names no trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// It is neither an address nor a network.
    #[error("write an address, a network such as 10.0.0.0/8, or unix")]
    Form,
    /// It is an address within a network.
    #[error("this is an address in the network {network}/{length}: write one or the other")]
    Host {
        /// The address of the network.
        network: IpAddr,
        /// The number of leading bits that all its addresses share.
        length: u8,
    },
}

/// Returns an address with all bits after the first `length` set to 0. One of the other family,
/// which has too few bits, is returned unchanged.
fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            IpAddr::V6((u128::from(address) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(texts: &[&str]) -> TrustedProxies {
        let mut proxies = TrustedProxies::default();
        assert!(texts.iter().all(|text| proxies.add(text).is_ok()), "{texts:?}");
        proxies
    }

    #[test]
    fn networks_have_their_addresses_and_no_others() {
        let proxies = proxies(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/33", "::1"]);
        for (address, is_trusted) in [
            ("10.255.0.1", true),
            ("::ffff:10.1.2.3", true),
            ("11.0.0.0", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:7fff::1", true),
            ("2001:db8:8000::1", false),
            ("::1", true),
            ("::2", false),
            ("127.0.0.1", false),
        ] {
            let address: Option<IpAddr> = address.parse().ok();
            assert_eq!(proxies.trusts(address), is_trusted, "{address:?}");
        }
        assert!(!proxies.trusts(None) && !proxies.is_empty());
    }

    #[test]
    fn an_address_of_ipv4_may_be_written_as_one_of_ipv6() {
        assert_eq!(proxies(&["::ffff:10.0.0.0/104"]), proxies(&["10.0.0.0/8"]));
        assert!(proxies(&["::ffff:10.1.2.3"]).has("10.1.2.3".parse().unwrap()));
        assert!(TrustedProxies::default().add("::ffff:10.0.0.0/95").is_err());
    }

    #[test]
    fn every_address_of_a_family_is_one_network() {
        let proxies = proxies(&["0.0.0.0/0", "unix"]);
        assert!(proxies.trusts("1.2.3.4".parse().ok()) && proxies.trusts(None));
        assert!(!proxies.trusts("2001:db8::1".parse().ok()));
        assert!(TrustedProxies::default().is_empty());
        assert!(!TrustedProxies::default().trusts(None));
    }

    #[test]
    fn invalid_networks_are_refused() {
        for text in ["", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0/8", "a", "10.0.0.0/+8"] {
            assert_eq!(TrustedProxies::default().add(text), Err(BadNetwork::Form), "{text}");
        }
        let error = TrustedProxies::default().add("10.0.0.1/8").map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("10.0.0.0/8")));
    }
}
