//! Makes text from servers, archives and file systems safe for a terminal.
//!
//! Names, reason phrases and header values are chosen by others. A control character in them could
//! drive the terminal, a line feed could forge a line, and a bidirectional control could reverse
//! the end of a name. Everything that is printed goes through here; see `lines.rs`.

use underpass_engine::printable::changes_display;

/// Returns a text in one line: control characters and those that change the order of others are
/// escaped.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Returns a text of several lines with each of them made printable.
pub(crate) fn lines(text: &str) -> String {
    escaped(text, |letter| letter == '\n')
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if changes_display(letter) && !is_kept(letter) {
            out.extend(letter.escape_default())
        } else {
            out.push(letter)
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use underpass_engine::printable::json;

    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        for (text, shown) in [
            (
                "caf\u{e9} \u{65e5}\u{672c} \u{1f600} \u{200d}",
                "caf\u{e9} \u{65e5}\u{672c} \u{1f600} \u{200d}",
            ),
            ("a\x1b[31m", "a\\u{1b}[31m"),
            ("a\u{9b}31m", "a\\u{9b}31m"),
            ("a\nb\rc\td", "a\\nb\\rc\\td"),
            ("a\u{202e}gpj.exe", "a\\u{202e}gpj.exe"),
            ("\u{2066}x\u{2069}\u{200f}", "\\u{2066}x\\u{2069}\\u{200f}"),
            ("\u{7f}", "\\u{7f}"),
        ] {
            assert_eq!(one_line(text), shown);
        }
        assert_eq!(lines("a\nb\x1b"), "a\nb\\u{1b}");
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "a\u{9b}b\u{202e}c\u{e0041}d\u{7f}\n\x1b";
        let written = json(&serde_json::to_string(text).expect("a string"));
        assert!(written.chars().all(|letter| !changes_display(letter)), "{written}");
        assert_eq!(serde_json::from_str::<String>(&written).expect("JSON"), text);
    }
}
