//! Finds the README of a folder.

use std::fs::File;
use std::io::Read;

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::{Entries, Listing};
use underpass_protocol::listing::Format;

/// The README of a folder.
#[derive(Clone, Debug)]
pub(crate) struct Readme {
    /// The name of the file.
    pub(crate) name: &'static str,
    /// Its contents; bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
}

/// Returns the README that belongs on a page: on the first one for people, and not among the
/// results of a search. It has to be a file in the folder itself and not a link, and on disk.
pub(crate) fn find(listing: &Listing<'_>) -> Option<Readme> {
    let query = &listing.query;
    let is_first = query.after.is_none() && query.search.is_none();
    if query.format != Format::Html || !is_first {
        return None;
    }
    let Entries::Folder { folder, .. } = listing.entries else { return None };
    NAMES.into_iter().find_map(|name| read(listing, folder, name))
}

/// Reads a file whole and in one version; `None` if that is not possible.
fn read(listing: &Listing<'_>, folder: BorrowedFd<'_>, name: &'static str) -> Option<Readme> {
    let slash = if listing.path.is_empty() { "" } else { "/" };
    let path = [listing.path, slash.as_bytes(), name.as_bytes()].concat();
    if (listing.hides)(&path, false) || !(listing.may_read)(&path) {
        return None;
    }
    // A pipe must not block, nor a terminal take over the process.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = File::from(file);
    let facts = || {
        let stat = fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
        is_file.then_some((u64::try_from(stat.st_size).ok()?, times))
    };
    let before = facts().filter(|(len, _)| *len <= MAX_LEN)?;
    let mut bytes = Vec::with_capacity(before.0 as usize);
    (&file).take(MAX_LEN + 1).read_to_end(&mut bytes).ok()?;
    if facts()? != before || bytes.len() as u64 != before.0 {
        return None;
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(Readme { name, text })
}

/// The names that are looked for, in this order.
const NAMES: [&str; 6] =
    ["README.md", "readme.md", "Readme.md", "README.txt", "README", "readme.txt"];

/// The maximum length in bytes. A longer file is only listed.
const MAX_LEN: u64 = 128 << 10;
