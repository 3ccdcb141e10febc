//! The listing of a folder: a page for people, one for programs that follow links, JSON, plain
//! names for scripts. Its entries come from a folder on disk or from an object store.
//!
//! A folder may have a million entries, and many clients may request it at once. So a listing holds
//! a limited number of entries, [`MAX_ENTRIES`] for a page and as many again while they are
//! selected, in one pass that drops entries which cannot be on the page. A larger listing that is
//! requested as a whole is sent in the kernel's order. The attributes of an entry are read only if
//! they are shown, or if the order depends on them.
//!
//! Every listed entry can be fetched: broken links and those out of the served root, pipes, sockets
//! and devices are left out. The page reports how many links were left out.
//!
//! All functions block, so they must run on a helper thread.
//!
//! A folder that is not on disk, as names on lines:
//!
//! ```
//! use underpass_listing::{
//!     ChangeRights, Entries, Format, Listing, ListingQuery, NamedEntries, NamedEntry,
//! };
//!
//! struct Names(Vec<&'static str>);
//!
//! impl NamedEntries for Names {
//!     fn get(&self, index: usize) -> Option<NamedEntry<'_>> {
//!         let name = self.0.get(index)?.as_bytes();
//!         Some(NamedEntry { name, is_folder: false, len: 0, modified: None })
//!     }
//! }
//!
//! let listing = Listing {
//!     entries: Entries::Named(&Names(vec!["disk.img", "boot.img"])),
//!     path: b"images",
//!     query: ListingQuery { format: Format::Simple, ..ListingQuery::default() },
//!     is_browser: false,
//!     shows_hidden: false,
//!     hides: &|_, _| false,
//!     shows_times: &|_| true,
//!     may_read: &|_| true,
//!     may: ChangeRights::default(),
//!     archive: false,
//!     walks: false,
//!     is_wanted: &|| true,
//!     describe: None,
//! };
//! let mut text = Vec::new();
//! listing.prepare()?.write(&mut |bytes| {
//!     text.extend(bytes);
//!     Ok(())
//! })?;
//! assert_eq!(text, b"boot.img\ndisk.img\n");
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod below;
mod entry;
mod format;
mod page;
mod pick;
mod readme;
mod scan;
mod text;

use std::fmt;
use std::io;

pub use entry::{Attributes, Entries, NamedEntries, NamedEntry, Resolve};
pub use format::change::ChangeRights;
pub use format::html::{CONTENT_SECURITY_POLICY, ICON};
pub use format::multistatus::Describe;
pub use page::{Prepared, Unsorted};
pub use readme::Readme;
pub use scan::{check_exists, leads_nowhere};
use underpass_protocol::listing::PageCursor;
pub use underpass_protocol::listing::{
    BadQuery, Format, ListingQuery, MAX_ENTRIES, Order, SortDirection, SortKey,
};

/// The page size for a browser that sets no limit: the largest that it shows without a delay.
pub const BROWSER_LIMIT: usize = 2_000;

/// A folder, and the options of its listing.
#[derive(Clone)]
pub struct Listing<'a> {
    /// The source of its entries.
    pub entries: Entries<'a>,
    /// The decoded path below the root, without slashes at the ends; empty for the root.
    ///
    /// All links are relative to the folder, so the address must end in a slash.
    pub path: &'a [u8],
    /// The query of the request.
    pub query: ListingQuery,
    /// Whether the client is a browser: without a limit it gets [`BROWSER_LIMIT`] entries and a
    /// link to the next page. Other clients get all entries, so that a crawler misses none.
    pub is_browser: bool,
    /// Whether names that begin with a dot are listed too.
    pub shows_hidden: bool,
    /// Returns whether the server hides a path below the root; the flag is true for a folder.
    pub hides: &'a dyn Fn(&[u8], bool) -> bool,
    /// Returns whether the time of an entry may be shown: that of a folder can reveal hidden names.
    pub shows_times: &'a dyn Fn(&[u8]) -> bool,
    /// Returns whether the client may read the file at a path below the root; a README is shown
    /// only then.
    pub may_read: &'a dyn Fn(&[u8]) -> bool,
    /// The changes that the client may make here; the page offers no others.
    pub may: ChangeRights,
    /// Whether the page offers folders as archives: `?archive=zip`, `?archive=tar`.
    pub archive: bool,
    /// Whether the folders below can be searched and measured; only those on disk can be.
    pub walks: bool,
    /// Returns whether a client still waits for the listing; a walk through all folders below ends
    /// soon after none does.
    pub is_wanted: &'a dyn Fn() -> bool,
    /// Writes the properties of entries, for [`Format::Multistatus`]; that is empty without this.
    pub describe: Option<&'a dyn Describe>,
}

impl<'a> Listing<'a> {
    /// Reads as much of the folder as the response head needs.
    ///
    /// A small listing is then complete and sorted; a larger one is read while it is written.
    ///
    /// # Errors
    ///
    /// The errors of reading the folder.
    pub fn prepare(self) -> io::Result<Prepared<'a>> {
        Prepared::new(self)
    }

    /// Returns the path of an entry below the root.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() {
            return name.to_vec();
        }
        [self.path, name].join(&b'/')
    }

    /// Returns the position after which the listing starts. Programs that page by the names in JSON
    /// omit the slash of a folder's cursor, so the type of the entry with this name is looked up.
    fn start(&self) -> Option<PageCursor<'_>> {
        let start = self.query.start()?;
        let is_by_name = self.query.order.key == SortKey::Name;
        let is_folder = start.is_folder || (is_by_name && scan::is_folder(self, start.name));
        Some(PageCursor { is_folder, ..start })
    }

    /// Returns the maximum number of entries, or `None` for all.
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
