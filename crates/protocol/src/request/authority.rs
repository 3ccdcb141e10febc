//! Hosts and ports, in `Host` and in absolute targets.

/// Splits an absolute target, `http://host/path?query`, into authority and the rest (RFC 9112
/// 3.2.2).
#[must_use]
pub fn split_absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = |scheme: &[u8]| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after(b"http://").or_else(|| after(b"https://"))?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    Some(rest.split_at(end.unwrap_or(rest.len())))
}

/// Returns whether an absolute address with this authority names the server that was addressed as
/// `own`. Hosts have no case, and the port of the scheme may be omitted (RFC 9110 4.2.3).
pub(crate) fn is_same_authority(address: &[u8], authority: &[u8], own: &[u8]) -> bool {
    let default = if is_https(address) { &b":443"[..] } else { b":80" };
    let bare = |authority| <[u8]>::strip_suffix(authority, default).unwrap_or(authority);
    bare(authority).eq_ignore_ascii_case(bare(own))
}

/// Returns whether the scheme of an absolute address is https.
pub(crate) fn is_https(address: &[u8]) -> bool {
    address.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"https:"))
}

/// Returns whether this is `host` or `host:port` (RFC 3986 3.2.2, 3.2.3); the host may be empty.
pub(crate) fn is_authority(authority: &[u8]) -> bool {
    let (is_host, rest) = match authority {
        [b'[', inside @ ..] => {
            let Some(end) = inside.iter().position(|&byte| byte == b']') else { return false };
            (is_literal(&inside[..end]), &inside[end + 1..])
        }
        _ => {
            // Nearly every name has plain characters only, and is read once.
            let plain = authority.iter().take_while(|byte| is_plain(**byte)).count();
            let (mut is_host, mut end) = (true, plain);
            if authority.get(plain) == Some(&b'%') {
                let colon = authority.iter().position(|&byte| byte == b':');
                end = colon.unwrap_or(authority.len());
                is_host = is_name(&authority[..end]);
            }
            (is_host, &authority[end..])
        }
    };
    let is_port = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_host && is_port
}

/// Returns whether this is a name, or an IPv4 address: each `%` with its two digits.
fn is_name(mut name: &[u8]) -> bool {
    while let [byte, rest @ ..] = name {
        name = match (byte, rest) {
            (b'%', [high, low, rest @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                rest
            }
            (byte, rest) if is_plain(*byte) => rest,
            _ => return false,
        };
    }
    true
}

/// Returns whether this is an IPv6 address, or one of a future version: `v1.` and its characters.
fn is_literal(inside: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(inside) else { return false };
    if let Some((version, address)) = text.strip_prefix(['v', 'V']).and_then(|v| v.split_once('.'))
    {
        return !version.is_empty()
            && version.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !address.is_empty()
            && address.bytes().all(|byte| byte == b':' || is_plain(byte));
    }
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Returns whether the byte may stand in a name as it is.
fn is_plain(byte: u8) -> bool {
    PLAIN[usize::from(byte)]
}

/// The answer for each byte: every request has a name to check.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        plain[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut marks: &[u8] = b"-._~!$&'()*+,;=";
    while let [mark, rest @ ..] = marks {
        plain[*mark as usize] = true;
        marks = rest;
    }
    plain
};

/// Returns the host of an authority, without its port.
#[must_use]
pub fn host(authority: &[u8]) -> &[u8] {
    let end = match authority {
        [b'[', ..] => authority.iter().position(|&byte| byte == b']').map(|end| end + 1),
        _ => authority.iter().position(|&byte| byte == b':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}
