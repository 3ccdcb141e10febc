//! Lists of files that a cache node should have.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::input::field;

/// A file that a node should have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManifestEntry {
    /// The path, percent-encoded as in a URL.
    pub path: String,
    /// Request header fields, for nodes that keep a variant for each value.
    pub fields: Vec<(String, String)>,
}

/// A line of a list that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: {reason}")]
pub struct ManifestError {
    number: usize,
    reason: &'static str,
}

/// Parses a list: higher priorities come first, and each file appears once.
///
/// # Errors
///
/// If a line is neither a path nor a field.
pub fn parse(text: &str) -> Result<Vec<ManifestEntry>, ManifestError> {
    let mut entries: Vec<(u64, ManifestEntry)> = Vec::new();
    // Editors on Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let wrong = |reason| ManifestError { number: index + 1, reason };
        let is_field = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        if is_field && !line.trim_start().starts_with('#') {
            let field = field(line.trim()).ok();
            let (Some(field), Some((_, wanted))) = (field, entries.last_mut()) else {
                return Err(wrong("write a field of requests for the path above: NAME: VALUE"));
            };
            wanted.fields.push(field);
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(path) = words.next().filter(|path| !path.starts_with('#')) else { continue };
        let priority = match words.next().map(str::parse::<u64>) {
            None => 0,
            Some(Ok(priority)) => priority,
            Some(Err(_)) => return Err(wrong("the priority is not a number")),
        };
        if !path.starts_with('/') || words.next().is_some() {
            return Err(wrong(
                "write a path that begins with /, optionally followed by a priority",
            ));
        }
        entries.push((priority, ManifestEntry { path: path.to_owned(), fields: Vec::new() }));
    }
    entries.sort_by_key(|(priority, _)| Reverse(*priority));
    let mut seen = HashSet::new();
    let wanted = entries.into_iter().map(|(_, wanted)| wanted);
    Ok(wanted.filter(|wanted| seen.insert(wanted.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_come_first_and_otherwise_the_order_stays() {
        let text = "# what is popular\n/a\n\n/b%20c 5\n/d\n/e?x=1 7\n/a\n";
        let paths =
            |text| parse(text).map(|all| all.into_iter().map(|it| it.path).collect::<Vec<_>>());
        assert_eq!(paths(text), Ok(["/e?x=1", "/b%20c", "/a", "/d"].map(str::to_owned).to_vec()));
        for text in ["a", "/a b", "/a 1 2", "/a -1", "  x", "  x: y\r\u{1}"] {
            assert!(parse(&format!("/x\n{text}")).is_err_and(|error| error.number == 2), "{text}");
        }
    }

    #[test]
    fn a_byte_order_mark_belongs_to_no_path() {
        let entry = |path: &str| ManifestEntry { path: path.to_owned(), fields: Vec::new() };
        assert_eq!(parse("\u{feff}/a\r\n/b\r\n"), Ok(vec![entry("/a"), entry("/b")]));
        assert!(parse("/a\n\u{feff}/b\n").is_err());
    }

    #[test]
    fn fields_stand_below_their_path() {
        let text = "/a\n  X-Kind: one\n\t# of a kind\n\tX-Other:  two words\n/a 1\n  \n";
        let fields = [("X-Kind", "one"), ("X-Other", "two words")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let path = "/a".to_owned();
        let expected = [
            ManifestEntry { path: path.clone(), fields: Vec::new() },
            ManifestEntry { path, fields },
        ];
        assert_eq!(parse(text), Ok(expected.into()));
        assert!(parse("  X-Kind: one\n").is_err_and(|error| error.number == 1));
    }
}
