//! The listing of a folder: a page for people, JSON for programs, plain names for scripts.
//!
//! A folder may have a million entries, and many clients may ask at once. So a listing holds a
//! bounded number of them, [`MAX_ENTRIES`] on a page and as many again while it is picked: that takes
//! one pass that forgets what cannot be on the page. What is asked for whole and is larger goes out
//! as the kernel gives it, without order. The attributes of an entry are asked for only when they
//! are shown, or when the order depends on them.
//!
//! Whatever is listed can be fetched: a link that leads nowhere or out of the served root, a pipe, a
//! socket and a device are left out. The page says how many links were.
//!
//! All of it blocks, so it belongs on a helper thread.

mod entry;
mod format;
pub(crate) mod jobs; // those under way
pub(crate) mod make; // makes them for requests
mod page;
mod pick;
mod scan;
mod text;

use std::fmt;
use std::io;

use rustix::fd::BorrowedFd;

pub use entry::{Attributes, Resolve};
pub use format::change::May;
pub use format::html::CONTENT_SECURITY_POLICY;
pub use page::{Prepared, Unsorted};
pub use underpass_protocol::listing::{
    BadQuery, Direction, Format, ListingQuery, MAX_ENTRIES, Order, SortKey,
};

/// Entries on a page for a browser that names no limit: as many as it shows without a pause.
pub const BROWSER_LIMIT: usize = 2_000;

/// A folder, and what is to be told of it.
#[derive(Clone)]
pub struct Listing<'a> {
    /// The opened folder. Its cursor is not touched, so it may be shared.
    pub folder: BorrowedFd<'a>,
    /// Its path below the root, decoded, without slashes at the ends; empty for the root.
    ///
    /// All links are relative to the folder, so the address must end in a slash.
    pub path: &'a [u8],
    /// What the client asks.
    pub query: ListingQuery,
    /// The client is a browser: without a limit it gets [`BROWSER_LIMIT`] entries and a link to the
    /// next ones. Everybody else gets all of them, so that nothing is missed by a crawler.
    pub is_browser: bool,
    /// Names that begin with a dot are listed too.
    pub shows_hidden: bool,
    /// Whether the server hides this path below the root, which is that of a folder or is not.
    pub hides: &'a dyn Fn(&[u8], bool) -> bool,
    /// Whether the time of this entry may be shown: that of a folder tells of names that are hidden.
    pub shows_times: &'a dyn Fn(&[u8]) -> bool,
    /// What the client may change here: nothing of the rest is on the page.
    pub may: May,
    /// Offer the folder as a tar: `?archive=tar`.
    pub archive: bool,
    /// Follows links.
    pub root: &'a dyn Resolve,
}

impl<'a> Listing<'a> {
    /// Reads the folder as far as the head of the response needs it.
    ///
    /// What is small enough is then complete and sorted; anything else is read while it is written.
    ///
    /// # Errors
    ///
    /// Those of reading the folder.
    pub fn prepare(self) -> io::Result<Prepared<'a>> {
        Prepared::new(self)
    }

    /// How many entries at most; all if `None`.
    fn limit(&self) -> Option<usize> {
        let is_for_people = self.is_browser && self.query.format == Format::Html;
        self.query.limit.or(is_for_people.then_some(BROWSER_LIMIT))
    }
}

impl fmt::Debug for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing")
            .field("path", &String::from_utf8_lossy(self.path))
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}
