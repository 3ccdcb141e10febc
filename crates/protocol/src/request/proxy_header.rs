//! The header of the PROXY protocol, by which a proxy names the client of a connection: version 1,
//! a line of text, and version 2, which is binary.
//!
//! <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The client that a header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxiedClient {
    /// It belongs to a client at this address.
    Client(SocketAddr),
    /// It is the proxy's own, or the proxy does not say whose it is (`LOCAL`, `UNKNOWN`, and
    /// addresses that are not of TCP).
    Proxy,
}

/// The reason why bytes are not a header. The connection has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadHeader {
    /// They do not begin with either signature.
    #[error("connections of this proxy must begin with a PROXY protocol header")]
    Missing,
    /// The line of version 1 is longer than [`MAX_LINE`] or malformed.
    #[error("the PROXY protocol line is malformed")]
    Line,
    /// The version, the command or the family of a binary header is unknown.
    #[error("this version, command or family of the PROXY protocol is unknown")]
    Version,
    /// A binary header is shorter than its addresses, or longer than [`MAX_BINARY`].
    #[error("the PROXY protocol header is too short or too long")]
    Length,
}

/// Reads a header at the start of `bytes`, with its length; `None` if the header may be incomplete.
/// All of these bytes then belong to it.
///
/// # Errors
///
/// [`BadHeader`] as soon as the bytes cannot become a header.
pub fn parse(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, BadHeader> {
    if is_prefix(bytes, SIGNATURE) {
        return binary(bytes);
    }
    if is_prefix(bytes, b"PROXY ") {
        return line(bytes);
    }
    Err(BadHeader::Missing)
}

/// Returns whether `bytes` begin with `start`, as far as there are any.
fn is_prefix(bytes: &[u8], start: &[u8]) -> bool {
    let len = bytes.len().min(start.len());
    bytes[..len] == start[..len]
}

/// Reads version 1: `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443` and a line end.
fn line(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, BadHeader> {
    let seen = &bytes[..bytes.len().min(MAX_LINE)];
    let Some(end) = seen.iter().position(|&byte| byte == b'\n') else {
        return if bytes.len() < MAX_LINE { Ok(None) } else { Err(BadHeader::Line) };
    };
    let text = seen[..end].strip_suffix(b"\r").ok_or(BadHeader::Line)?;
    let text = str::from_utf8(text).map_err(|_| BadHeader::Line)?;
    let mut words = text.split(' ').skip(1);
    let is_v4 = match words.next() {
        // The rest of the line means nothing.
        Some("UNKNOWN") => return Ok(Some((ProxiedClient::Proxy, end + 1))),
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => return Err(BadHeader::Line),
    };
    let mut address = || words.next()?.parse().ok().filter(|at: &IpAddr| at.is_ipv4() == is_v4);
    let (source, _target) = (address().ok_or(BadHeader::Line)?, address().ok_or(BadHeader::Line)?);
    let mut port = || words.next().and_then(port);
    let (from, _to) = (port().ok_or(BadHeader::Line)?, port().ok_or(BadHeader::Line)?);
    match words.next() {
        None => {
            Ok(Some((ProxiedClient::Client(SocketAddr::new(source.to_canonical(), from)), end + 1)))
        }
        Some(_) => Err(BadHeader::Line),
    }
}

/// Reads a port, which has no leading zeros.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    if is_plain && !has_zeros { text.parse().ok() } else { None }
}

/// Reads version 2: the signature, version and command, family, length, addresses, and further
/// values that are skipped.
fn binary(bytes: &[u8]) -> Result<Option<(ProxiedClient, usize)>, BadHeader> {
    let Some(&[command, family, high, low]) = bytes.get(SIGNATURE.len()..FIXED) else {
        return Ok(None);
    };
    let len = usize::from(u16::from_be_bytes([high, low]));
    let is_local = match command {
        0x20 => true,
        0x21 => false,
        _ => return Err(BadHeader::Version),
    };
    if len > MAX_BINARY {
        return Err(BadHeader::Length);
    }
    let Some(rest) = bytes.get(FIXED..FIXED + len) else { return Ok(None) };
    let origin = match family {
        _ if is_local => ProxiedClient::Proxy,
        TCP4 => client::<4>(rest, |at| Ipv4Addr::from(at).into())?,
        TCP6 => client::<16>(rest, |at| Ipv6Addr::from(at).to_canonical())?,
        // Nothing, datagrams, or Unix sockets.
        0x00..=0x02 | 0x10 | 0x12 | 0x20 | 0x22 | 0x30..=0x32 => ProxiedClient::Proxy,
        // Reserved, and to be refused by receivers.
        _ => return Err(BadHeader::Version),
    };
    Ok(Some((origin, FIXED + len)))
}

/// Reads the source from two addresses of `N` bytes and two ports.
fn client<const N: usize>(
    rest: &[u8],
    address: impl FnOnce([u8; N]) -> IpAddr,
) -> Result<ProxiedClient, BadHeader> {
    let source = rest.first_chunk::<N>().ok_or(BadHeader::Length)?;
    let ports = rest.get(2 * N..2 * N + 4).ok_or(BadHeader::Length)?;
    let port = u16::from_be_bytes([ports[0], ports[1]]);
    Ok(ProxiedClient::Client(SocketAddr::new(address(*source), port)))
}

/// The start of a binary header.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The length of the part of a binary header that tells the length of the rest.
const FIXED: usize = 16;

/// The family of TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// The maximum length in bytes of the line of version 1, with its CRLF.
pub const MAX_LINE: usize = 107;

/// The maximum length of a binary header after its first 16 bytes: proxies add values to the
/// addresses, such as the name of the host. The protocol allows 65,535; nginx takes 4096 in all.
pub const MAX_BINARY: usize = 4096 - FIXED;
