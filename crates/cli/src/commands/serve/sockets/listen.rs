//! Parses the values of `--bind` as addresses.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;
use underpass_server::Address;

use crate::failure::{Failure, Result};

/// Returns the addresses that were typed; loopback if none was.
pub(crate) fn addresses(binds: &[String], port: u16) -> Result<Vec<Address>> {
    let mut addresses = Vec::new();
    let default = [DEFAULT.to_owned()];
    for bind in if binds.is_empty() { &default } else { binds } {
        for address in resolve(bind, port, look_up)? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    for address in &addresses {
        if let Address::Unix(path) = address {
            refuse_file(path)?;
        }
    }
    Ok(addresses)
}

/// Checks the form of an address, without looking up its name.
pub(crate) fn check(bind: &str) -> Result<()> {
    resolve(bind, 1, |_, _| Ok(Vec::new())).map(drop)
}

fn resolve(
    bind: &str,
    port: u16,
    look_up: impl Fn(&str, u16) -> Result<Vec<Address>>,
) -> Result<Vec<Address>> {
    if let Some(path) = bind.strip_prefix("unix:") {
        return match path {
            "" => Err(unknown(bind)),
            path => Ok(vec![Address::Unix(path.into())]),
        };
    }
    let bare = bind.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(bind);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![Address::Tcp(SocketAddr::new(address, port))]);
    }
    if let Ok(address) = bind.parse() {
        return Ok(vec![Address::Tcp(address)]);
    }
    if bare.contains('%') {
        let (host, port) = match bare.rsplit_once("]:") {
            Some((host, text)) => {
                let host = host.strip_prefix('[').ok_or_else(|| unknown(bind))?;
                (host, text.parse().map_err(|_| unknown(bind))?)
            }
            None => (bare, port),
        };
        return look_up(host, port);
    }
    let (host, port) = match bind.rsplit_once(':') {
        Some((host, text)) => (host, text.parse().map_err(|_| unknown(bind))?),
        None => (bind, port),
    };
    if host.is_empty() && bind.starts_with(':') {
        return every_address(port);
    }
    if host.is_empty() || host.contains([':', '/', ' ']) {
        return Err(unknown(bind));
    }
    // getaddrinfo(3) takes a number for an IPv4 address.
    if bind != "0" && bind.bytes().all(|byte| byte.is_ascii_digit()) {
        bind.parse::<u16>().map_err(|_| unknown(bind))?;
        let how = format!("it is a port: write --port {bind}, or --bind :{bind} for every address");
        return Err(Failure::value(format_args!("--bind '{bind}' is not an address"), how));
    }
    look_up(host, port)
}

/// Returns the addresses of a name, or of an address with a zone: `fe80::1%eth0`, `fe80::1%2`.
fn look_up(host: &str, port: u16) -> Result<Vec<Address>> {
    let found = (host, port).to_socket_addrs().map_err(|source| Failure::Network {
        action: "looking up",
        address: host.to_owned(),
        source,
    })?;
    Ok(found.map(Address::Tcp).collect())
}

/// Returns every address of this machine at a port: those of IPv6 too, where it has any.
fn every_address(port: u16) -> Result<Vec<Address>> {
    let has_ipv6 = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => true,
        Err(error) => !is_without(&error),
    };
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let ipv6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if !has_ipv6 {
        return Ok(vec![Address::Tcp(ipv4)]);
    }
    if port == 0 {
        return Err(Failure::value(
            "--bind :0",
            "it would be two ports: write 0.0.0.0:0 or [::]:0",
        ));
    }
    Ok(vec![Address::Tcp(ipv4), Address::Tcp(ipv6)])
}

/// Returns whether the machine has no addresses of this kind.
fn is_without(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL))
}

/// Fails if the path is taken by something other than a socket, which the kernel would report
/// as "in use", as if a server listened there.
fn refuse_file(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => Err(Failure::Network {
            action: "listening on",
            address: format!("unix:{}", path.display()),
            source: Errno::NOTSOCK.into(),
        }),
        // Listening reports all other errors.
        _ => Ok(()),
    }
}

fn unknown(bind: &str) -> Failure {
    let how = "write 0.0.0.0, ::1, a host name, HOST:PORT, :PORT or unix:PATH";
    Failure::value(format_args!("--bind '{bind}' is not an address"), how)
}

/// Only this machine, unless the operator chooses another address.
const DEFAULT: &str = "127.0.0.1";

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bind: &str) -> Vec<String> {
        let show = |address| match address {
            Address::Tcp(at) => at.to_string(),
            Address::Unix(path) => format!("unix:{}", path.display()),
        };
        resolve(bind, 5000, look_up)
            .map(|found| found.into_iter().map(show).collect())
            .unwrap_or_default()
    }

    #[test]
    fn an_address_may_have_a_port_of_its_own() {
        for (bind, address) in [
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
            assert_eq!(shown(bind), [address], "{bind}");
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
    fn malformed_bind_addresses_are_refused() {
        for bind in [
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
            "fe80::1%none",
        ] {
            assert!(shown(bind).is_empty(), "{bind}");
        }
    }

    #[test]
    fn loopback_is_the_default() {
        let loopback = Address::Tcp(([127, 0, 0, 1], 5000).into());
        assert_eq!(addresses(&[], 5000).ok(), Some(vec![loopback]));
    }
}
