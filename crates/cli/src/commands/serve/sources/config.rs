//! The config file: TOML whose keys are the long names of the options.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use toml::{Spanned, Value};

use crate::failure::{Failure, Result, WithPath};

/// One key of a config file.
#[derive(Debug, PartialEq)]
pub(super) struct ConfigKey {
    /// Where it stands, for messages: `underpass.toml, line 3`.
    pub(super) place: String,
    /// The name of an option, with dashes.
    pub(super) name: String,
    /// What it is set to; several if it is a list.
    pub(super) values: Vec<OsString>,
}

/// Reads a config file, without knowing which keys there are.
pub(super) fn read(path: &Path) -> Result<Vec<ConfigKey>> {
    let text = fs::read_to_string(path).with_path("reading", path)?;
    entries(&text, &path.display().to_string()).map_err(Failure::Usage)
}

fn entries(text: &str, file: &str) -> std::result::Result<Vec<ConfigKey>, String> {
    let place = |at: usize| format!("{file}, line {}", line(text, at));
    let keys: BTreeMap<Spanned<String>, Spanned<Value>> =
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("{}: {}", place(at), error.message().replace('\n', ", "))
        })?;
    let mut entries = Vec::new();
    for (key, value) in keys {
        let place = place(key.span().start);
        let name = key.get_ref().replace('_', "-");
        let values = values(value.into_inner()).ok_or_else(|| {
            format!(
                "{place}: {} is neither a text nor a number, true, false, or a list",
                key.get_ref()
            )
        })?;
        entries.push(ConfigKey { place, name, values });
    }
    Ok(entries)
}

/// Returns the values as they would be typed.
fn values(value: Value) -> Option<Vec<OsString>> {
    match value {
        Value::Array(values) => values.into_iter().map(word).collect(),
        value => Some(vec![word(value)?]),
    }
}

fn word(value: Value) -> Option<OsString> {
    Some(match value {
        Value::String(text) => text.into(),
        Value::Integer(number) => number.to_string().into(),
        Value::Float(number) => number.to_string().into(),
        Value::Boolean(is_set) => is_set.to_string().into(),
        Value::Array(_) | Value::Datetime(_) | Value::Table(_) => return None,
    })
}

fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_of_options_in_either_spelling() {
        let text =
            "port = 80\n\nlog_format = 'json'\nhide = ['a', 'b']\nquiet = true\ntimeout = 0.5";
        let entries = entries(text, "file").unwrap_or_default();
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| (entry.place.as_str(), entry.name.as_str(), entry.values.len()))
            .collect();
        assert!(seen.contains(&("file, line 1", "port", 1)), "{seen:?}");
        assert!(seen.contains(&("file, line 3", "log-format", 1)), "{seen:?}");
        assert!(seen.contains(&("file, line 4", "hide", 2)), "{seen:?}");
        assert!(seen.contains(&("file, line 6", "timeout", 1)), "{seen:?}");
    }

    #[test]
    fn config_errors_are_reported_with_their_line() {
        for (text, place) in [
            ("port = ", "file, line 1: "),
            ("a = 1\na = 2", "file, line 2: "),
            ("\n[serve]\nport = 1", "file, line 2: serve is neither"),
            ("hide = [['a']]", "file, line 1: hide is neither"),
        ] {
            let message = entries(text, "file").expect_err(text);
            assert!(message.starts_with(place), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}
