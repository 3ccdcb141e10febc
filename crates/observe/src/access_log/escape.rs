//! Appends untrusted text with escapes, and numbers.

use underpass_engine::printable::changes_display;

/// What surrounds a text, which decides which bytes would end it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    /// The text is between spaces.
    Bare,
    /// The text is in double quotes.
    Quoted,
}

/// Appends text as nginx does: a byte that could end the text or the line, or control a terminal,
/// becomes `\xXX`. Characters beyond ASCII stay as they are; bytes that are not UTF-8 are escaped.
pub(super) fn push(out: &mut Vec<u8>, text: &[u8], place: Quoting) {
    // Nearly always there is nothing to escape.
    if text.iter().all(|&byte| is_plain_ascii(byte, place)) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            let is_plain = match bytes {
                [byte] => is_plain_ascii(*byte, place),
                _ => !changes_display(character),
            };
            if is_plain {
                out.extend_from_slice(bytes);
            } else {
                push_hex(out, bytes);
            }
        }
        push_hex(out, chunk.invalid());
    }
}

/// Appends text, or `-` if it is empty.
pub(super) fn push_or_dash(out: &mut Vec<u8>, text: &[u8], place: Quoting) {
    match text {
        [] => out.push(b'-'),
        text => push(out, text, place),
    }
}

/// Appends each item by `push_item`, with `separator` between them, or `-` if there are none.
pub(super) fn push_joined<T>(
    out: &mut Vec<u8>,
    items: &[T],
    separator: &[u8],
    push_item: impl Fn(&mut Vec<u8>, &T),
) {
    if items.is_empty() {
        out.push(b'-');
    }
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        push_item(out, item);
    }
}

/// Appends the inside of a JSON string. Bytes that are not UTF-8 become `\xXX` as text, because
/// JSON cannot represent them.
pub(super) fn push_json(out: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|&byte| is_plain_ascii(byte, Quoting::Quoted)) {
        out.extend_from_slice(text);
        return;
    }
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            let mut buffer = [0; 4];
            match character {
                '"' | '\\' => out.extend_from_slice(&[b'\\', character as u8]),
                _ if changes_display(character) => {
                    let mut units = [0; 2];
                    for unit in character.encode_utf16(&mut units) {
                        out.extend_from_slice(b"\\u");
                        for byte in unit.to_be_bytes() {
                            push_digits(out, byte);
                        }
                    }
                }
                _ => out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes()),
            }
        }
        for &byte in chunk.invalid() {
            out.extend_from_slice(b"\\\\x");
            push_digits(out, byte);
        }
    }
}

/// Appends a number.
pub(super) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    // `u64::MAX` has 20 digits.
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends thousandths as a decimal fraction: 1234 is `1.234`.
pub(super) fn push_thousandths(out: &mut Vec<u8>, number: u64) {
    push_number(out, number / 1000);
    out.push(b'.');
    push_three(out, number % 1000);
}

/// Appends millionths as a decimal fraction: 1234 is `0.001234`.
pub(super) fn push_millionths(out: &mut Vec<u8>, number: u128) {
    let number = u64::try_from(number).unwrap_or(u64::MAX);
    push_thousandths(out, number / 1000);
    push_three(out, number % 1000);
}

/// Appends the last three digits of a number, with leading zeros.
pub(super) fn push_three(out: &mut Vec<u8>, number: u64) {
    out.extend([100, 10, 1].map(|place| b'0' + (number / place % 10) as u8));
}

/// Returns whether an ASCII byte needs no escape.
const fn is_plain_ascii(byte: u8, place: Quoting) -> bool {
    match byte {
        b'"' | b'\\' => false,
        b' ' => matches!(place, Quoting::Quoted),
        _ => byte.is_ascii_graphic(),
    }
}

/// Appends each byte as `\xXX`.
fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.extend_from_slice(b"\\x");
        push_digits(out, byte);
    }
}

/// Appends the two hexadecimal digits of a byte.
fn push_digits(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
}
