//! Records as files: one JSON object, a line for each sample, so that two of them can be compared
//! by a program that compares lines.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::record::{Record, SCHEMA};
use crate::error::{BenchError, Result, WithPath};

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// [`BenchError::Path`] if the file cannot be read, [`BenchError::NotARecord`] or
    /// [`BenchError::Schema`] if it is no record of this schema.
    pub fn load(path: &Path) -> Result<Self> {
        /// What every record of every schema has.
        #[derive(Deserialize)]
        struct Head {
            schema: u64,
        }
        let text = fs::read(path).with_path("reading", path)?;
        let damaged = |source| BenchError::NotARecord { path: path.to_owned(), source };
        let Head { schema: found } = serde_json::from_slice(&text).map_err(damaged)?;
        if found != SCHEMA {
            return Err(BenchError::Schema { path: path.to_owned(), found });
        }
        let record: Self = serde_json::from_slice(&text).map_err(damaged)?;
        let record = tamed(record).map_err(damaged)?;
        match record.samples.iter().find(|sample| sample.cell >= record.cells.len()) {
            None => Ok(record),
            Some(stray) => {
                let message = format!("a sample of cell {}, which it has not", stray.cell);
                Err(damaged(serde::de::Error::custom(message)))
            }
        }
    }

    /// The record as JSON, a line for each cell and each sample.
    pub fn to_json(&self) -> String {
        let value = serde_json::to_value(self).expect("a record has no keys but strings");
        let Value::Object(fields) = value else { return value.to_string() };
        let mut text = String::from("{");
        for (index, (name, value)) in fields.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}\n  \"{name}\": ");
            match value {
                Value::Array(items) => {
                    let items: Vec<_> = items.iter().map(|item| format!("    {item}")).collect();
                    let _ = write!(text, "[\n{}\n  ]", items.join(",\n"));
                }
                other => {
                    let _ = write!(text, "{other}");
                }
            }
        }
        text.push_str("\n}\n");
        text
    }
}

/// The record with nothing in its texts that could do something to a terminal, or that is not
/// allowed in XML: whoever made it may mean ill.
fn tamed(record: Record) -> serde_json::Result<Record> {
    let mut value = serde_json::to_value(&record)?;
    if !tame(&mut value) {
        return Ok(record);
    }
    serde_json::from_value(value)
}

/// Replaces what is not harmless in all texts; tells whether there was any.
fn tame(value: &mut Value) -> bool {
    match value {
        Value::String(text) if text.contains(is_wild) => {
            *text = text.replace(is_wild, "\u{fffd}");
            true
        }
        Value::Array(items) => items.iter_mut().map(tame).fold(false, |any, was| any | was),
        Value::Object(fields) => fields.values_mut().map(tame).fold(false, |any, was| any | was),
        _ => false,
    }
}

/// Controls, what turns the direction of a line around, and what is no character.
const fn is_wild(letter: char) -> bool {
    matches!(
        letter,
        '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{fffe}'
            | '\u{ffff}'
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::*;
    use crate::counted::{Call, Missing, Tally};
    use crate::data::Folder;
    use crate::fixture::net_record;
    use crate::record::{Over, Receivers};
    use crate::serve::{fairness_record, idle_record, requests_record};
    use crate::transfer::{get_record, put_record, tree_record};

    fn load(text: &str) -> Result<Record> {
        let folder = Folder::create(&std::env::temp_dir())?;
        fs::write(folder.file("record"), text).unwrap();
        Record::load(&folder.file("record"))
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = net_record().to_json();
        assert_eq!(load(&text).unwrap(), net_record());
        let with_servers = fairness_record();
        assert_eq!(load(&with_servers.to_json()).unwrap(), with_servers);
        let with_clients = put_record();
        assert_eq!(load(&with_clients.to_json()).unwrap(), with_clients);
        let with_copies = crate::cp::cp_record();
        assert_eq!(load(&with_copies.to_json()).unwrap(), with_copies);
        // A line for each cell and sample, and no more.
        assert_eq!(text.lines().count(), 5 + 8 + 13);
    }

    #[test]
    fn what_could_harm_a_terminal_is_replaced() {
        let mut record = net_record();
        record.environment.cpu = "a\x1b]0;b\x07 \u{202e}c\n\u{ffff}\u{e9}".to_owned();
        let read = load(&record.to_json()).unwrap();
        assert_eq!(read.environment.cpu, "a\u{fffd}]0;b\u{fffd} \u{fffd}c\u{fffd}\u{fffd}\u{e9}");
        assert_eq!(read.samples, record.samples);
    }

    #[test]
    fn every_field_is_told_of_in_the_documentation() {
        let text = include_str!("../../../docs/records.md");
        let mut names = BTreeSet::new();
        for record in every_form() {
            fields(&serde_json::to_value(record).unwrap(), &mut names);
        }
        for needed in ["schema", "user_space_bytes", "streamed_bytes", "commands", "p99_s"] {
            assert!(names.contains(needed), "{needed}");
        }
        for name in names {
            assert!(text.contains(&format!("`{name}`")), "docs/records.md lacks `{name}`");
        }
    }

    /// Records that have every field between them: committed ones and those of the tests.
    fn every_form() -> Vec<Record> {
        let mut records: Vec<_> =
            committed().iter().map(|path| Record::load(path).unwrap()).collect();
        records.push(crate::cp::cp_record());
        records.extend([net_record(), fairness_record(), requests_record(), idle_record()]);
        records.extend([get_record(), put_record(), tree_record()]);
        for record in &mut records {
            // What is left out where it is empty or what it mostly is.
            record.arguments.over = Over::Veth;
            record.arguments.receivers = Receivers::Own;
            let calls = vec![Call { name: String::new(), calls: 1, errors: 0, seconds: 0.0 }];
            record.counted = vec![Tally::while_serving(calls, 1).of(0)];
            record.missing = vec![Missing { name: String::new(), why: String::new() }];
            record.cells[0].connections = Some(1);
            if let Some(copies) = &mut record.copies {
                copies.missing = vec![String::new()];
            }
            record.environment.nginx = Some(String::new());
            record.environment.programs = vec![String::new()];
            if let Some(setting) = &mut record.arguments.serve {
                setting.tls = true;
                setting.sparse_from = Some(1);
            }
            if let Some(transfers) = &mut record.arguments.transfers {
                transfers.missing = vec![String::new()];
            }
        }
        records
    }

    /// The names of all fields of a value.
    fn fields(value: &Value, names: &mut BTreeSet<String>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| fields(item, names)),
            Value::Object(object) => {
                for (name, field) in object {
                    names.insert(name.clone());
                    fields(field, names);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn the_committed_records_are_still_read_and_have_a_table() {
        let records = committed();
        assert!(records.len() >= 8, "{records:?}");
        for path in records {
            let record = Record::load(&path).unwrap();
            assert!(crate::table::render(&record).contains(&record.started), "{path:?}");
        }
    }

    /// The committed records; what the rig counts is none.
    fn committed() -> Vec<PathBuf> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"));
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        paths.filter(|path| !path.to_string_lossy().contains("/rig-")).collect()
    }

    #[test]
    fn a_damaged_or_foreign_record_is_refused_with_a_reason() {
        let text = net_record().to_json();
        for (text, reason) in [
            ("", "not a record"),
            ("[]", "not a record"),
            ("{}", "missing field `schema`"),
            (&text[..text.len() / 2], "not a record"),
            (&text.replace("\"schema\": 1", "\"schema\": 2"), "a newer underpass wrote it"),
            (&text.replace("\"cell\":3", "\"cell\":5"), "a sample of cell 5"),
            (&text.replace("sendfile", "teleport"), "no such way"),
        ] {
            let failure = load(text).unwrap_err().to_string();
            assert!(failure.contains(reason), "{reason}: {failure}");
        }
    }
}
