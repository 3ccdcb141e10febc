//! Hosts and ports, in `Host` and in absolute targets.

/// Authority and the rest of an absolute target, `http://host/path?query` (RFC 9112 3.2.2).
pub(crate) fn split_absolute(target: &[u8]) -> Option<(&[u8], &[u8])> {
    let after = |scheme: &[u8]| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    };
    let rest = after(b"http://").or_else(|| after(b"https://"))?;
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    Some(rest.split_at(end.unwrap_or(rest.len())))
}

/// Whether an absolute address, of which this is the authority, names the server that was asked
/// under `own`. Hosts have no case, and the port of the scheme need not be written (RFC 9110 4.2.3).
pub(crate) fn is_same_authority(address: &[u8], authority: &[u8], own: &[u8]) -> bool {
    let default = if is_https(address) { &b":443"[..] } else { b":80" };
    let bare = |authority| <[u8]>::strip_suffix(authority, default).unwrap_or(authority);
    bare(authority).eq_ignore_ascii_case(bare(own))
}

/// Whether an absolute address is one of TLS.
pub(crate) fn is_https(address: &[u8]) -> bool {
    address.get(..6).is_some_and(|start| start.eq_ignore_ascii_case(b"https:"))
}

/// Whether this is `host` or `host:port` (RFC 3986 3.2.2, 3.2.3); an empty host is one.
pub(crate) fn is_authority(authority: &[u8]) -> bool {
    let (host, rest) = match authority {
        [b'[', inside @ ..] => {
            let Some(end) = inside.iter().position(|&byte| byte == b']') else { return false };
            (&inside[..end], &inside[end + 1..])
        }
        _ => {
            authority.split_at(authority.iter().position(|&b| b == b':').unwrap_or(authority.len()))
        }
    };
    let is_literal = authority.first() == Some(&b'[');
    let is_host = host.iter().all(|byte| match byte {
        b':' => is_literal,
        b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*'
        | b'+' | b',' | b';' | b'=' => true,
        _ => byte.is_ascii_alphanumeric(),
    });
    let is_port = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_host && is_port
}
