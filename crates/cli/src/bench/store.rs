//! Records as files: one JSON object, a line for each sample, so that two of them can be compared
//! by a program that compares lines.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde::Deserialize;

use super::error::BenchError;
use super::record::{Record, SCHEMA};
use crate::ends::{Overwrite, Target};
use crate::failure::{Failure, Result, WithPath};

impl Record {
    /// Reads a record.
    pub(crate) fn load(path: &Path) -> Result<Self> {
        /// What every record of every schema has.
        #[derive(Deserialize)]
        struct Head {
            schema: u64,
        }
        let text = fs::read(path).with_path("reading", path)?;
        let damaged =
            |source| Failure::Bench(BenchError::NotARecord { path: path.to_owned(), source });
        let Head { schema: found } = serde_json::from_slice(&text).map_err(damaged)?;
        if found != SCHEMA {
            return Err(Failure::Bench(BenchError::Schema { path: path.to_owned(), found }));
        }
        let record: Self = serde_json::from_slice(&text).map_err(damaged)?;
        match record.samples.iter().find(|sample| sample.cell >= record.cells.len()) {
            None => Ok(record),
            Some(stray) => {
                let message = format!("a sample of cell {}, which it has not", stray.cell);
                Err(damaged(serde::de::Error::custom(message)))
            }
        }
    }

    /// The record as JSON, a line for each cell and each sample.
    pub(crate) fn to_json(&self) -> serde_json::Result<String> {
        let fields = match serde_json::to_value(self)? {
            serde_json::Value::Object(fields) => fields,
            other => return serde_json::to_string(&other),
        };
        let mut text = String::from("{");
        for (index, (name, value)) in fields.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}\n  \"{name}\": ");
            match value {
                serde_json::Value::Array(items) => {
                    let items: Vec<_> = items.iter().map(|item| format!("    {item}")).collect();
                    let _ = write!(text, "[\n{}\n  ]", items.join(",\n"));
                }
                other => {
                    let _ = write!(text, "{other}");
                }
            }
        }
        text.push_str("\n}\n");
        Ok(text)
    }
}

/// Where a record is to go, found out to be writable before anything is measured.
#[derive(Debug)]
pub(crate) struct RecordFile {
    target: Target,
}

impl RecordFile {
    /// Prepares the file, which appears when the record is written.
    pub(crate) fn prepare(path: &Path) -> Result<Self> {
        Ok(Self { target: Target::create(path, Overwrite::Always)? })
    }

    /// Writes the record.
    pub(crate) fn write(self, record: &Record) -> Result<()> {
        let text = record.to_json().map_err(std::io::Error::from);
        let text = text.with_path("writing", self.target.path())?;
        let mut file = self.target.file();
        file.write_all(text.as_bytes()).with_path("writing", self.target.path())?;
        self.target.finish(text.len() as u64)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bench::data::Folder;
    use crate::bench::fixture::net_record;
    use crate::bench::serve::fairness_record;
    use crate::bench::transfer::put_record;

    fn load(text: &str) -> Result<Record> {
        let folder = Folder::create(&std::env::temp_dir())?;
        fs::write(folder.file("record"), text).unwrap();
        Record::load(&folder.file("record"))
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let text = net_record().to_json().unwrap();
        assert_eq!(load(&text).unwrap(), net_record());
        let with_servers = fairness_record();
        assert_eq!(load(&with_servers.to_json().unwrap()).unwrap(), with_servers);
        let with_clients = put_record();
        assert_eq!(load(&with_clients.to_json().unwrap()).unwrap(), with_clients);
        let with_copies = crate::bench::cp::cp_record();
        assert_eq!(load(&with_copies.to_json().unwrap()).unwrap(), with_copies);
        // A line for each cell and sample, and no more.
        assert_eq!(text.lines().count(), 5 + 8 + 13);
    }

    #[test]
    fn the_committed_records_are_still_read_and_have_a_table() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"));
        let records: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
        assert!(records.len() >= 8, "{records:?}");
        for entry in records {
            let record = Record::load(&entry.path()).unwrap();
            assert!(crate::bench::render(&record).contains(&record.started), "{entry:?}");
        }
    }

    #[test]
    fn a_damaged_or_foreign_record_is_refused_with_a_reason() {
        let text = net_record().to_json().unwrap();
        for (text, reason) in [
            ("", "not a record"),
            ("[]", "not a record"),
            ("{}", "missing field `schema`"),
            (&text[..text.len() / 2], "not a record"),
            (&text.replace("\"schema\": 1", "\"schema\": 2"), "a record of schema 2"),
            (&text.replace("\"cell\":3", "\"cell\":5"), "a sample of cell 5"),
            (&text.replace("sendfile", "teleport"), "no such way"),
        ] {
            let failure = load(text).unwrap_err().to_string();
            assert!(failure.contains(reason), "{reason}: {failure}");
        }
    }
}
