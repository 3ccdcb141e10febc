//! Characters that control terminals or change how a line looks.

use std::fmt::Write;

/// Returns whether a character beyond ASCII controls terminals or changes how lines look: controls,
/// line and paragraph separators, marks that change the direction of text.
pub(crate) const fn is_trick(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}'
    )
}

/// Returns JSON in which such characters are escaped. It means the same, because they only occur
/// in strings.
pub(crate) fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match is_trick(character) {
            // Writing to a string does not fail.
            true => _ = write!(out, "\\u{:04x}", u32::from(character)),
            false => out.push(character),
        }
    }
    out
}

/// Returns text in which such characters, and those of ASCII that control something, are replaced.
pub(crate) fn replaced(text: &str) -> String {
    let shown = |character: char| match is_trick(character) || character.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => character,
    };
    text.chars().map(shown).collect()
}
