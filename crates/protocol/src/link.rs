//! Links: names and paths with `%XX` for bytes that would have a special meaning.

/// Encodes one name as a part of a link: `%XX` for all but RFC 3986's unreserved characters, so
/// that no character has a special meaning in a path, in a query, in HTML or in a shell.
///
/// # Examples
///
/// ```
/// assert_eq!(underpass_protocol::encode_segment(b"50% off/a&b"), "50%25%20off%2Fa%26b");
/// ```
#[must_use]
pub fn encode_segment(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len() + 8);
    for &byte in name {
        push_encoded(&mut out, byte, is_unreserved(byte));
    }
    out
}

/// Encodes a path as a link: as [`encode_segment`] does, but for the slashes between its names.
#[must_use]
pub fn encode_path(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len() + 8);
    for &byte in path {
        push_encoded(&mut out, byte, is_unreserved(byte) || byte == b'/');
    }
    out
}

/// Appends a part of a path in the normal form of RFC 3986 6.2.2: unreserved characters are never
/// escaped, and characters that a part may not contain always are. The others may have a special
/// meaning (3.3): those stay as received, since `+` and `%2B` can be two paths.
pub(crate) fn push_normal(out: &mut String, part: &[u8]) {
    let mut rest = part;
    while let [byte, after @ ..] = rest {
        let escape = escaped(after).filter(|_| *byte == b'%');
        let (named, after) = escape.unwrap_or((*byte, after));
        let is_kept = escape.is_none() && named != b'%' && is_plain(named);
        push_encoded(out, named, is_unreserved(named) || is_kept);
        rest = after;
    }
}

/// Returns the redirect for a folder that was requested without its slash: relative,
/// `./name/?query`.
///
/// It is relative to work with a proxy that shortens or replaces the path, and begins with `./` or
/// `../` so that neither `//name` nor `a:b` can be taken for another host or scheme. With
/// `repeats_escapes`, it repeats the parents, beginning with the first one that has an escape: some
/// clients undo the escapes of what they do not replace. A proxy may then only shorten the path.
#[must_use]
pub fn slash_redirect(raw_path: &[u8], query: &[u8], repeats_escapes: bool) -> String {
    let mut segments: Vec<_> = raw_path.split(|&byte| byte == b'/').skip(1).collect();
    let name = segments.pop().unwrap_or_default();
    let is_odd = |segment: &&[u8]| matches!(*segment, b"" | b"." | b"..");
    let may_repeat = repeats_escapes && !segments.iter().any(is_odd);
    let escaped = segments.iter().position(|segment| may_repeat && segment.contains(&b'%'));
    let repeated = &segments[escaped.unwrap_or(segments.len())..];
    let mut out = String::with_capacity(raw_path.len() + query.len() + 3 * repeated.len() + 4);
    out.push_str(&if repeated.is_empty() { "./".to_owned() } else { "../".repeat(repeated.len()) });
    push_folder(&mut out, repeated.iter().copied().chain([name]), query);
    out
}

/// Returns the same redirect with the whole path, for clients that do not support relative ones. No
/// proxy may then change the path.
#[must_use]
pub fn whole_slash_redirect(raw_path: &[u8], query: &[u8]) -> String {
    let mut out = String::with_capacity(raw_path.len() + query.len() + 2);
    out.push('/');
    push_folder(&mut out, raw_path.split(|&byte| byte == b'/'), query);
    out
}

/// Appends the names of a path, each with a slash after it but for empty ones, and a query.
fn push_folder<'a>(out: &mut String, names: impl Iterator<Item = &'a [u8]>, query: &[u8]) {
    for name in names.filter(|name| !name.is_empty()) {
        for &byte in name {
            push_encoded(out, byte, is_plain(byte));
        }
        out.push('/');
    }
    if !query.is_empty() {
        out.push('?');
    }
    for &byte in query {
        push_encoded(out, byte, is_plain(byte) || matches!(byte, b'/' | b'?'));
    }
}

/// Appends a byte unchanged or as `%XX`.
pub(crate) fn push_encoded(out: &mut String, byte: u8, is_plain: bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if is_plain {
        out.push(char::from(byte));
    } else {
        out.push('%');
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// Returns whether a character has no special meaning anywhere in a URL (RFC 3986 2.3).
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Returns whether a part of a path may have this character (RFC 3986 3.3), or it is the `%` of
/// an escape in it.
fn is_plain(byte: u8) -> bool {
    is_unreserved(byte)
        || matches!(byte, b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',')
        || matches!(byte, b';' | b'=' | b':' | b'@')
}

/// Returns the byte that two hexadecimal digits name, and what follows them.
pub(crate) fn escaped(after: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let [high, low, rest @ ..] = after else { return None };
    Some((digit(*high)? << 4 | digit(*low)?, rest))
}
