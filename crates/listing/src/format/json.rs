//! A listing as JSON: one object per entry, in an array or one per line.

use std::borrow::Cow;

use serde::Serialize;

use underpass_protocol::encode_path as encode;

use super::form::{Form, Outline, PageCounts};
use crate::entry::ListedEntry;
use crate::text::rfc3339;

/// One entry as a JSON object.
#[derive(Serialize)]
struct JsonRow<'e> {
    /// The name. Bytes that are not UTF-8 are replaced: `name_bytes` and `url` are exact.
    name: Cow<'e, str>,
    /// The percent-encoded name, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    /// The size of the file in bytes; `null` for a folder.
    size: Option<u64>,
    /// The modification time in UTC, as precise as the file system stores it; `null` beyond the
    /// year 9999.
    mtime: Option<String>,
    /// The permission bits in octal as a string, because JSON has no octal numbers: `"0644"`;
    /// `null` if there are none.
    mode: Option<String>,
    /// Whether it is a folder, or a link to one.
    is_dir: bool,
    /// Whether the entry itself is a link; all other fields describe its target.
    is_symlink: bool,
    /// The URL relative to the address of the folder: `./name`, or `./name/`.
    url: String,
}

impl<'e> JsonRow<'e> {
    /// Creates the object of an entry.
    fn new(entry: &'e ListedEntry) -> Self {
        let attributes = &entry.attributes;
        let name = String::from_utf8_lossy(&entry.name);
        let is_dir = attributes.is_folder();
        let slash = if is_dir { "/" } else { "" };
        Self {
            name_bytes: matches!(name, Cow::Owned(_)).then(|| encode(&entry.name).to_string()),
            name,
            size: (!is_dir).then_some(attributes.len),
            mtime: rfc3339(attributes.modified),
            mode: attributes.permissions.map(|bits| format!("{bits:04o}")),
            is_dir,
            is_symlink: entry.is_symlink,
            url: format!("./{}{slash}", encode(&entry.name)),
        }
    }
}

/// Writes objects.
pub(crate) struct JsonForm {
    /// The text before the first object.
    opening: &'static str,
    /// The text before each further object.
    between: &'static str,
    /// The text after the last object, if there was one.
    closing: &'static str,
    /// Whether no object has been written yet.
    is_empty: bool,
}

impl JsonForm {
    /// Writes one array with an object on each line; `is_empty` is true until one is written.
    pub(crate) fn array(is_empty: bool) -> Self {
        Self { opening: "[\n", between: ",\n", closing: "\n]\n", is_empty }
    }

    /// Writes one object per line; `is_empty` is true until one is written.
    pub(crate) fn lines(is_empty: bool) -> Self {
        Self { opening: "", between: "\n", closing: "\n", is_empty }
    }
}

impl Form for JsonForm {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.opening.as_bytes());
    }

    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>) {
        if !std::mem::take(&mut self.is_empty) {
            out.extend_from_slice(self.between.as_bytes());
        }
        serde_json::to_writer(out, &JsonRow::new(entry))
            .expect("memory takes every byte, and an object has no keys but strings");
    }

    fn end(&mut self, _: &PageCounts, out: &mut Vec<u8>) {
        let closing = if self.is_empty { self.closing.trim_start() } else { self.closing };
        out.extend_from_slice(closing.as_bytes());
    }
}

/// Writes the size of a folder as one object.
pub(crate) struct SizeForm<'l>(pub(crate) &'l Outline);

impl Form for SizeForm<'_> {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn entry(&mut self, _: &ListedEntry, _: &mut Vec<u8>) {}

    fn end(&mut self, tally: &PageCounts, out: &mut Vec<u8>) {
        let PageCounts { folders, files, bytes, .. } = tally;
        let is_whole = self.0.incomplete.is_none();
        let object = format!(
            "{{\"bytes\":{bytes},\"files\":{files},\"folders\":{folders},\"complete\":{is_whole}}}\n"
        );
        out.extend_from_slice(object.as_bytes());
    }
}
