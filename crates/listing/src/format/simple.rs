//! A listing as plain text: one name per line, with a slash after the name of a folder.
//!
//! Names are written unchanged, byte by byte, unless they would break the lines: a name with a line
//! feed, a carriage return or a backslash is written as by `sha256sum`, with a backslash at the
//! start of the line, and `\n`, `\r` and `\\` in the name.

use super::form::{Form, PageCounts};
use crate::entry::ListedEntry;

/// Writes names.
pub(crate) struct SimpleForm;

impl Form for SimpleForm {
    fn begin(&mut self, _: &mut Vec<u8>) {}

    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>) {
        if entry.name.iter().any(|byte| matches!(byte, b'\n' | b'\r' | b'\\')) {
            out.push(b'\\');
            push_escaped(&entry.name, out);
        } else {
            out.extend_from_slice(&entry.name);
        }
        if entry.attributes.is_folder() {
            out.push(b'/');
        }
        out.push(b'\n');
    }

    fn end(&mut self, _: &PageCounts, _: &mut Vec<u8>) {}
}

/// Writes the name with line breaks and backslashes escaped.
fn push_escaped(name: &[u8], out: &mut Vec<u8>) {
    for &byte in name {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\\' => out.extend_from_slice(b"\\\\"),
            _ => out.push(byte),
        }
    }
}
