//! What every form of a listing has to write, and what it knows of the page before it does.

use crate::listing::entry::Entry;

/// A form of a listing, which writes itself into a buffer.
pub(crate) trait Form {
    /// Writes what stands before the entries.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// Writes one entry.
    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>);
    /// Writes what stands after the entries, whose count is `tally`.
    fn end(&mut self, tally: &Tally, out: &mut Vec<u8>);
}

/// What is known before the entries are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// The entries of the page, if they are held.
    pub(crate) tally: Option<Tally>,
    /// Entries before this page, and in all pages together, links that lead nowhere aside.
    pub(crate) before: u64,
    /// See `before`.
    pub(crate) total: u64,
    /// A link to the rest.
    pub(crate) next_page: Option<String>,
}

/// How much there is on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Folders.
    pub(crate) folders: u64,
    /// Files.
    pub(crate) files: u64,
    /// Bytes in these files.
    pub(crate) bytes: u64,
    /// Links that were left out.
    pub(crate) lost_links: u64,
}

impl Tally {
    /// Counts one more entry.
    pub(crate) fn add(&mut self, entry: &Entry) {
        if entry.attributes.is_folder() {
            self.folders += 1;
        } else {
            self.files += 1;
            self.bytes = self.bytes.saturating_add(entry.attributes.len);
        }
    }
}
