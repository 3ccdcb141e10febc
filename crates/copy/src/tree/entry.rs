//! An entry of a folder that is to be copied, and the listed names that are not entries yet.

use std::ffi::{CStr, CString};

use rustix::fs::FileType;

/// An entry of a folder that is to be copied.
#[derive(Clone, Debug)]
pub(crate) struct SourceEntry {
    /// Its name; that of a source is a path.
    pub(crate) name: CString,
    /// Its new name, if it gets one.
    pub(crate) new_name: Option<CString>,
    /// Its type, if the listing tells it.
    pub(crate) kind: FileType,
    /// Whether it is followed if it is a link.
    pub(crate) follows: bool,
    /// Its inode number, by which files are roughly ordered on disk.
    pub(crate) number: u64,
    /// The entries of a folder that are copied; all of them if none are named.
    pub(crate) only: Option<Vec<Self>>,
}

impl SourceEntry {
    /// Returns its name in the target.
    pub(crate) fn target(&self) -> &CStr {
        self.new_name.as_deref().unwrap_or(&self.name)
    }
}

/// The names that were read from a folder, in as few bytes as possible: there may be millions.
#[derive(Debug, Default)]
pub(crate) struct ListedNames {
    /// For each entry its inode number, its type, and its name with a zero byte at the end.
    bytes: Vec<u8>,
    /// The offset of the next entry.
    at: usize,
}

impl ListedNames {
    /// Adds a name.
    pub(crate) fn push(&mut self, number: u64, kind: FileType, name: &CStr) {
        self.bytes.extend(number.to_ne_bytes());
        self.bytes.push((kind.as_raw_mode() >> TYPE_SHIFT) as u8);
        self.bytes.extend(name.to_bytes_with_nul());
    }

    /// Returns whether no name is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Takes the next name.
    pub(crate) fn next(&mut self) -> Option<(u64, FileType, CString)> {
        let (number, rest) = self.bytes[self.at..].split_first_chunk()?;
        let (&kind, rest) = rest.split_first()?;
        let name = CStr::from_bytes_until_nul(rest).ok()?;
        self.at += size_of::<u64>() + 1 + name.count_bytes() + 1;
        let kind = FileType::from_raw_mode(u32::from(kind) << TYPE_SHIFT);
        Some((u64::from_ne_bytes(*number), kind, name.to_owned()))
    }
}

/// Bits of a mode below the type.
const TYPE_SHIFT: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listed_names_are_returned_in_the_order_of_insertion() {
        let added = [
            (7, FileType::RegularFile, c"a"),
            (u64::MAX, FileType::Unknown, c""),
            (0, FileType::Directory, c"\xff\n b"),
            (1, FileType::Socket, c"c"),
        ];
        let mut names = ListedNames::default();
        for (number, kind, name) in added {
            names.push(number, kind, name);
        }
        for (number, kind, name) in added {
            assert!(!names.is_empty());
            assert_eq!(names.next(), Some((number, kind, name.to_owned())));
        }
        assert!(names.is_empty() && names.next().is_none());
    }
}
