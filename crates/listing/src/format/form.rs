//! The trait of all listing formats, and the values known before a listing is written.

use std::io;

use crate::entry::ListedEntry;
use crate::readme::Readme;

/// A format of a listing, which writes into a buffer.
pub(crate) trait Form {
    /// Writes the part before the entries.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// Writes one entry.
    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>);
    /// Writes the part after the entries, whose counts are in `tally`.
    fn end(&mut self, tally: &PageCounts, out: &mut Vec<u8>);
    /// Checks that everything was written.
    ///
    /// # Errors
    ///
    /// The error because of which an entry was not.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The values known before the entries are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// The counts of the page's entries, if they are held.
    pub(crate) tally: Option<PageCounts>,
    /// The number of entries before this page, not counting links that lead nowhere.
    pub(crate) before: u64,
    /// The number of entries of all pages together, counted in the same way.
    pub(crate) total: u64,
    /// A link to the rest of the listing.
    pub(crate) next_page: Option<String>,
    /// A link to the entries before this page.
    pub(crate) previous_page: Option<String>,
    /// The reason why entries may be missing.
    pub(crate) incomplete: Option<Incomplete>,
    /// Whether there is a picture among the entries.
    pub(crate) has_pictures: bool,
    /// The README of the folder, if it is shown.
    pub(crate) readme: Option<Readme>,
}

/// The reason why the result of a walk may lack entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incomplete {
    /// This number was found, and no more are shown.
    Limit(u64),
    /// The walk ended at one of its bounds, or could not read a folder.
    Walk,
}

/// The counts of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCounts {
    /// The number of folders.
    pub(crate) folders: u64,
    /// The number of files.
    pub(crate) files: u64,
    /// The number of bytes in these files.
    pub(crate) bytes: u64,
    /// The number of links that were left out.
    pub(crate) lost_links: u64,
}

impl PageCounts {
    /// Counts one more entry.
    pub(crate) fn add(&mut self, entry: &ListedEntry) {
        if entry.attributes.is_folder() {
            self.folders += 1;
        } else {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(entry.attributes.len);
        }
    }
}
