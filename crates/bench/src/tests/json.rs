//! Records as files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::records::{SCENARIOS, record};
use crate::error::Result;
use crate::record::{Counted, MissingContender, NamedCall, NetworkKind, Receivers, Record, Served};
use crate::run::RunFolder;
use crate::views::figures;

fn load(text: &str) -> Result<Record> {
    let folder = RunFolder::create(&std::env::temp_dir())?;
    fs::write(folder.file("record"), text).unwrap();
    Record::load(&folder.file("record"))
}

#[test]
fn a_record_is_read_as_it_was_written() {
    for written in SCENARIOS.map(record) {
        assert_eq!(load(&written.to_json()).unwrap(), written);
    }
    // A line for each cell and sample, and no more.
    assert_eq!(record("net").to_json().lines().count(), 5 + 8 + 13);
}

#[test]
fn control_characters_of_a_record_are_replaced() {
    let mut record = record("net");
    record.environment.cpu = "a\x1b]0;b\x07 \u{202e}c\n\u{ffff}\u{e9}".to_owned();
    let read = load(&record.to_json()).unwrap();
    assert_eq!(read.environment.cpu, "a\u{fffd}]0;b\u{fffd} \u{fffd}c\u{fffd}\u{fffd}\u{e9}");
    assert_eq!(read.samples, record.samples);
}

#[test]
fn every_field_is_documented() {
    let text = include_str!("../../../../docs/records.md");
    let mut names = BTreeSet::new();
    for record in every_form() {
        fields(&serde_json::to_value(record).unwrap(), &mut names);
    }
    for needed in ["schema", "user_space_bytes", "streamed_bytes", "commands", "p99_s", "floor"] {
        assert!(names.contains(needed), "{needed}");
    }
    for name in names {
        assert!(text.contains(&format!("`{name}`")), "docs/records.md lacks `{name}`");
    }
}

/// Records that have every field between them: committed ones and those of the tests.
fn every_form() -> Vec<Record> {
    let mut records: Vec<_> = committed().iter().map(|path| Record::load(path).unwrap()).collect();
    records.extend(SCENARIOS.map(record));
    for record in &mut records {
        // Fields that are left out if they are empty or have the usual value.
        record.arguments.over = NetworkKind::Veth;
        record.arguments.receivers = Receivers::Own;
        let calls = vec![NamedCall { name: String::new(), calls: 1, errors: 0, seconds: 0.0 }];
        record.counted = vec![Counted::while_serving(calls, 1).of(0)];
        record.missing = vec![MissingContender { name: String::new(), why: String::new() }];
        record.cells[0].connections = Some(1);
        if let Some(copies) = &mut record.copies {
            copies.missing = vec![String::new()];
        }
        record.environment.nginx = Some(String::new());
        record.environment.programs = vec![String::new()];
        for sample in &mut record.samples {
            if let Some(Served::Hostile(hostile)) = &mut sample.served {
                hostile.floor = Some(hostile.alone);
            }
        }
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
        assert!(figures(&record).contains(&record.started), "{path:?}");
    }
}

/// Returns the committed records.
fn committed() -> Vec<PathBuf> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench"));
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_damaged_or_foreign_record_is_refused_with_a_reason() {
    let text = record("net").to_json();
    for (text, reason) in [
        ("", "not a record"),
        ("[]", "not a record"),
        ("{}", "missing field `schema`"),
        (&text[..text.len() / 2], "not a record"),
        (&text.replace("\"schema\": 1", "\"schema\": 2"), "a newer underpass wrote it"),
        (&text.replace("\"cell\":3", "\"cell\":5"), "a sample of cell 5"),
        (&text.replace("sendfile", "teleport"), "no such contender"),
    ] {
        let failure = load(text).unwrap_err().to_string();
        assert!(failure.contains(reason), "{reason}: {failure}");
    }
}
