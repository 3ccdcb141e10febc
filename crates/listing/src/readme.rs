//! Finds the README of a folder.

use std::fs::File;
use std::io::Read;

use rustix::fd::BorrowedFd;
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};

use crate::{Entries, Listing};
use underpass_protocol::listing::{Format, ListingQuery};

/// The README of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Readme {
    /// The name of the file.
    pub(crate) name: &'static str,
    /// Its contents; bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
}

impl Readme {
    /// The maximum length in bytes. A longer file is only listed.
    pub const MAX_LEN: u64 = 128 << 10;

    /// Creates a README from these contents, for a folder that is not on disk.
    #[must_use]
    pub fn new(name: &'static str, bytes: &[u8]) -> Self {
        Self { name, text: String::from_utf8_lossy(bytes).into_owned() }
    }

    /// Returns whether the requested page shows a README: the first one for people, unless it shows
    /// the results of a search.
    #[must_use]
    pub fn is_shown(query: &ListingQuery) -> bool {
        query.format == Format::Html && query.after.is_none() && query.search.is_none()
    }

    /// Selects the README among the files of a folder, given by name and length.
    pub fn pick<'n>(files: impl Iterator<Item = (&'n [u8], u64)>) -> Option<&'static str> {
        let place = |(name, len): (&[u8], u64)| {
            let place = NAMES.iter().position(|known| known.as_bytes() == name);
            place.filter(|_| len <= Self::MAX_LEN)
        };
        files.filter_map(place).min().map(|place| NAMES[place])
    }
}

/// Returns the README for a page. On disk it has to be a regular file directly in the folder, not a
/// link.
pub(crate) fn find(listing: &Listing<'_>) -> Option<Readme> {
    if !Readme::is_shown(&listing.query) {
        return None;
    }
    match listing.entries {
        Entries::Folder { folder, .. } => {
            NAMES.into_iter().find_map(|name| read(listing, folder, name))
        }
        Entries::Named(entries) => entries.readme().cloned(),
    }
}

/// Reads a whole file in one version; `None` if that fails.
fn read(listing: &Listing<'_>, folder: BorrowedFd<'_>, name: &'static str) -> Option<Readme> {
    let slash = if listing.path.is_empty() { "" } else { "/" };
    let path = [listing.path, slash.as_bytes(), name.as_bytes()].concat();
    if (listing.hides)(&path, false) || !(listing.may_read)(&path) {
        return None;
    }
    // A pipe must not block, and a terminal must not become the controlling one.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(folder, name, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = File::from(file);
    let facts = || {
        let stat = fstat(&file).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
        is_file.then_some((u64::try_from(stat.st_size).ok()?, times))
    };
    let before = facts().filter(|(len, _)| *len <= Readme::MAX_LEN)?;
    let mut bytes = Vec::with_capacity(before.0 as usize);
    (&file).take(Readme::MAX_LEN + 1).read_to_end(&mut bytes).ok()?;
    if facts()? != before || bytes.len() as u64 != before.0 {
        return None;
    }
    Some(Readme::new(name, &bytes))
}

/// The names that count as a README, in order of preference.
const NAMES: [&str; 6] =
    ["README.md", "readme.md", "Readme.md", "README.txt", "README", "readme.txt"];
