//! A listing as the properties of the folder and its entries. What these are, and their XML, is
//! known to the caller.

use super::form::{Form, PageCounts};
use crate::Listing;
use crate::entry::Entry;

/// Writes the properties of files and folders.
pub trait Describe {
    /// Writes the part before the first one.
    fn begin(&self, out: &mut Vec<u8>);
    /// Writes those of a path below the root, which is a folder or a file; nothing if it is gone.
    fn describe(&self, path: &[u8], is_folder: bool, out: &mut Vec<u8>);
    /// Writes the part after the last one.
    fn end(&self, out: &mut Vec<u8>);
}

/// Writes the properties of the folder itself, and then those of its entries.
pub(crate) struct MultistatusForm<'l>(pub(crate) &'l Listing<'l>);

impl Form for MultistatusForm<'_> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(describe) = self.0.describe {
            describe.begin(out);
            describe.describe(self.0.path, true, out);
        }
    }

    fn entry(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        if let Some(describe) = self.0.describe {
            let path = self.0.path_of(&entry.name);
            describe.describe(&path, entry.attributes.is_folder(), out);
        }
    }

    fn end(&mut self, _: &PageCounts, out: &mut Vec<u8>) {
        self.0.describe.into_iter().for_each(|describe| describe.end(out));
    }
}
