//! How something new gets a name that may be taken: what has the name stays whole until the new
//! thing is there, whether it is a file or a folder.

use std::ffi::{CStr, CString};
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Stat, renameat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{Existing, rename_new};

use crate::changes::refusal::Refusal;
use crate::changes::tree;

/// A name in a folder, and what has it now.
#[derive(Debug)]
pub(crate) struct DestEntry {
    pub(crate) folder: OwnedFd,
    pub(crate) name: CString,
    pub(crate) existing: Option<Stat>,
}

impl DestEntry {
    /// Has `put` give the name to something new. Whether nothing had it before is returned.
    ///
    /// A file takes the place of a file in one moment. A folder cannot: it is put aside, and put
    /// back if the new thing does not come.
    ///
    /// # Errors
    ///
    /// 412 if something else got the name first; otherwise those of `put`.
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
            // Whoever took the name meanwhile has it; the old thing is then kept under the other.
            let _ = rename(folder, &aside, folder, &self.name, Existing::Keep);
            return Err(refusal);
        }
        tree::remove(folder.as_fd(), &aside)?;
        Ok(false)
    }
}

/// Renames, and keeps or replaces what has the name.
///
/// # Errors
///
/// As renameat2(2): `EEXIST`, `EXDEV`, `EINVAL` for a folder into itself.
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

/// A name that nobody sees or can ask for, as uploads that are not complete have it. Should the
/// server be killed, what has such a name is removed after a while.
pub(crate) fn hidden_name(name: &CStr) -> CString {
    let name = name.to_bytes();
    let mut hidden = vec![b'.'];
    hidden.extend_from_slice(&name[..name.len().min(NAME_MAX - ".".len() - SUFFIX_LEN)]);
    // Two hashers of the standard library with keys of their own are 128 bits at random.
    let number = || RandomState::new().hash_one(name);
    hidden.extend_from_slice(format!(".{:016x}{:016x}.upload", number(), number()).as_bytes());
    // A name has no NUL, and so neither has this.
    CString::new(hidden).unwrap_or_default()
}

/// Bytes of a file's name at the most.
const NAME_MAX: usize = 255;

/// Bytes behind the name: a dot, 32 digits and `.upload`.
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
