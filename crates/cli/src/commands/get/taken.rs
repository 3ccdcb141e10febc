//! The names that the files of one command have taken.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use rustix::fs::fstat;
use underpass_client::Url;
use underpass_client::download::{PARTIAL_ENDS, partial_names};
use underpass_client::input::list::ListedFile;
use underpass_client::tree::ignores_case;
use underpass_engine::FileId;
use underpass_engine::atomic_file::fold_case;
use underpass_engine::wait::lock;
use underpass_protocol::digest::Digest;
use underpass_receipt::shown;

use super::destination::GetDestination;
use crate::failure::{Failure, Result, WithPath};
use crate::output;

/// The files that a command has fetched, or begun to.
#[derive(Debug, Default)]
pub(super) struct TakenNames(Mutex<HashMap<Folded, Vec<TakenName>>>);

/// A folder, and a name in it as a file system may compare it that ignores case.
type Folded = (FileId, Vec<u8>);

/// The origin of a file, and the digests that it must have.
#[derive(Debug)]
struct TakenName {
    name: OsString,
    url: Url,
    digests: Vec<Digest>,
}

impl TakenNames {
    /// Records the origin of a file; returns `false` if it was named before. Another URL of the
    /// same command would replace it, or count as the same file if size and time are equal.
    pub(super) fn claim(
        &self,
        item: &ListedFile,
        to: &GetDestination,
        is_quiet: bool,
    ) -> Result<bool> {
        let GetDestination::Named { path, folder, name, .. } = to else { return Ok(true) };
        let found = fstat(folder).with_path("reading", path)?;
        let folded = |name: &OsStr| (FileId::of(&found), fold_case(name.as_bytes()));
        let mut taken = lock(&self.0);
        let alike = taken.get(&folded(name)).map_or(&[][..], Vec::as_slice);
        if let Some(earlier) = alike.iter().find(|it| it.name == *name) {
            if earlier.url == item.url && earlier.digests == item.digests {
                if !is_quiet {
                    output::note(&format!("{} was named twice", shown(&item.url)));
                }
                return Ok(false);
            }
            return Err(earlier.in_the_way(item, path, "has that name already"));
        }
        // Checked only if it matters, as the check changes the folder's mtime.
        let ignores_case = LazyCell::new(|| ignores_case(folder));
        if let Some(earlier) = alike.first().filter(|_| *ignores_case) {
            return Err(earlier.in_the_way(item, path, "has that name already in another case"));
        }
        let find = |name: &OsStr| {
            let alike = taken.get(&folded(name))?;
            alike.iter().find(|it| it.name == name || *ignores_case)
        };
        // Two files at once would write to one partial file.
        if let Some(earlier) = partial_names(name).iter().find_map(|name| find(name)) {
            return Err(earlier.in_the_way(item, path, "has the name of its partial file"));
        }
        let wholes = PARTIAL_ENDS.iter().filter_map(|end| name.as_bytes().strip_suffix(*end));
        if let Some(earlier) = wholes.map(OsStr::from_bytes).find_map(find) {
            return Err(earlier.in_the_way(item, path, "has that name until it is complete"));
        }
        let (url, digests) = (item.url.clone(), item.digests.clone());
        let taken = taken.entry(folded(name)).or_default();
        taken.push(TakenName { name: name.clone(), url, digests });
        Ok(true)
    }
}

impl TakenName {
    /// Returns the failure of another file that would have the same name.
    fn in_the_way(&self, item: &ListedFile, path: &Path, how: &str) -> Failure {
        let hint = if self.url == item.url {
            "give it the same checksum= each time"
        } else {
            "name another file with -o, or with out= in a list"
        };
        Failure::line(format!(
            "fetching {} to {}: {} {how} ({hint})",
            shown(&item.url),
            path.display(),
            shown(&self.url)
        ))
    }
}
