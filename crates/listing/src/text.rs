//! Formats names, sizes and times for people.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;
use jiff::Timestamp;
use rustix::fs::Timespec;

/// Returns a style or script without indentation, empty lines and comment lines, because it is sent
/// with every page.
pub(crate) fn compact(source: &str) -> String {
    let lines = source.lines().map(str::trim_start);
    let kept = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// Returns a style sheet as [`compact`] does, also without the spaces and semicolons that only
/// people need.
pub(crate) fn compact_style(source: &str) -> String {
    const SHORTER: [(&str, &str); 7] =
        [(": ", ":"), ("; ", ";"), (", ", ","), (" {", "{"), ("{ ", "{"), (" }", "}"), (";}", "}")];
    let style = compact(source).replace('\n', "");
    SHORTER.iter().fold(style, |style, (long, short)| style.replace(long, short))
}

/// Returns text in the form in which a search compares it: in lower case, with letter and accent
/// composed into one character. In names that come from a Mac they are two.
pub(crate) fn search_key(text: &str) -> String {
    let text = text.to_lowercase();
    if text.is_ascii() {
        return text;
    }
    ComposingNormalizerBorrowed::new_nfc().normalize(&text).into_owned()
}

/// Returns a name as text in which every character is visible: control characters, which a page
/// would swallow, become their symbols (a line feed becomes ␊). Bytes that are not UTF-8 become �,
/// and so do characters that change the display of others, as of `gpj.exe` to `exe.jpg`.
///
/// `visible` of `page.js` does the same.
pub(super) fn visible(name: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(name);
    if text.chars().any(|character| picture(character) != character) {
        Cow::Owned(text.chars().map(picture).collect())
    } else {
        text
    }
}

/// Formats a size with about three digits: `0 B`, `999 B`, `1.5 KiB`, `12 MiB`.
pub(super) fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Integer arithmetic keeps 1,048,575 bytes from being rounded to 1024 KiB.
    let power = bytes.ilog2() as usize / 10;
    let rounded =
        |scale: u128| (u128::from(bytes) * scale + (1 << (10 * power - 1))) >> (10 * power);
    match (rounded(10), rounded(1)) {
        (tenths @ ..100, _) => format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power - 1]),
        (_, 1024) => format!("1.0 {}", UNITS[power]),
        (_, whole) => format!("{whole} {}", UNITS[power - 1]),
    }
}

/// Formats a number with commas between the thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun: `1 file`, `2 files`.
pub(super) fn counted(number: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", grouped(number), if number == 1 { singular } else { plural })
}

/// Formats a time for programs, to the nanosecond; `None` beyond the year 9999.
pub(super) fn rfc3339(modified: Timespec) -> Option<String> {
    let nanoseconds = i32::try_from(modified.tv_nsec).ok()?;
    Some(Timestamp::new(modified.tv_sec, nanoseconds).ok()?.to_string())
}

/// Formats a time in UTC to the minute, and to the second for the markup that scripts parse.
pub(super) fn utc(modified: Timespec) -> Option<(String, String)> {
    let time = Timestamp::from_second(modified.tv_sec).ok()?;
    let text = time.strftime("%Y-%m-%d %H:%M").to_string();
    Some((text, time.to_string()))
}

/// Formats a time in UTC as in nginx's listings: `21-Nov-2026 06:59`.
pub(super) fn autoindex_time(modified: Timespec) -> Option<String> {
    let time = Timestamp::from_second(modified.tv_sec).ok()?;
    Some(time.strftime("%d-%b-%Y %H:%M").to_string())
}

/// Returns the visible replacement of a control character, and any other character unchanged.
fn picture(character: char) -> char {
    match character {
        '\0'..'\x20' => {
            char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        '\x7f' => '\u{2421}',
        '\u{80}'..'\u{a0}'
        | '\u{61c}' // Arabic letter mark
        | '\u{200e}' | '\u{200f}' // left-to-right and right-to-left mark
        | '\u{2028}'..='\u{202e}' // line and paragraph separator, embeddings, overrides
        | '\u{2066}'..='\u{2069}' // isolates
        | '\u{feff}' // byte order mark
        | '\u{fff9}'..='\u{fffb}' => char::REPLACEMENT_CHARACTER, // annotations
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_are_written_without_redundant_spaces() {
        let source = "\na b, i::before {\n  width: calc(1% - 2px);\n  color: red;\n}\n";
        let expected = "a b,i::before{width:calc(1% - 2px);color:red}";
        assert_eq!(compact_style(source), expected);
    }

    #[test]
    fn sizes_are_rounded_to_the_nearest_and_never_to_1024() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10_188, "9.9 KiB"),
            (10_189, "10 KiB"),
            (10_240, "10 KiB"),
            (1_047_000, "1022 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_048_576, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(human_size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (123_456, "123,456"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn times_before_1970_and_beyond_all_calendars_are_formatted() {
        let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
        assert_eq!(rfc3339(time(0, 5)).as_deref(), Some("1970-01-01T00:00:00.000000005Z"));
        assert_eq!(rfc3339(time(-1, 500_000_000)).as_deref(), Some("1969-12-31T23:59:59.5Z"));
        assert_eq!(rfc3339(time(i64::MAX, 0)), None);
        assert_eq!(utc(time(i64::MIN, 0)), None);
        assert_eq!(autoindex_time(time(i64::MAX, 0)), None);
        assert_eq!(autoindex_time(time(0, 5)).as_deref(), Some("01-Jan-1970 00:00"));
    }

    #[test]
    fn control_characters_are_made_visible() {
        assert_eq!(visible(b"a\nb\x7f\xff"), "a␊b␡\u{fffd}");
    }

    #[test]
    fn bidirectional_controls_of_names_are_replaced() {
        assert_eq!(visible("\u{202e}gpj.exe".as_bytes()), "\u{fffd}gpj.exe");
        let controls = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}";
        assert_eq!(visible(controls.as_bytes()), "\u{fffd}".repeat(7));
        // Joiners are part of words and of emoji.
        let plain = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}.txt \u{1f469}\u{200d}\u{1f52c}";
        assert!(matches!(visible(plain.as_bytes()), Cow::Borrowed(same) if same == plain));
    }
}
