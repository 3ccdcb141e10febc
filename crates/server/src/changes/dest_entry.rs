//! Gives a new file or folder a name that may be taken: the existing entry stays whole until the
//! new one is in its place.

use std::ffi::{CStr, CString};
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Stat, renameat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{Existing, rename_new};

use crate::changes::refusal::Refusal;
use crate::changes::tree;

/// A name in a folder, and the entry that has it now.
#[derive(Debug)]
pub(crate) struct DestEntry {
    pub(crate) folder: OwnedFd,
    pub(crate) name: CString,
    pub(crate) existing: Option<Stat>,
}

impl DestEntry {
    /// Calls `put` to give the name to a new entry; returns whether the name was free before.
    ///
    /// A file replaces a file in one step. A folder cannot be replaced so: it is moved aside first,
    /// and moved back if `put` fails.
    ///
    /// # Errors
    ///
    /// 412 if another request or program took the name first; otherwise the errors of `put`.
    pub(crate) fn fill(
        &self,
        is_folder: bool,
        put: impl FnOnce(Existing) -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        let Some(existing) = &self.existing else {
            put(Existing::Keep)?;
            return Ok(true);
        };
        if !is_folder && tree::kind(existing) != FileType::Directory {
            put(Existing::Replace)?;
            return Ok(false);
        }
        let (folder, aside) = (&self.folder, hidden_name(&self.name));
        rename(folder, &self.name, folder, &aside, Existing::Keep)?;
        if let Err(refusal) = put(Existing::Keep) {
            // If the name was taken meanwhile, the old entry is kept under the hidden name.
            let _ = rename(folder, &aside, folder, &self.name, Existing::Keep);
            return Err(refusal);
        }
        tree::remove(folder.as_fd(), &aside)?;
        Ok(false)
    }
}

/// Renames, and keeps or replaces an entry of the new name.
///
/// # Errors
///
/// The errors of renameat2(2): `EEXIST`, `EXDEV`, `EINVAL` for a folder into itself.
pub(crate) fn rename(
    from: &OwnedFd,
    name: &CStr,
    to: &OwnedFd,
    new_name: &CStr,
    existing: Existing,
) -> Result<(), Errno> {
    if existing == Existing::Replace {
        return renameat(from, name, to, new_name);
    }
    rename_new(from, name, to, new_name)
}

/// Returns a name that is never shown or served, like those of incomplete uploads. If the server is
/// killed, an entry with such a name is removed after a while.
pub(crate) fn hidden_name(name: &CStr) -> CString {
    let name = name.to_bytes();
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(&name[..name.len().min(NAME_MAX - ".".len() - SUFFIX_LEN)]);
    // Two hashers of the standard library with keys of their own give 128 random bits.
    let number = || RandomState::new().hash_one(name);
    hidden.extend_from_slice(format!(".{:016x}{:016x}.upload", number(), number()).as_bytes());
    // A file name has no NUL, so this one has none either.
    CString::new(hidden).unwrap_or_default()
}

/// The maximum length of a file's name in bytes.
const NAME_MAX: usize = 255;

/// The number of bytes after the name: a dot, 32 digits and `.upload`.
const SUFFIX_LEN: usize = 1 + 32 + 7;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_fit_and_differ() {
        for len in [1, 10, 214, 215, 255] {
            let name = CString::new(vec![b'n'; len]).unwrap();
            let (one, other) = (hidden_name(&name), hidden_name(&name));
            assert!(one.to_bytes().len() <= NAME_MAX && one != other, "{one:?} {other:?}");
            assert!(one.to_bytes().starts_with(b".n") && one.to_bytes().ends_with(b".upload"));
        }
    }
}
