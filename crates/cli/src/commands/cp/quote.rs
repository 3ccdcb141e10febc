//! Names as coreutils prints them: in quotes, so that a shell reads them as one word.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use crate::output::printable::one_line;

/// Returns a name in quotes. Characters that cannot be printed become escapes of a shell's `$''`.
pub(super) fn quoted(name: &OsStr) -> String {
    let bytes = name.as_bytes();
    let text = std::str::from_utf8(bytes);
    if let Ok(text) = text
        && text.contains('\'')
        && text.chars().all(is_plain)
        && one_line(text) == text
    {
        return format!("\"{text}\"");
    }
    let mut out = "'".to_owned();
    let mut is_escaped = false;
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let mut utf8 = [0; 4];
            let one = letter.encode_utf8(&mut utf8);
            if one_line(one) == *one {
                switch(&mut out, &mut is_escaped, false);
                out.push_str(if letter == '\'' { "'\\''" } else { one });
            } else {
                switch(&mut out, &mut is_escaped, true);
                one.bytes().for_each(|byte| escape(&mut out, byte));
            }
        }
        if !chunk.invalid().is_empty() {
            switch(&mut out, &mut is_escaped, true);
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut out, *byte));
    }
    out.push('\'');
    out
}

/// Changes between quotes in which a backslash means nothing, and those in which it escapes.
fn switch(out: &mut String, is_escaped: &mut bool, wanted: bool) {
    match (*is_escaped, wanted) {
        (false, true) => out.push_str("'$'"),
        (true, false) => out.push_str("''"),
        _ => {}
    }
    *is_escaped = wanted;
}

fn escape(out: &mut String, byte: u8) {
    let named = match byte {
        7 => Some('a'),
        8 => Some('b'),
        9 => Some('t'),
        10 => Some('n'),
        11 => Some('v'),
        12 => Some('f'),
        13 => Some('r'),
        _ => None,
    };
    // Writing to a string does not fail.
    let _ = match named {
        Some(letter) => write!(out, "\\{letter}"),
        None => write!(out, "\\{byte:03o}"),
    };
}

/// Returns whether a letter means the same between double quotes and without any.
fn is_plain(letter: char) -> bool {
    letter.is_alphanumeric() || " '%+,-./:]_".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_coreutils_does() {
        for (name, expected) in [
            (&b"a b"[..], "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $x", "'it'\\''s $x'"),
            (b"a\nb", "'a'$'\\n''b'"),
            (b"a\n", "'a'$'\\n'"),
            (b"\xff", "''$'\\377'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(OsStr::from_bytes(name)), expected);
        }
    }
}
