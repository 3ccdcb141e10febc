//! A site to serve and a folder to fetch into, and the comparison of both.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use underpass_testkit::Content;

pub(crate) use crate::rig::site::Site;

/// Whether two files have the same bytes; read by a program that is faster at it than a test.
#[track_caller]
pub(crate) fn assert_same(one: &Path, other: &Path) {
    let output = Command::new("cmp").args([one, other]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
}

/// What is in a folder: each path with its contents, folders without.
pub(crate) fn tree(folder: &Path) -> Vec<(String, Option<Vec<u8>>)> {
    let entries = underpass_testkit::tree(folder).into_iter().map(|(path, entry)| {
        let contents = match entry.content {
            Content::Folder | Content::Other => None,
            Content::File(bytes) => Some(bytes),
            Content::Link(target) => Some(target.into_vec()),
        };
        (path.as_os_str().as_bytes().escape_ascii().to_string(), contents)
    });
    entries.collect()
}

/// A name from bytes.
pub(crate) fn name(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}
