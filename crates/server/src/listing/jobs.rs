//! Listings that are made for requests, and what bounds them: few threads, one text for all requests
//! that wait for the same, and memory for texts.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::{Semaphore, watch};

use crate::listing::{ListingQuery, May};
use crate::server::limits::batches::Batches;
use crate::server::limits::disk_queue::DiskQueue;
use crate::server::limits::memory_budget::{MemoryBudget, Reservation};

/// A listing that somebody asks for.
#[derive(Debug)]
pub(crate) struct ListTask {
    pub(crate) folder: OwnedFd,
    pub(crate) what: ListingRequest,
}

/// What is to be in a listing, by which it is known whether two are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListingRequest {
    pub(crate) path: Vec<u8>,
    pub(crate) query: ListingQuery,
    pub(crate) is_browser: bool,
    pub(crate) is_head: bool,
    pub(crate) may: May,
    pub(crate) user: Option<Arc<str>>,
    /// Only the names are listed that lead to what the user may read.
    pub(crate) is_partial: bool,
    /// It is sent in chunks (RFC 9112, section 7.1), and made so.
    pub(crate) is_chunked: bool,
}

/// What the head of a listing's response has to say.
#[derive(Clone, Debug)]
pub(crate) struct ListingHead {
    pub(crate) media_type: &'static str,
    pub(crate) next_page: Option<String>,
}

/// A folder that several clients ask about.
#[derive(Debug)]
pub(crate) struct ListedFolder {
    pub(crate) opened: OwnedFd,
    pub(crate) request: ListingRequest,
}

/// Device, inode and what is request.
pub(crate) type Key = (u64, u64, ListingRequest);

/// What came of making a listing.
pub(crate) type ListingResult = Result<(ListingHead, Text), Errno>;

/// The text of a listing, for each client that waited for it.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    /// There is none, as HEAD wants it.
    None,
    /// In memory.
    Shared(watch::Receiver<Made>),
    /// To be made for each client.
    Own(Arc<ListedFolder>),
}

/// What of a text is made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) pieces: Vec<Arc<[u8]>>,
    pub(crate) is_whole: bool,
    pub(crate) _held: Option<Reservation>,
}

/// What all workers know of listings.
#[derive(Debug)]
pub(crate) struct Listings {
    pub(crate) batches: Batches<Key, ListingResult>,
    /// For folders with few entries, as far as their size tells.
    pub(crate) quick: Arc<DiskQueue>,
    /// For all others.
    pub(crate) long: Arc<DiskQueue>,
    pub(crate) memory: Arc<MemoryBudget>,
    /// How many clients may be sent what is made for each.
    pub(crate) streams: Arc<Semaphore>,
}

impl Default for Listings {
    fn default() -> Self {
        Self {
            batches: Batches::default(),
            quick: DiskQueue::new("listing", QUICK_THREADS, QUICK_WAITING),
            long: DiskQueue::new("long-listing", LONG_THREADS, LONG_WAITING),
            memory: MemoryBudget::new(MEMORY, MEMORY / 2),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        }
    }
}

/// Threads that list small folders.
const QUICK_THREADS: usize = 4;

/// Listings of small folders that wait for that.
const QUICK_WAITING: usize = 1024;

/// Threads that list other folders.
const LONG_THREADS: usize = 2;

/// Listings of other folders that wait for that.
const LONG_WAITING: usize = 256;

/// Bytes of listings in memory.
pub(crate) const MEMORY: u64 = 256 << 20;

/// Clients that are sent what is made for each of them.
const MAX_STREAMS: usize = 512;
