//! The listings made for requests, and their bounds: a few threads, one text for all requests that
//! wait for the same listing, and a limit on the memory for texts.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::watch;
use underpass_cache::FolderListing;
use underpass_dav::request::Propfind;
use underpass_engine::FileId;
use underpass_listing::{ChangeRights, ListingQuery, NamedEntries, NamedEntry, Readme};

use crate::listing::pack::Packing;
use crate::server::limits::batches::Batches;
use crate::server::limits::client_budget::{ClientBudget, Reservation};
use crate::server::limits::disk_queue::DiskQueue;
use underpass_protocol::request::ClientNet;

/// Where the entries of a listing come from.
#[derive(Debug)]
pub(crate) enum FolderSource {
    /// A folder on disk.
    Disk(OwnedFd),
    /// A folder of an object store.
    Store(Arc<FolderListing>),
}

/// The entries of a folder of an object store, and its README.
#[derive(Debug)]
pub(crate) struct StoreEntries<'l>(pub(crate) &'l FolderListing, pub(crate) Option<&'l Readme>);

impl NamedEntries for StoreEntries<'_> {
    fn readme(&self) -> Option<&Readme> {
        self.1
    }

    fn get(&self, index: usize) -> Option<NamedEntry<'_>> {
        let entry = self.0.entries.get(index)?;
        Some(NamedEntry {
            name: &entry.name,
            is_folder: entry.size.is_none(),
            len: entry.size.unwrap_or(0),
            modified: entry.modified,
        })
    }
}

/// A requested listing.
#[derive(Debug)]
pub(crate) struct ListTask {
    pub(crate) folder: FolderSource,
    pub(crate) what: ListingRequest,
}

/// The content of a listing; two requests with equal values share one listing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListingRequest {
    /// The number of the site.
    pub(crate) site: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) query: ListingQuery,
    pub(crate) is_browser: bool,
    pub(crate) is_head: bool,
    pub(crate) may: ChangeRights,
    pub(crate) user: Option<Arc<str>>,
    /// Whether only names that lead to something the user may read are listed.
    pub(crate) is_partial: bool,
    pub(crate) packing: Packing,
    /// The properties that are listed, for [`Format::Multistatus`](underpass_listing::Format).
    pub(crate) properties: Option<Arc<Propfind>>,
    /// The README of a folder of an object store, for its page.
    pub(crate) readme: Option<Arc<Readme>>,
}

/// The values that the response head of a listing needs.
#[derive(Clone, Debug)]
pub(crate) struct ListingHead {
    pub(crate) media_type: &'static str,
    pub(crate) next_page: Option<String>,
    /// Whether a walk ended before it had seen everything.
    pub(crate) is_incomplete: bool,
    /// Whether it has more entries than can be sorted.
    pub(crate) is_unsorted: bool,
}

/// A folder that several clients request.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    pub(crate) source: FolderSource,
    pub(crate) request: ListingRequest,
}

/// The folder and the requested listing.
pub(crate) type ListingKey = (FolderId, ListingRequest);

/// Identifies a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FolderId {
    /// The folder that was opened.
    Disk(FileId),
    /// The number of the listing that the store has sent.
    Store(u64),
}

/// The result of making a listing.
pub(crate) type ListingResult = Result<(ListingHead, Text), Errno>;

/// The text of a listing, for each client that waited for it.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    /// No text, for a HEAD request.
    None,
    /// A text in memory.
    Shared(watch::Receiver<PartialListing>),
    /// A text that is made for each client.
    Own(Arc<ListedFolder>),
}

/// The part of a text that is made so far.
#[derive(Debug)]
pub(crate) struct PartialListing {
    pub(crate) pieces: Vec<Arc<[u8]>>,
    pub(crate) is_whole: bool,
    pub(crate) held: Option<Reservation>,
    /// The queue whose thread frees the text.
    pub(crate) release: Arc<DiskQueue>,
}

impl PartialListing {
    /// Creates a text that is complete.
    pub(crate) fn whole(listings: &Listings, pieces: Vec<Arc<[u8]>>, held: Reservation) -> Self {
        let held = Some(held);
        Self { pieces, is_whole: true, held, release: Arc::clone(&listings.release) }
    }

    /// Creates an empty text that is being made.
    pub(crate) fn begun(listings: &Listings, held: Reservation) -> Self {
        let release = Arc::clone(&listings.release);
        Self { pieces: Vec::new(), is_whole: false, held: Some(held), release }
    }

    /// Reserves memory for this many bytes in all; returns false if there is none.
    pub(crate) fn resize(&mut self, len: u64) -> bool {
        self.held.as_mut().is_none_or(|held| held.resize(len))
    }

    /// Returns the number of bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl Drop for PartialListing {
    /// Frees a long text on another thread: that takes milliseconds, and the last reference may be
    /// dropped by a worker.
    fn drop(&mut self) {
        if self.len() > SHORT_TEXT {
            let text = (std::mem::take(&mut self.pieces), self.held.take());
            // The memory for texts bounds the number of these jobs. Without a thread, the text is
            // freed here.
            let _ = self.release.resume(ClientNet::of(None), move || drop(text));
        }
    }
}

/// The state of listings that all workers share.
#[derive(Debug)]
pub(crate) struct Listings {
    pub(crate) batches: Batches<ListingKey, ListingResult>,
    /// The queue of folders with few entries, judged by their size.
    pub(crate) quick: Arc<DiskQueue>,
    /// The queue of all other folders.
    pub(crate) long: Arc<DiskQueue>,
    /// The queue of searches and sizes, which walk through all folders below one.
    pub(crate) walks: Arc<DiskQueue>,
    pub(crate) memory: Arc<ClientBudget>,
    /// The queue of long texts that are to be freed.
    pub(crate) release: Arc<DiskQueue>,
    /// The number of clients to which a separate text may be sent.
    pub(crate) streams: Arc<ClientBudget>,
}

impl Default for Listings {
    fn default() -> Self {
        Self {
            batches: Batches::default(),
            quick: DiskQueue::new("listing", QUICK_THREADS, QUICK_WAITING),
            long: DiskQueue::new("long-listing", LONG_THREADS, LONG_WAITING),
            walks: DiskQueue::new("walk", WALK_THREADS, WALKS_WAITING),
            memory: ClientBudget::new(MEMORY, MEMORY / 2),
            release: DiskQueue::new("release", 1, 0),
            streams: ClientBudget::new(MAX_STREAMS, MAX_STREAMS / 4),
        }
    }
}

/// The number of threads that list small folders.
const QUICK_THREADS: usize = 4;

/// The maximum number of waiting listings of small folders.
const QUICK_WAITING: usize = 1024;

/// The number of threads that list other folders.
const LONG_THREADS: usize = 2;

/// The maximum number of waiting listings of other folders.
const LONG_WAITING: usize = 256;

/// The number of threads that walk through folders.
const WALK_THREADS: usize = 2;

/// The maximum number of waiting walks.
const WALKS_WAITING: usize = 64;

/// The maximum number of bytes of listings in memory.
pub(crate) const MEMORY: u64 = 256 << 20;

/// The maximum length of a text that a worker frees itself.
const SHORT_TEXT: u64 = 256 << 10;

/// The maximum number of clients to which a separate text is sent.
const MAX_STREAMS: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_use_all_separate_texts() {
        let client = |last| ClientNet::of(Some(([192, 0, 2, last], 1).into()));
        let streams = Listings::default().streams;
        let mut places: Vec<_> = (0..MAX_STREAMS).map(|_| streams.reserve(client(1))).collect();
        let taken = places.iter_mut().filter_map(|place| place.resize(1).then_some(())).count();
        assert_eq!(taken as u64, MAX_STREAMS / 4);
        assert!(streams.reserve(client(2)).resize(1));
    }
}
