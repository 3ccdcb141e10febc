//! The folders above sources that keep their whole path.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::FileType;

use crate::tree::entry::SourceEntry;

/// The folders above sources whose paths are all absolute or all relative, each once.
#[derive(Debug, Default)]
pub(super) struct Parents {
    names: BTreeMap<CString, Parent>,
    /// The source whose path has no name that could be kept, `.` or `/`: its contents are copied.
    contents: Option<SourceEntry>,
}

/// One name of the path of a source.
#[derive(Debug, Default)]
struct Parent {
    /// The path that it is opened by: only that of the first one is not a name.
    path: CString,
    source: Option<SourceEntry>,
    below: Parents,
}

impl Parents {
    /// Adds a source, and returns whether it is new.
    pub(super) fn add(&mut self, path: &Path, kind: FileType, follows: bool) -> bool {
        let is_absolute = path.is_absolute();
        let names: Vec<&OsStr> = path
            .components()
            .filter_map(|each| match each {
                Component::Normal(name) => Some(name),
                _ => None,
            })
            .collect();
        let number = 0;
        if names.is_empty() {
            let name = CString::new(path.as_os_str().as_bytes()).unwrap_or_default();
            let new_name = Some(c".".to_owned());
            let source = SourceEntry { name, new_name, kind, follows, number, only: None };
            return self.contents.replace(source).is_none();
        }
        let mut parents = self;
        for (index, name) in names.iter().enumerate() {
            // A path that could be looked up has no zero byte in it.
            let own = CString::new(name.as_bytes()).unwrap_or_default();
            let path = if index == 0 && is_absolute {
                CString::new([b"/", name.as_bytes()].concat()).unwrap_or_default()
            } else {
                own.clone()
            };
            let parent = parents.names.entry(own.clone()).or_default();
            parent.path.clone_from(&path);
            if index + 1 == names.len() {
                let new_name = Some(own);
                let source =
                    SourceEntry { name: path, new_name, kind, follows, number, only: None };
                return parent.source.replace(source).is_none();
            }
            parents = &mut parent.below;
        }
        false
    }

    /// Returns the entries that copy all sources.
    pub(super) fn into_entries(self, recursive: bool) -> Vec<SourceEntry> {
        let mut entries: Vec<_> = self.contents.into_iter().collect();
        // These contents include all other sources.
        if recursive && !entries.is_empty() {
            return entries;
        }
        for (name, Parent { path, source, below }) in self.names {
            let is_whole =
                recursive && source.as_ref().is_some_and(|it| it.kind == FileType::Directory);
            entries.extend(source);
            // A folder that is copied includes everything in it.
            if !is_whole && !below.names.is_empty() {
                entries.push(SourceEntry {
                    name: path,
                    new_name: Some(name),
                    kind: FileType::Directory,
                    follows: true,
                    number: 0,
                    only: Some(below.into_entries(recursive)),
                });
            }
        }
        entries
    }
}
