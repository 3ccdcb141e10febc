//! Records as files: one JSON object with a line for each sample, which a line-based diff can show.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use underpass_engine::printable::changes_display;

use crate::error::{Result, WithPath};
use crate::record::{Record, SCHEMA};
use crate::scenarios;

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`BenchError::Path`](crate::BenchError::Path) if the file cannot be read, or is not a record
    /// of a schema and a scenario that this program knows.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_path("reading", path)?;
        Ok(Self::parse(&text).map_err(io::Error::other).with_path("reading", path)?)
    }

    pub(crate) fn parse(text: &[u8]) -> std::result::Result<Self, String> {
        let damaged = |error: serde_json::Error| format!("not a record of a bench: {error}");
        let mut value: Value = serde_json::from_slice(text).map_err(damaged)?;
        let schema = value.get("schema").and_then(Value::as_u64);
        let schema = schema.ok_or("not a record of a bench: missing field `schema`")?;
        if schema != SCHEMA {
            let newer = if schema > SCHEMA { "; a newer underpass wrote it" } else { "" };
            return Err(format!("a record of schema {schema}, this program reads {SCHEMA}{newer}"));
        }
        sanitize(&mut value);
        let mut record = Self::deserialize(value).map_err(damaged)?;
        let unknown = || format!("not a record of a bench: no scenario '{}'", record.scenario);
        record.about = scenarios::find(&record.scenario).ok_or_else(unknown)?;
        let mut cells = record.samples.iter().map(|sample| sample.cell);
        match cells.find(|cell| *cell >= record.cells.len()) {
            None => Ok(record),
            Some(cell) => Err(format!(
                "not a record of a bench: a sample of cell {cell}, which does not exist"
            )),
        }
    }

    /// Returns the record as JSON, a line for each cell and each sample.
    #[must_use]
    pub fn to_json(&self) -> String {
        let value = serde_json::to_value(self).expect("a record has no keys but strings");
        let Value::Object(fields) = value else { return value.to_string() };
        let field = |(name, value): (&String, &Value)| match value {
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| format!("    {item}")).collect();
                format!("  \"{name}\": [\n{}\n  ]", items.join(",\n"))
            }
            other => format!("  \"{name}\": {other}"),
        };
        let fields: Vec<_> = fields.iter().map(field).collect();
        format!("{{\n{}\n}}\n", fields.join(",\n"))
    }
}

/// Replaces characters in all texts that could control a terminal, or are not allowed in XML: the
/// file may come from anywhere.
fn sanitize(value: &mut Value) {
    match value {
        Value::String(text) if text.contains(is_unsafe_to_show) => {
            *text = text.replace(is_unsafe_to_show, "\u{fffd}")
        }
        Value::Array(items) => items.iter_mut().for_each(sanitize),
        Value::Object(fields) => fields.values_mut().for_each(sanitize),
        _ => {}
    }
}

/// Returns whether a character changes how others are shown, or is not a character.
const fn is_unsafe_to_show(letter: char) -> bool {
    changes_display(letter) || matches!(letter, '\u{fffe}' | '\u{ffff}')
}
