//! The addresses to listen on, as a command line or a configuration names them.

use std::fmt::{self, Display};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::PathBuf;

use rustix::io::Errno;
use underpass_engine::hint::in_words;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address of this machine, and a port; 0 for any free port.
    Tcp(SocketAddr),
    /// A path in the file system.
    Unix(PathBuf),
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The reason why a text names no addresses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The name cannot be looked up.
    #[error("looking up {host}: {}", in_words(.source))]
    LookUp {
        /// The name, or an address with its zone.
        host: String,
        /// The system's error.
        source: io::Error,
    },
    /// It is neither an address nor a host name.
    #[error("it is neither an address nor a host name")]
    Malformed,
    /// It is a port without a colon, which getaddrinfo(3) takes for an IPv4 address.
    #[error("it is a port: write a colon before it for every address")]
    Port,
    /// Any free port of every address would be two ports.
    #[error("it would be two ports")]
    TwoPorts,
}

/// What a text names.
#[derive(Debug)]
enum Named<'t> {
    One(Address),
    /// Every address of this machine at a port.
    Every(u16),
    Host(&'t str, u16),
}

impl Address {
    /// Returns the addresses that a text names: an address or a host name, with a port or at `port`,
    /// every address (`:PORT`), or `unix:PATH`. Names are looked up.
    ///
    /// # Errors
    ///
    /// [`AddressError::LookUp`] if getaddrinfo(3) fails; other kinds if the text is none of these.
    ///
    /// # Examples
    ///
    /// ```
    /// use underpass_server::Address;
    ///
    /// let found = Address::resolve("[::1]:8080", 5000)?;
    /// assert_eq!(found, [Address::Tcp("[::1]:8080".parse()?)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resolve(text: &str, port: u16) -> Result<Vec<Self>, AddressError> {
        match Named::parse(text, port)? {
            Named::One(address) => Ok(vec![address]),
            Named::Every(port) => every_address(port),
            Named::Host(host, port) => {
                let fail = |source| AddressError::LookUp { host: host.to_owned(), source };
                let found = (host, port).to_socket_addrs().map_err(fail)?;
                Ok(found.map(Self::Tcp).collect())
            }
        }
    }

    /// Checks the form of a text that [`resolve`](Self::resolve) takes, without looking up a name.
    ///
    /// # Errors
    ///
    /// Those of [`resolve`](Self::resolve), except for names that do not exist.
    pub fn check(text: &str) -> Result<(), AddressError> {
        match Named::parse(text, 1)? {
            Named::Every(port) => every_address(port).map(drop),
            Named::One(_) | Named::Host(..) => Ok(()),
        }
    }
}

impl<'t> Named<'t> {
    fn parse(text: &'t str, port: u16) -> Result<Self, AddressError> {
        let wrong = || AddressError::Malformed;
        if let Some(path) = text.strip_prefix("unix:") {
            let address = Self::One(Address::Unix(path.into()));
            return if path.is_empty() { Err(wrong()) } else { Ok(address) };
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::One(Address::Tcp(SocketAddr::new(address, port))));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::One(Address::Tcp(address)));
        }
        // An address with a zone: `fe80::1%eth0`, `fe80::1%2`.
        if bare.contains('%') {
            let Some((host, port)) = bare.rsplit_once("]:") else {
                return Ok(Self::Host(bare, port));
            };
            let host = host.strip_prefix('[').ok_or_else(wrong)?;
            return Ok(Self::Host(host, port.parse().map_err(|_| wrong())?));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (text, port),
        };
        if host.is_empty() && text.starts_with(':') {
            return Ok(Self::Every(port));
        }
        if host.is_empty() || host.contains([':', '/', ' ']) {
            return Err(wrong());
        }
        if text != "0" && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(text.parse::<u16>().map_or_else(|_| wrong(), |_| AddressError::Port));
        }
        Ok(Self::Host(host, port))
    }
}

/// Returns every address of this machine at a port: those of IPv6 too, where it has any.
fn every_address(port: u16) -> Result<Vec<Address>, AddressError> {
    let has_ipv6 = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => true,
        Err(error) => !is_without(&error),
    };
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let ipv6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match (has_ipv6, port) {
        (false, _) => Ok(vec![Address::Tcp(ipv4)]),
        (true, 0) => Err(AddressError::TwoPorts),
        (true, _) => Ok(vec![Address::Tcp(ipv4), Address::Tcp(ipv6)]),
    }
}

/// Returns whether the machine has no addresses of this kind.
fn is_without(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let found = Address::resolve(text, 5000).unwrap_or_default();
        found.iter().map(Address::to_string).collect()
    }

    #[test]
    fn an_address_may_have_a_port_of_its_own() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:5000"),
            ("127.0.0.1:81", "127.0.0.1:81"),
            ("::1", "[::1]:5000"),
            ("[::1]", "[::1]:5000"),
            ("[::1]:0", "[::1]:0"),
            ("fe80::1%lo", "[fe80::1%1]:5000"),
            ("fe80::1%1", "[fe80::1%1]:5000"),
            ("[fe80::1%1]", "[fe80::1%1]:5000"),
            ("[fe80::1%1]:81", "[fe80::1%1]:81"),
            ("unix:/run/a:b", "unix:/run/a:b"),
        ] {
            assert_eq!(shown(text), [address], "{text}");
        }
    }

    #[test]
    fn a_port_alone_is_that_of_every_address() {
        let all = shown(":81");
        assert_eq!(all.first().map(String::as_str), Some("0.0.0.0:81"));
        assert!(all.iter().skip(1).all(|address| address == "[::]:81"), "{all:?}");
    }

    #[test]
    fn a_host_stands_for_its_addresses() {
        assert!(shown("localhost:81").contains(&"127.0.0.1:81".to_owned()));
    }

    #[test]
    fn malformed_addresses_are_refused() {
        for text in [
            "",
            ":",
            ":x",
            "unix:",
            "1::2::3",
            "host:port",
            "host:65536",
            "/run/socket",
            "a b",
            "fe80::1%1]:81",
        ] {
            assert!(matches!(Address::check(text), Err(AddressError::Malformed)), "{text}");
        }
        assert!(matches!(Address::check("8080"), Err(AddressError::Port)));
        let unknown = Address::resolve("fe80::1%none", 1);
        assert!(matches!(unknown, Err(AddressError::LookUp { .. })), "{unknown:?}");
    }
}
