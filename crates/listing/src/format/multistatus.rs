//! A listing as the properties of the folder and its entries. The caller knows what these are and
//! writes their XML.

use std::io;

use super::form::{Form, PageCounts};
use crate::Listing;
use crate::entry::ListedEntry;

/// Writes the properties of files and folders.
pub trait Describe {
    /// Writes the part before the first resource.
    fn begin(&self, out: &mut Vec<u8>);
    /// Writes the properties of the folder or file at a path below the root; nothing if it is gone.
    ///
    /// # Errors
    ///
    /// The errors of reading the entry.
    fn describe(&self, path: &[u8], is_folder: bool, out: &mut Vec<u8>) -> io::Result<()>;
    /// Writes the part after the last resource.
    fn end(&self, out: &mut Vec<u8>);
}

/// Writes the properties of the folder itself, and then those of its entries.
pub(crate) struct MultistatusForm<'l> {
    listing: &'l Listing<'l>,
    failure: Option<io::Error>,
}

impl<'l> MultistatusForm<'l> {
    /// Creates the form of a listing.
    pub(crate) fn new(listing: &'l Listing<'l>) -> Self {
        Self { listing, failure: None }
    }

    fn describe(&mut self, path: &[u8], is_folder: bool, out: &mut Vec<u8>) {
        if let Some(describe) = self.listing.describe
            && let Err(error) = describe.describe(path, is_folder, out)
        {
            self.failure.get_or_insert(error);
        }
    }
}

impl Form for MultistatusForm<'_> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.listing.describe.into_iter().for_each(|describe| describe.begin(out));
        self.describe(self.listing.path, true, out);
    }

    fn entry(&mut self, entry: &ListedEntry, out: &mut Vec<u8>) {
        self.describe(&self.listing.path_of(&entry.name), entry.attributes.is_folder(), out);
    }

    fn end(&mut self, _: &PageCounts, out: &mut Vec<u8>) {
        self.listing.describe.into_iter().for_each(|describe| describe.end(out));
    }

    fn check(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}
