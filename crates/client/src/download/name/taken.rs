//! The names that the files of one command have taken.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use rustix::fs::fstat;
use underpass_engine::FileId;
use underpass_engine::atomic_file::fold_case;
use underpass_engine::wait::lock;
use underpass_protocol::digest::Digest;
use url::Url;

use super::super::partial_file::{PARTIAL_ENDS, partial_names};
use crate::http::without_credentials;
use crate::input::list::ListedFile;
use crate::tree::ignores_case;

/// The files that a command has fetched, or begun to, by their names. Otherwise one would replace
/// another, or count as the same file if size and time are equal.
#[derive(Debug, Default)]
pub struct TakenNames(Mutex<HashMap<FoldedName, Vec<TakenName>>>);

/// A folder, and a name in it as a file system may compare it that ignores case.
type FoldedName = (FileId, Vec<u8>);

/// The origin of a file, and the digests that it must have.
#[derive(Debug)]
struct TakenName {
    name: OsString,
    url: Url,
    digests: Vec<Digest>,
}

/// The reason why a name cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The folder cannot be examined.
    #[error(transparent)]
    Folder(#[from] io::Error),
    /// Another file of the command is in the way.
    #[error("{} {how}", without_credentials(.earlier))]
    Taken {
        /// The URL of the other file.
        earlier: Url,
        /// How the names of the two meet.
        how: NameClash,
    },
}

/// How the names of two files meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameClash {
    /// They differ only in case, which the file system ignores.
    Case,
    /// One name is that of the other's partial file.
    Partial,
    /// The other file has the name until it is complete.
    UntilComplete,
    /// They are the same.
    Same,
}

impl fmt::Display for NameClash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Case => "has that name already in another case",
            Self::Partial => "has the name of its partial file",
            Self::UntilComplete => "has that name until it is complete",
            Self::Same => "has that name already",
        })
    }
}

impl TakenNames {
    /// Takes the name of a file in a folder; returns `false` if the same file was named before.
    ///
    /// # Errors
    ///
    /// [`NameError::Taken`] if it is the name of another file of the command, or of its partial file,
    /// also in another case where the file system ignores that; [`NameError::Folder`] if the folder
    /// cannot be examined.
    pub fn take(
        &self,
        item: &ListedFile,
        folder: &OwnedFd,
        name: &OsStr,
    ) -> Result<bool, NameError> {
        let id = FileId::of(&fstat(folder).map_err(io::Error::from)?);
        let folded = |name: &OsStr| (id, fold_case(name.as_bytes()));
        let mut taken = lock(&self.0);
        let alike = taken.get(&folded(name)).map_or(&[][..], Vec::as_slice);
        if let Some(earlier) = alike.iter().find(|it| it.name == *name) {
            if earlier.url == item.url && earlier.digests == item.digests {
                return Ok(false);
            }
            return Err(earlier.clash(NameClash::Same));
        }
        // Checked only if it matters, as the check changes the folder's mtime.
        let ignores_case = LazyCell::new(|| ignores_case(folder));
        if let Some(earlier) = alike.first().filter(|_| *ignores_case) {
            return Err(earlier.clash(NameClash::Case));
        }
        let find = |name: &OsStr| {
            let alike = taken.get(&folded(name))?;
            alike.iter().find(|it| it.name == name || *ignores_case)
        };
        // Two files at once would write to one partial file.
        if let Some(earlier) = partial_names(name).iter().find_map(|name| find(name)) {
            return Err(earlier.clash(NameClash::Partial));
        }
        let wholes = PARTIAL_ENDS.iter().filter_map(|end| name.as_bytes().strip_suffix(*end));
        if let Some(earlier) = wholes.map(OsStr::from_bytes).find_map(find) {
            return Err(earlier.clash(NameClash::UntilComplete));
        }
        let (url, digests) = (item.url.clone(), item.digests.clone());
        let taken = taken.entry(folded(name)).or_default();
        taken.push(TakenName { name: name.to_owned(), url, digests });
        Ok(true)
    }
}

impl TakenName {
    fn clash(&self, how: NameClash) -> NameError {
        NameError::Taken { earlier: self.url.clone(), how }
    }
}
