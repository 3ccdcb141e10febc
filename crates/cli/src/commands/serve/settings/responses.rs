//! Headers and media types of responses.

use std::fs::File;
use std::io::Read;

use underpass_server::server::{MediaTypes, PathHeader};

use crate::failure::{Failure, Result};

/// The name and the value of a header.
type Header = (String, String);

/// Parses headers as they are typed, those of every response and those of some files; the server
/// decides whether they may be set.
pub(super) fn headers(texts: &[String]) -> Result<(Vec<Header>, Vec<PathHeader>)> {
    let (mut everywhere, mut some) = (Vec::new(), Vec::new());
    for text in texts {
        let (pattern, field) = pattern_and_field(text);
        let (name, value) = field.split_once(':').ok_or_else(|| {
            Failure::Usage(format!("--header {text:?} has no colon: write 'Name: value'"))
        })?;
        let (name, value) = (name.to_owned(), value.trim_matches([' ', '\t']).to_owned());
        match pattern {
            None => everywhere.push((name, value)),
            Some(pattern) => {
                some.push(PathHeader { pattern: pattern.to_owned(), name, value });
            }
        }
    }
    Ok((everywhere, some))
}

/// Splits off the pattern before a header, if there is one. No name of a header begins with a
/// slash, and none in use with an asterisk.
fn pattern_and_field(text: &str) -> (Option<&str>, &str) {
    match text.split_once(' ') {
        Some((pattern, field)) if text.starts_with(['/', '*']) => {
            (Some(pattern), field.trim_start())
        }
        _ => (None, text),
    }
}

/// Returns the media types of the options, with those of this system.
pub(super) fn media_types(of_system: &MediaTypes, chosen: &[String]) -> Result<MediaTypes> {
    let mut types = of_system.clone();
    for text in chosen {
        let refuse = |error| Failure::Usage(format!("--mime {text:?}: {error}"));
        types.choose(text).map_err(refuse)?;
    }
    Ok(types)
}

/// Returns the media types of this system, which a confined process cannot read.
pub(super) fn of_system() -> MediaTypes {
    let mut types = MediaTypes::default();
    types.add_system(&String::from_utf8_lossy(&system_types()));
    types
}

/// Reads the types of this system, as much of them as makes sense; many systems have none.
fn system_types() -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(SYSTEM_TYPES)
        && file.metadata().is_ok_and(|about| about.is_file())
    {
        // A file that cannot be read to its end tells as much as was read.
        let _ = file.take(MAX_SYSTEM_TYPES).read_to_end(&mut text);
    }
    text
}

/// The file that says what extensions mean: packages of Debian and others bring it.
const SYSTEM_TYPES: &str = "/etc/mime.types";

/// The maximum number of bytes that are read of it; Debian's has 73 KiB.
const MAX_SYSTEM_TYPES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// The pattern, the name and the value of a header.
    fn header(text: &str) -> Option<(String, String, String)> {
        let (mut everywhere, mut some) = headers(&[text.to_owned()]).ok()?;
        let all = everywhere.pop().map(|(name, value)| (String::new(), name, value));
        all.or_else(|| some.pop().map(|header| (header.pattern, header.name, header.value)))
    }

    #[test]
    fn a_header_is_a_name_a_colon_and_a_value_after_a_pattern_or_none() {
        for (text, parts) in [
            ("X-A: b: c", ["", "X-A", "b: c"]),
            ("X-A:\tb ", ["", "X-A", "b"]),
            ("X-A:", ["", "X-A", ""]),
            ("*.js X-A: b: c", ["*.js", "X-A", "b: c"]),
            (
                "/v2/*/sha256:0  Content-Type: a/b; c=d",
                ["/v2/*/sha256:0", "Content-Type", "a/b; c=d"],
            ),
        ] {
            let [pattern, name, value] = parts.map(str::to_owned);
            assert_eq!(header(text), Some((pattern, name, value)), "{text}");
        }
        for text in ["X-A", "*.js X-A", "/v2/*"] {
            assert_eq!(header(text), None, "{text}");
        }
    }
}
