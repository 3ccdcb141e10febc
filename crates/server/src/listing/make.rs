//! Makes listings of folders: a few threads read them, once for all requests that wait for the same
//! listing, and their memory is bounded. A listing that is too large for it is made piece by piece
//! for each client, and no thread is held while a client reads.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::sync::{oneshot, watch};
use underpass_engine::{Memory, Version, errno};
use underpass_listing::{Entries, Listing, Prepared, Unsorted};

use crate::auth::Right;
use crate::changes::dav::describe::Describer;
use crate::files::root::is_reserved;
use crate::listing::jobs::{
    FolderId, FolderSource, ListTask, ListedFolder, ListingHead, ListingKey, ListingRequest,
    ListingResult, Listings, MEMORY, PartialListing, StoreEntries, Text,
};
use crate::listing::pack::{Packer, longest_packed};
use crate::server::limits::batches::answer_all;
use crate::server::limits::client_budget::Reservation;
use crate::server::limits::priority::{Work, let_others_run};
use crate::server::sites::link_targets::LinkTargets;
use crate::server::sites::site::Site;
use underpass_protocol::request::ClientNet;

/// Requests the listing of a folder.
///
/// # Errors
///
/// `EAGAIN` if too many listings are requested; otherwise the errors of reading the folder.
pub(crate) async fn list(
    site: Arc<Site>,
    client: ClientNet,
    task: ListTask,
) -> io::Result<(ListingHead, Option<ListingPieces>)> {
    let ListTask { folder, what } = task;
    let (id, is_small) = match &folder {
        FolderSource::Disk(folder) => {
            // The folder was just opened, so its attributes are fresh, and a worker must not wait
            // for a file server.
            let version = Version::in_memory(folder)?;
            (FolderId::Disk(version.file()), version.size() <= SMALL_FOLDER)
        }
        FolderSource::Store(folder) => {
            (FolderId::Store(folder.id), folder.entries.len() <= FEW_ENTRIES)
        }
    };
    let key: ListingKey = (id, what);
    let listings = &site.shared.listings;
    let queue = match (key.1.query.is_walk(), is_small) {
        (true, _) => &listings.walks,
        (false, true) => &listings.quick,
        (false, false) => &listings.long,
    };
    let submit = || {
        let (site, key) = (Arc::clone(&site), key.clone());
        let folder = ListedFolder { source: folder, request: key.1.clone() };
        queue.submit(client, move || make(&site, client, &key, folder))
    };
    let answer = listings.batches.join(&key, client, submit).map_err(|_| Errno::AGAIN)?;
    let (head, text) = answer.await.map_err(|_| Errno::AGAIN)??;
    let pieces = match text {
        Text::None => return Ok((head, None)),
        Text::Shared(made) => ListingPieces::Shared { made, next: 0 },
        Text::Own(folder) => {
            let mut place = listings.streams.reserve(client);
            if !place.resize(1) {
                return Err(Errno::AGAIN.into());
            }
            let site = Arc::clone(&site);
            let packer = Some(Packer::new(folder.request.packing, false));
            ListingPieces::Own(Box::new(ListingStream {
                site,
                client,
                folder,
                unsorted: None,
                packer,
                excess: listings.memory.reserve(client),
                _place: place,
            }))
        }
    };
    if key.1.packing.is_chunked {
        return Ok((head, Some(pieces)));
    }
    Ok((head, Some(pieces.gather(listings, client).await?)))
}

/// The text of a listing while it is sent to one client.
#[derive(Debug)]
pub(crate) enum ListingPieces {
    /// A text that several clients share.
    Shared { made: watch::Receiver<PartialListing>, next: usize },
    /// A text for this client only.
    Own(Box<ListingStream>),
}

/// A listing that is made as its client reads it.
#[derive(Debug)]
pub(crate) struct ListingStream {
    site: Arc<Site>,
    client: ClientNet,
    folder: Arc<ListedFolder>,
    /// The state of the listing; `None` before the first piece.
    unsorted: Option<Box<Unsorted>>,
    /// Compresses and frames the pieces; `None` while a helper thread does so.
    packer: Option<Packer>,
    /// The memory for the part of a piece beyond the usual length.
    excess: Reservation,
    _place: Reservation,
}

impl ListingPieces {
    /// Returns a text as the only piece; `None` if there is no memory left for it.
    pub(crate) fn whole(listings: &Listings, client: ClientNet, text: Vec<u8>) -> Option<Self> {
        let mut held = listings.memory.reserve(client);
        if !held.resize(text.len() as u64) {
            return None;
        }
        let made = PartialListing::whole(listings, vec![text.into()], held);
        Some(Self::Shared { made: watch::channel(made).1, next: 0 })
    }

    /// Waits until all pieces are in memory, so that their length is known: a client without
    /// chunked framing could not tell a part from the whole.
    async fn gather(mut self, listings: &Listings, client: ClientNet) -> io::Result<Self> {
        let mut made = PartialListing::begun(listings, listings.memory.reserve(client));
        let mut len = 0;
        while let Some(piece) = self.next().await? {
            let piece: Arc<[u8]> = match piece {
                ListingPiece::Own(bytes) => bytes.into(),
                ListingPiece::Shared(bytes) => bytes,
            };
            len += piece.len() as u64;
            if !made.resize(len) {
                return Err(Errno::AGAIN.into());
            }
            made.pieces.push(piece);
        }
        made.is_whole = true;
        Ok(Self::Shared { made: watch::channel(made).1, next: 0 })
    }

    /// Returns the number of bytes of all pieces, if all are in memory.
    pub(crate) fn len(&self) -> Option<u64> {
        let Self::Shared { made, .. } = self else { return None };
        let made = made.borrow();
        made.is_whole.then(|| made.len())
    }

    /// Returns the next piece, or `None` at the end.
    ///
    /// # Errors
    ///
    /// If the listing cannot be made to its end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<ListingPiece>> {
        match self {
            Self::Own(stream) => Ok(stream.next().await?.map(ListingPiece::Own)),
            Self::Shared { made, next } => {
                let index = *next;
                let is_there = |made: &PartialListing| made.pieces.len() > index || made.is_whole;
                // On an error, the thread that makes the listing has given up.
                let made = made.wait_for(is_there).await.map_err(|_| io::ErrorKind::BrokenPipe)?;
                *next += 1;
                Ok(made.pieces.get(index).map(|piece| ListingPiece::Shared(Arc::clone(piece))))
            }
        }
    }
}

/// A piece of a listing as it is sent; many clients share the same memory.
#[derive(Debug)]
pub(crate) enum ListingPiece {
    Own(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl From<ListingPiece> for Memory {
    fn from(piece: ListingPiece) -> Self {
        match piece {
            ListingPiece::Own(bytes) => bytes.into(),
            ListingPiece::Shared(bytes) => bytes.into(),
        }
    }
}

impl ListingStream {
    /// Returns the next piece, which a helper thread makes.
    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let lost = || io::Error::from(Errno::AGAIN);
        let unsorted = self.unsorted.take();
        let mut packer = self.packer.take().ok_or_else(lost)?;
        let (site, folder) = (Arc::clone(&self.site), Arc::clone(&self.folder));
        let (done, made) = oneshot::channel();
        let step = move || {
            let made = with_listing(&site, &folder, &|| true, |listing| {
                let mut unsorted = match unsorted {
                    Some(unsorted) => unsorted,
                    None => Box::new(Unsorted::new(&listing)?),
                };
                let piece = match unsorted.next(&listing)? {
                    Some(piece) => packer.pack(piece),
                    None => packer.finish(),
                };
                packer.shrink();
                Ok::<_, io::Error>((unsorted, packer, piece))
            });
            // The client may have left.
            let _ = done.send(made);
        };
        self.site.shared.listings.long.resume(self.client, step).map_err(|_| lost())?;
        let (unsorted, packer, piece) = made.await.map_err(|_| lost())??;
        (self.unsorted, self.packer) = (Some(unsorted), Some(packer));
        let len = piece.as_ref().map_or(0, Vec::len);
        if !self.excess.resize(len.saturating_sub(USUAL_PIECE) as u64) {
            return Err(lost());
        }
        Ok(piece)
    }
}

/// Makes a listing, on a helper thread, for all requests that are waiting for it.
fn make(site: &Site, client: ClientNet, key: &ListingKey, folder: ListedFolder) {
    let waiters = site.shared.listings.batches.begin(key);
    if waiters.is_empty() {
        return;
    }
    site.shared.metrics.listing();
    let folder = Arc::new(folder);
    let waiters = RefCell::new(waiters);
    let is_wanted = || waiters.borrow().iter().any(|waiter| !waiter.is_closed());
    with_listing(site, &folder, &is_wanted, |listing| match listing.prepare() {
        Ok(prepared) => {
            let listings = &site.shared.listings;
            answer_waiters(listings, client, waiters.take(), prepared, &folder);
        }
        Err(error) => answer_all(waiters.take(), &Err(errno::of(error))),
    });
}

/// Sends the head of the listing to all that wait, and makes its text.
fn answer_waiters(
    listings: &Listings,
    client: ClientNet,
    waiters: Vec<oneshot::Sender<ListingResult>>,
    prepared: Prepared<'_>,
    folder: &Arc<ListedFolder>,
) {
    let mut held = listings.memory.reserve(client);
    let next_page = prepared.next_page().map(str::to_owned);
    let is_incomplete = prepared.is_incomplete();
    let (media_type, is_unsorted) = (prepared.media_type(), !prepared.is_held());
    let head = ListingHead { media_type, next_page, is_incomplete, is_unsorted };
    if folder.request.is_head {
        return answer_all(waiters, &Ok((head, Text::None)));
    }
    if prepared.is_held() {
        let outcome =
            write(prepared, Packer::new(folder.request.packing, true), &mut held).map(|pieces| {
                let made = PartialListing::whole(listings, pieces, held);
                (head, Text::Shared(watch::channel(made).1))
            });
        return answer_all(waiters, &outcome.map_err(errno::of));
    }
    let longest = longest_packed(prepared.longest().unwrap_or(u64::MAX));
    if longest > MAX_SHARED || !held.resize(longest) {
        return answer_all(waiters, &Ok((head, Text::Own(Arc::clone(folder)))));
    }
    let (sender, receiver) = watch::channel(PartialListing::begun(listings, held));
    answer_all(waiters, &Ok((head, Text::Shared(receiver))));
    let (mut len, mut packer) = (0, Packer::new(folder.request.packing, false));
    let mut relay_response = |packed: Option<Vec<u8>>| -> io::Result<()> {
        let_others_run(Work::Buffer);
        let Some(piece) = packed else { return Ok(()) };
        len += piece.len() as u64;
        // Entries are being added to the folder, or no client waits any more.
        if len > longest || sender.receiver_count() == 0 {
            return Err(Errno::AGAIN.into());
        }
        sender.send_if_modified(|made| {
            made.pieces.push(piece.into());
            // Each announcement wakes all waiting clients: the first piece is announced at once,
            // further ones in groups.
            made.pieces.len() == 1 || made.pieces.len().is_multiple_of(PIECES_AT_ONCE)
        });
        Ok(())
    };
    let whole = prepared.write(&mut |piece| relay_response(packer.pack(piece)));
    let whole = whole.and_then(|()| relay_response(packer.finish()));
    if whole.is_ok() {
        sender.send_modify(|made| {
            made.is_whole = true;
            made.resize(len);
        });
    }
}

/// Writes a listing into memory.
fn write(
    prepared: Prepared<'_>,
    mut packer: Packer,
    held: &mut Reservation,
) -> io::Result<Vec<Arc<[u8]>>> {
    let (mut pieces, mut len) = (Vec::new(), 0);
    let mut keep = |packed: Option<Vec<u8>>| -> io::Result<()> {
        let_others_run(Work::Buffer);
        let Some(piece) = packed else { return Ok(()) };
        len += piece.len() as u64;
        if !held.resize(len) {
            return Err(Errno::AGAIN.into());
        }
        pieces.push(piece.into());
        Ok(())
    };
    prepared.write(&mut |piece| keep(packer.pack(piece)))?;
    keep(packer.finish())?;
    Ok(pieces)
}

/// Calls `use_it` with the requested listing of a folder.
fn with_listing<T>(
    site: &Site,
    folder: &ListedFolder,
    is_wanted: &dyn Fn() -> bool,
    use_it: impl FnOnce(Listing<'_>) -> T,
) -> T {
    let ListingRequest { path, query, is_browser, may, user, is_partial, .. } = &folder.request;
    let (access, user) = (&site.settings.access, user.as_deref());
    let properties = folder.request.properties.as_deref();
    let describer = properties.map(|request| Describer { site, request, user });
    let of_store;
    let targets = LinkTargets { site, user };
    let is_store = matches!(folder.source, FolderSource::Store(_));
    let (entries, place) = match &folder.source {
        FolderSource::Disk(opened) => (
            Entries::Folder { folder: opened.as_fd(), root: &targets },
            site.root.place_of(opened).ok(),
        ),
        FolderSource::Store(listing) => {
            of_store = StoreEntries(listing, folder.request.readme.as_deref());
            (Entries::Named(&of_store), None)
        }
    };
    use_it(Listing {
        entries,
        path,
        query: query.clone(),
        is_browser: *is_browser,
        // Entries of a store are served, whatever their names are.
        shows_hidden: is_store || site.settings.shows_hidden,
        hides: &|inside, is_folder| {
            // This is called for each entry.
            let_others_run(Work::Entry);
            (*is_partial && !access.may_know(user, inside, is_folder))
                || if is_store {
                    is_reserved(inside) || site.root.hides_of_origin(inside, is_folder)
                } else {
                    site.root.hides_reached(inside, is_folder, path, place.as_ref())
                }
        },
        shows_times: &|inside| !is_partial || access.can(user, inside, Right::Read),
        may_read: &|inside| access.can(user, inside, Right::Read),
        may: *may,
        archive: site.settings.archive && !is_partial && !is_store,
        walks: !is_store,
        is_wanted,
        describe: describer.as_ref().map(|describer| describer as _),
    })
}

/// The number of entries of a store's folder that is listed as quickly as a small one on disk.
const FEW_ENTRIES: usize = 4096;

/// The maximum size of a small folder: a few thousand entries on most file systems.
const SMALL_FOLDER: u64 = 64 << 10;

/// The maximum number of bytes of a shared unsorted listing; a longer one is made for each client.
const MAX_SHARED: u64 = MEMORY / 4;

/// The length up to which a piece made for one client needs no reservation, because the number of
/// these clients bounds the memory.
const USUAL_PIECE: usize = 64 << 10;

/// The number of pieces of a long listing, some 256 KiB, after which waiting clients are woken.
const PIECES_AT_ONCE: usize = 8;
