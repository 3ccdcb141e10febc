//! The values of options.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses `on` or `off`; `true`, `yes` and `1`, and their opposites, mean the same.
pub(super) fn on_or_off() -> impl TypedValueParser<Value = bool> {
    let on = PossibleValue::new("on").aliases(["true", "yes", "y", "t", "1"]);
    let off = PossibleValue::new("off").aliases(["false", "no", "n", "f", "0"]);
    let is_on = on.clone();
    PossibleValuesParser::new([on, off]).map(move |text| is_on.matches(&text, true))
}

/// Parses permissions in octal.
pub(super) fn socket_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| "write permissions in octal, such as 660 or 666".to_owned())
}

/// Parses a value of `Cache-Control`.
pub(super) fn cache_control(text: &str) -> Result<String, String> {
    // RFC 9110, section 5.5: a line end would begin another header.
    if text.is_empty() || text.chars().any(char::is_control) {
        Err("it is not a valid header value".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// Parses the name of a host, with or without a port.
pub(super) fn host(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if text == "*" || (!text.is_empty() && text.chars().all(is_part)) {
        Ok(text.to_owned())
    } else {
        Err("write the name of a host such as files.example.org, or *".to_owned())
    }
}

/// Parses the path of a URL into the server's form: nothing, or `/a/b`.
pub(super) fn path_prefix(text: &str) -> Result<String, String> {
    let path = text.trim_matches('/');
    let is_plain = |c: char| !c.is_control() && !" ?#%\\\"<>".contains(c);
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_plain);
    match path {
        "" => Ok(String::new()),
        path if path.split('/').all(is_part) => Ok(format!("/{path}")),
        _ => Err("write a path of a URL such as /files".to_owned()),
    }
}

/// A header of responses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    /// The files that it is for; every response without one.
    pub(crate) pattern: Option<String>,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// A header, after a pattern or none; the server decides whether it may be set. No name of a header
/// begins with a slash, and none in use with an asterisk.
pub(super) fn header(text: &str) -> Result<Header, String> {
    let (pattern, field) = match text.split_once(' ') {
        Some((pattern, field)) if text.starts_with(['/', '*']) => {
            (Some(pattern.to_owned()), field.trim_start())
        }
        _ => (None, text),
    };
    let (name, value) = field.split_once(':').ok_or("it has no colon: write 'Name: value'")?;
    let value = value.trim_matches([' ', '\t']).to_owned();
    Ok(Header { pattern, name: name.to_owned(), value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_asterisk() {
        for text in ["files.example.org", "nas:8080", "*", "xn--nxasmq6b"] {
            assert_eq!(host(text).ok().as_deref(), Some(text));
        }
        for text in ["", "http://files.example.org", "a b", "*.example.org", "a/b"] {
            assert!(host(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_begins_with_a_slash_and_does_not_end_with_one() {
        for (text, prefix) in [("", ""), ("/", ""), ("a", "/a"), ("/a/b/", "/a/b")] {
            assert_eq!(path_prefix(text).ok().as_deref(), Some(prefix), "{text}");
        }
        for text in ["/a//b", "/../a", "/a?b", "/a#b", "/a b", "/a%20b", "/a\nb"] {
            assert!(path_prefix(text).is_err(), "{text:?}");
        }
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
            let found = header(text).expect(text);
            let pattern = found.pattern.as_deref().unwrap_or_default();
            assert_eq!([pattern, &found.name, &found.value], parts, "{text}");
        }
        for text in ["X-A", "*.js X-A", "/v2/*"] {
            assert!(header(text).is_err(), "{text}");
        }
    }
}
