//! `Content-Disposition`: show or save, and under which name (RFC 6266).

use super::head::push_field;
use crate::link::{escaped, is_unreserved, push_encoded};

/// Appends `Content-Disposition`, if it is needed.
///
/// A name of harmless characters is written plainly, which every client reads. Any other is
/// written twice: with `_` for other characters, for clients that know only `filename`, and as
/// `filename*` in UTF-8 (RFC 8187), with U+FFFD for invalid UTF-8, as that field cannot hold
/// arbitrary bytes.
pub(crate) fn push_disposition(fields: &mut Vec<u8>, name: Option<&[u8]>, is_download: bool) {
    let kind = if is_download { "attachment" } else { "inline" };
    let Some(name) = name else {
        if is_download {
            push_field(fields, "Content-Disposition", kind.as_bytes());
        }
        return;
    };
    let mut value = String::with_capacity(kind.len() + 24 + name.len());
    value.push_str(kind);
    match str::from_utf8(name) {
        Ok(plain) if plain.bytes().all(is_harmless) => {
            value.push_str("; filename=\"");
            value.push_str(plain);
            value.push('"');
        }
        _ => {
            let name = String::from_utf8_lossy(name);
            let harmless = |letter: char| u8::try_from(letter).is_ok_and(is_harmless);
            value.push_str("; filename=\"");
            value.extend(name.chars().map(|each| if harmless(each) { each } else { '_' }));
            value.push_str("\"; filename*=UTF-8''");
            for byte in name.bytes() {
                push_encoded(&mut value, byte, is_unreserved(byte));
            }
        }
    }
    push_field(fields, "Content-Disposition", value.as_bytes());
}

/// Returns the name in a value of `Content-Disposition` (RFC 6266 4.1), as bytes that can be
/// anything: `filename*` if it is well-formed, else `filename`.
#[must_use]
pub fn file_name(value: &[u8]) -> Option<Vec<u8>> {
    let mut plain = None;
    for (name, value) in parameters(value) {
        if name.eq_ignore_ascii_case(b"filename*") {
            if let Some(name) = extended(&value) {
                return Some(name);
            }
        } else if name.eq_ignore_ascii_case(b"filename") && plain.is_none() {
            plain = Some(value);
        }
    }
    plain
}

/// Returns the parameters after the type, with quoted strings as they are meant (RFC 9110 5.6.4).
fn parameters(value: &[u8]) -> Vec<(&[u8], Vec<u8>)> {
    let mut found = Vec::new();
    let start = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    let mut rest = &value[start..];
    while let Some((_, after)) = rest.split_first() {
        let end = after.iter().position(|byte| matches!(byte, b'=' | b';'));
        let Some(end) = end.filter(|end| after[*end] == b'=') else {
            // A word without a value.
            rest = &after[end.unwrap_or(after.len())..];
            continue;
        };
        let (name, text) = (after[..end].trim_ascii(), after[end + 1..].trim_ascii_start());
        let (value, used) = match text.split_first() {
            Some((b'"', quoted)) => unquote(quoted),
            _ => {
                let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
                (text[..end].trim_ascii_end().to_vec(), end)
            }
        };
        found.push((name, value));
        // Anything between a quoted string and the next semicolon is ignored.
        let next = text[used..].iter().position(|byte| *byte == b';');
        rest = next.map_or(&[], |next| &text[used + next..]);
    }
    found
}

/// Returns the value of a quoted string, and its length with the first quote.
fn unquote(quoted: &[u8]) -> (Vec<u8>, usize) {
    let (mut value, mut at) = (Vec::new(), 0);
    while let Some(byte) = quoted.get(at) {
        match (byte, quoted.get(at + 1)) {
            (b'"', _) => return (value, at + 2),
            // Some servers write a path of Windows: the backslash stands for itself there.
            (b'\\', Some(next @ (b'"' | b'\\'))) => {
                value.push(*next);
                at += 2;
            }
            _ => {
                value.push(*byte);
                at += 1;
            }
        }
    }
    (value, at + 1)
}

/// Returns the bytes of an extended value (RFC 8187 3.2), as UTF-8.
fn extended(value: &[u8]) -> Option<Vec<u8>> {
    let mut parts = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _, text) = (parts.next()?, parts.next()?, parts.next()?);
    let bytes = percent_decode(text)?;
    if charset.eq_ignore_ascii_case(b"utf-8") {
        return Some(bytes);
    }
    let is_latin = charset.eq_ignore_ascii_case(b"iso-8859-1");
    is_latin.then(|| bytes.into_iter().map(char::from).collect::<String>().into_bytes())
}

/// Returns the bytes of a percent-encoded text; `None` if an escape is malformed.
fn percent_decode(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let [byte, after @ ..] = text {
        let (byte, rest) = if *byte == b'%' { escaped(after)? } else { (*byte, after) };
        bytes.push(byte);
        text = rest;
    }
    Some(bytes)
}

/// Returns whether the character means the same to all clients inside quotes: not `"` and `\`,
/// which need an escape that not all know, nor `%`, which some decode (RFC 6266 appendix D).
fn is_harmless(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'%')
}
