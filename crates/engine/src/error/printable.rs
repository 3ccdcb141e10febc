//! Characters that must not be printed as they are, because they control terminals or change how a
//! line looks.

use std::fmt::Write;

/// Returns whether a character controls a terminal, breaks a line, or changes how others are shown.
#[must_use]
pub const fn changes_display(character: char) -> bool {
    matches!(character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' // controls
        | '\u{61c}' // Arabic letter mark
        | '\u{200e}' | '\u{200f}' // left-to-right and right-to-left mark
        | '\u{2028}'..='\u{202e}' // line and paragraph separator, embeddings, overrides
        | '\u{2066}'..='\u{2069}' // isolates
        | '\u{feff}' // byte order mark
        | '\u{fff9}'..='\u{fffb}' // interlinear annotations
        | '\u{e0000}'..='\u{e007f}') // tags
}

/// Returns JSON with such characters escaped. Its meaning is unchanged, because in JSON on one line
/// they occur only in strings.
#[must_use]
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if changes_display(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a string does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        } else {
            out.push(character);
        }
    }
    out
}
