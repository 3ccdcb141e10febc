//! `Content-Disposition`: show or save, and under which name (RFC 6266).

use super::head::push_field;
use crate::link::{is_unreserved, push_encoded};

/// Appends `Content-Disposition`, if it is needed.
///
/// A name of harmless characters is written plainly, which every client reads. Any other is
/// written twice: with `_` for what is not harmless, for clients that know no more, and as
/// `filename*` in UTF-8 (RFC 8187), with U+FFFD for what is not UTF-8: that field cannot hold
/// bytes.
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

/// Returns whether the character means the same to all clients inside quotes: not `"` and `\`,
/// which need an escape that not all know, nor `%`, which some decode (RFC 6266 appendix D).
fn is_harmless(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\' | b'%')
}
