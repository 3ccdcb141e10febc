//! The fields in which proxies name the client of a request: `Forwarded` (RFC 7239) and
//! `X-Forwarded-For`, with `X-Forwarded-Proto`.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use super::parse::Request;

/// The facts about a request that trusted proxies add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// The address of the client; its port is 0 if it is not known. `None` if no field names one.
    pub client: Option<SocketAddr>,
    /// Whether the client used https, if a field says so.
    pub is_https: Option<bool>,
}

/// `Forwarded` and `X-Forwarded-For` name different clients: proxies set one of them and pass on
/// the other, so one of the two comes from the client itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

/// Reads the fields of a request that came from a trusted proxy: the client is the last address
/// that `is_trusted` does not know, or the first one if it knows all.
///
/// # Errors
///
/// [`Contradiction`] if the two fields disagree.
pub fn forwarded(
    request: &Request<'_, '_>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> Result<Forwarded, Contradiction> {
    let elements = request.fields("forwarded").flat_map(|field| split(field, b','));
    let elements: Vec<_> = elements.collect();
    // A field that names no client, such as `proto=https`, does not contradict the other field.
    let names_client = elements.iter().any(|element| parameter(element, "for").is_some());
    let standard = names_client.then(|| {
        let names = elements.iter().rev().map(|element| parameter(element, "for"));
        let (client, hops) = last_untrusted(names, &is_trusted);
        // The proxy that named the client is the one that knows the scheme.
        let element = hops.checked_sub(1).and_then(|hop| elements.iter().rev().nth(hop));
        let proto = element.and_then(|element| parameter(element, "proto"));
        Forwarded { client, is_https: proto.and_then(|proto| is_https(&proto)) }
    });
    let common = request.has("x-forwarded-for").then(|| {
        let names: Vec<_> =
            request.fields("x-forwarded-for").flat_map(|field| split(field, b',')).collect();
        let names = names.iter().rev().map(|name| Some(Cow::Borrowed(*name)));
        last_untrusted(names, &is_trusted).0
    });
    let proto = request.fields("x-forwarded-proto").flat_map(|field| split(field, b',')).last();
    let mut found = match (standard, common) {
        (Some(standard), Some(common)) => {
            let ip = |client: Option<SocketAddr>| client.map(|at| at.ip());
            if ip(standard.client) != ip(common) {
                return Err(Contradiction);
            }
            standard
        }
        (Some(standard), None) => standard,
        (None, client) => Forwarded { client: client.flatten(), is_https: None },
    };
    if !names_client {
        found.is_https = proto.and_then(is_https);
    }
    Ok(found)
}

/// Returns the first address of `names`, which begin with the last one, that is not trusted, and
/// how many were read. At a name that is not an address, the address before it counts.
fn last_untrusted<'n>(
    names: impl Iterator<Item = Option<Cow<'n, [u8]>>>,
    is_trusted: impl Fn(IpAddr) -> bool,
) -> (Option<SocketAddr>, usize) {
    let (mut client, mut hops) = (None, 0);
    for name in names {
        let Some(address) = name.and_then(|name| address(&name)) else { break };
        client = Some(address);
        hops += 1;
        if !is_trusted(address.ip()) {
            break;
        }
    }
    (client, hops)
}

/// Reads an address with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`,
/// `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = str::from_utf8(text).ok()?.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let ip = bare.map_or_else(|| text.parse().ok(), |text| text.parse().ok().map(IpAddr::V6));
    let address = match ip {
        Some(ip) => SocketAddr::new(ip, 0),
        None => text.parse::<SocketAddr>().ok().or_else(|| obfuscated_port(text))?,
    };
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Reads an address whose port is a made-up name (RFC 7239 6.3).
fn obfuscated_port(text: &str) -> Option<SocketAddr> {
    let (address, _) = text.split_once(":_")?;
    let bare = address.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    Some(SocketAddr::new(bare.unwrap_or(address).parse().ok()?, 0))
}

/// Returns a parameter of an element of `Forwarded`, without quotes (RFC 7239 4).
fn parameter<'e>(element: &'e [u8], wanted: &str) -> Option<Cow<'e, [u8]>> {
    split(element, b';').find_map(|pair| {
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (pair[..equals].trim_ascii(), pair[equals + 1..].trim_ascii());
        name.eq_ignore_ascii_case(wanted.as_bytes()).then(|| unquoted(value))
    })
}

/// Removes the quotes of a quoted string, and its backslashes (RFC 9110 5.6.4).
fn unquoted(value: &[u8]) -> Cow<'_, [u8]> {
    let [b'"', inside @ .., b'"'] = value else { return Cow::Borrowed(value) };
    if !inside.contains(&b'\\') {
        return Cow::Borrowed(inside);
    }
    let mut out = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter();
    while let Some(&byte) = bytes.next() {
        let byte = if byte == b'\\' { bytes.next().copied() } else { Some(byte) };
        out.extend(byte);
    }
    Cow::Owned(out)
}

/// Splits at a byte outside quoted strings; the parts have no spaces around them.
///
/// It begins at the end, where the nearest proxy has written: an unclosed quote from a client must
/// not hide what follows.
fn split(text: &[u8], separator: u8) -> impl DoubleEndedIterator<Item = &[u8]> {
    let (mut parts, mut end, mut is_quoted) = (Vec::new(), text.len(), false);
    for (at, &byte) in text.iter().enumerate().rev() {
        let before = text[..at].iter().rev();
        if byte == b'"' {
            let slashes = before.take_while(|&&byte| byte == b'\\').count();
            is_quoted = !is_quoted || slashes % 2 == 1;
        } else if byte == separator && !is_quoted {
            parts.push(&text[at + 1..end]);
            end = at;
        }
    }
    parts.push(&text[..end]);
    parts.into_iter().rev().map(<[u8]>::trim_ascii).filter(|part| !part.is_empty())
}

/// Returns whether a scheme is https, if it is one that is known.
fn is_https(scheme: &[u8]) -> Option<bool> {
    if scheme.eq_ignore_ascii_case(b"https") {
        Some(true)
    } else if scheme.eq_ignore_ascii_case(b"http") {
        Some(false)
    } else {
        None
    }
}
