//! The entries below a folder, for comparison with those of another one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

/// The contents of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// A folder.
    Folder,
    /// The bytes of a file.
    File(Vec<u8>),
    /// The target of a symbolic link.
    Link(OsString),
    /// A pipe, a socket or a device, which is not opened.
    Other,
}

/// One entry of a tree.
#[derive(Clone, Debug)]
pub struct TreeEntry {
    /// Its contents.
    pub content: Content,
    /// Its metadata; for a symbolic link, that of the link.
    pub facts: Metadata,
}

/// Returns every entry below a folder by its relative path, without the folder itself.
///
/// # Panics
///
/// If a part of it cannot be read.
#[must_use]
pub fn tree(root: &Path) -> BTreeMap<PathBuf, TreeEntry> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(root.join(&at)).unwrap() {
            let entry = entry.unwrap();
            let (path, facts) = (at.join(entry.file_name()), entry.metadata().unwrap());
            let content = if facts.is_dir() {
                open.push(path.clone());
                Content::Folder
            } else if facts.is_symlink() {
                Content::Link(fs::read_link(entry.path()).unwrap().into_os_string())
            } else if facts.is_file() {
                Content::File(fs::read(entry.path()).unwrap())
            } else {
                Content::Other
            };
            found.insert(path, TreeEntry { content, facts });
        }
    }
    found
}

/// File names that have caused bugs in some program.
pub const AWKWARD_NAMES: [&str; 16] = [
    "plain",
    "with space",
    " ",
    "new\nline",
    "tab\t",
    "\"quotes'`",
    "-rf",
    "--help",
    "back\\slash",
    "*?[a]",
    "\u{e4}\u{1f600}",
    "a:b",
    ":colon",
    "%41",
    "~",
    "#hash",
];
