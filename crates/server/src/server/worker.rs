//! The state that the connections of one thread share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use slab::Slab;
use tokio::sync::Semaphore;
use underpass_engine::{Capabilities, PipePool};

use crate::connection::peer::{Activity, Peer};
use crate::connection::send::pause::ShortPauses;
use crate::files::open_files::OpenFiles;
use crate::observe::pending_entry::LineBuffers;
use crate::server::limits::helper_shares::HelperShares;
use crate::server::limits::turn_queue::TurnQueue;
use crate::server::settings::Settings;
use crate::server::shared::ServerState;
use crate::server::sites::local::{LocalSite, LocalSites, Selection};
use crate::server::sites::published::Published;
use underpass_observe::metrics::WorkerMetrics;
use underpass_protocol::request::ClientNet;
use underpass_protocol::request::Request;
use underpass_protocol::response::validator::whole_seconds;

/// The state that the connections of one thread share.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<ServerState>,
    /// The number of the worker, from 0.
    pub(crate) index: usize,
    pub(crate) published: Arc<Published>,
    sites: RefCell<LocalSites>,
    /// The buffer that requests are read into, so that waiting connections need none.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// The memory of the last small response, for the next one.
    pub(crate) message: RefCell<Vec<u8>>,
    /// The buffers for writing the access log.
    pub(crate) line_buffers: RefCell<LineBuffers>,
    pub(crate) capabilities: Capabilities,
    pub(crate) pipes: PipePool,
    /// Held by handshakes while they take a step.
    pub(crate) handshakes: Semaphore,
    /// The shares of clients in its helper threads.
    pub(crate) helpers: HelperShares,
    /// The line of work that takes longer than a short response.
    pub(crate) turns: TurnQueue,
    /// Pauses of responses whose end waits for acknowledgements.
    pub(crate) pauses: ShortPauses,
    peers: RefCell<Slab<Rc<Peer>>>,
    /// The connections that have been idle the longest.
    idlest: RefCell<LongestIdle>,
    /// The connections of the address that last exceeded its limit that have been idle the longest.
    idlest_of_address: RefCell<LongestIdle>,
    is_draining: Cell<bool>,
    /// The second for which the date was formatted last, and the date.
    date: RefCell<(Range<SystemTime>, String)>,
}

/// The connections that were idle the longest at the last search.
#[derive(Debug, Default)]
struct LongestIdle {
    /// The address of these connections; `None` if they are of any address.
    of: Option<ClientNet>,
    /// The number of each connection and the time since which it is idle.
    known: VecDeque<(usize, Instant)>,
    /// The earliest time of the next search.
    next_search: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<ServerState>, published: Arc<Published>, index: usize) -> Self {
        Self {
            index,
            sites: RefCell::new(LocalSites::new(&published, &shared.settings)),
            published,
            scratch: RefCell::new(vec![0; SCRATCH]),
            message: RefCell::default(),
            line_buffers: RefCell::default(),
            capabilities: Capabilities::default(),
            pipes: PipePool::default(),
            handshakes: Semaphore::new(STEPS_AT_ONCE),
            helpers: HelperShares::new(max_helpers(&shared.settings)),
            turns: TurnQueue::default(),
            pauses: ShortPauses::default(),
            peers: RefCell::default(),
            idlest: RefCell::default(),
            idlest_of_address: RefCell::default(),
            is_draining: Cell::new(false),
            date: RefCell::new((SystemTime::UNIX_EPOCH..SystemTime::UNIX_EPOCH, String::new())),
            shared,
        }
    }

    /// Returns its metrics.
    pub(crate) fn metrics(&self) -> &WorkerMetrics {
        self.shared.metrics.worker(self.index)
    }

    /// Returns the site of a request.
    pub(crate) fn select(&self, peer: &Peer, request: &Request<'_, '_>) -> Selection {
        let mut sites = self.sites.borrow_mut();
        sites.keep_up(&self.published);
        sites.select(request, peer.session().and_then(|session| session.server_name()))
    }

    /// Returns the site for requests that name none.
    pub(crate) fn default_site(&self) -> Rc<LocalSite> {
        Rc::clone(self.sites.borrow().default())
    }

    /// Closes files that were not requested recently.
    pub(crate) fn expire_files(&self, now: Instant) {
        let mut sites = self.sites.borrow_mut();
        sites.keep_up(&self.published);
        sites.for_each_files(|files| files.expire(now));
    }

    /// Closes all open files.
    pub(crate) fn forget_files(&self) {
        self.sites.borrow().for_each_files(OpenFiles::forget_all);
    }

    /// Adds a connection; returns its number, which is reused after its end.
    pub(crate) fn add_peer(&self, peer: &Rc<Peer>) -> usize {
        self.peers.borrow_mut().insert(Rc::clone(peer))
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove_peer(&self, id: usize) {
        self.peers.borrow_mut().try_remove(id);
    }

    /// Returns whether all connections have ended.
    pub(crate) fn has_no_connections(&self) -> bool {
        self.peers.borrow().is_empty()
    }

    /// Makes connections close after their response from now on.
    pub(crate) fn begin_draining(&self) {
        self.is_draining.set(true);
    }

    /// Closes several of the connections that have been idle the longest.
    pub(crate) fn evict_several(&self) {
        (0..EVICTED_AT_ONCE).take_while(|_| self.evict_one(None)).count();
    }

    /// Closes the connection that has been idle the longest to make room for another one; false if
    /// none of this worker is idle. The other workers then close one of theirs, which makes room
    /// for the next connection.
    pub(crate) fn make_room(&self, of: Option<ClientNet>) -> bool {
        let is_evicted = self.evict_one(of);
        if !is_evicted {
            self.shared.evictions.request_others(self.index, of);
        }
        is_evicted
    }

    /// Closes the connection of an address, or of any, that has been idle the longest; false if
    /// none is idle.
    pub(crate) fn evict_one(&self, of: Option<ClientNet>) -> bool {
        let idlest = if of.is_some() { &self.idlest_of_address } else { &self.idlest };
        let mut idlest = idlest.borrow_mut();
        if self.evict_known(&mut idlest, of) {
            return true;
        }
        let now = Instant::now();
        if idlest.next_search.is_some_and(|next| now < next) {
            return false;
        }
        self.find_idlest(&mut idlest, of);
        let is_evicted = self.evict_known(&mut idlest, of);
        if !is_evicted || of.is_some() {
            // Many new connections must not cause a search of all connections each time.
            idlest.next_search = Some(now + SEARCH_PAUSE);
        }
        is_evicted
    }

    /// Finds several connections that have been idle the longest.
    fn find_idlest(&self, idlest: &mut LongestIdle, of: Option<ClientNet>) {
        let peers = self.peers.borrow();
        let is_of =
            |peer: &Peer| of.is_none() || peer.origin().map(|at| ClientNet::of(Some(at))) == of;
        let idle = |(id, peer): (usize, &Rc<Peer>)| {
            let since = peer.idle_since().filter(|_| is_of(peer))?;
            Some((since, id))
        };
        let mut idle: Vec<_> = peers.iter().filter_map(idle).collect();
        if idle.len() > FOUND_AT_ONCE {
            idle.select_nth_unstable(FOUND_AT_ONCE);
            idle.truncate(FOUND_AT_ONCE);
        }
        idle.sort_unstable();
        idlest.of = of;
        idlest.known = idle.into_iter().map(|(since, id)| (id, since)).collect();
    }

    /// Closes one of the connections found, if any of them is still idle.
    fn evict_known(&self, idlest: &mut LongestIdle, of: Option<ClientNet>) -> bool {
        while let Some((id, since)) = idlest.known.pop_front().filter(|_| idlest.of == of) {
            let peer = self.peer(id);
            if peer.is_some_and(|peer| peer.idle_since() == Some(since) && peer.evict()) {
                self.metrics().connection_evicted();
                return true;
            }
        }
        false
    }

    pub(crate) fn for_each_peer(&self, mut act: impl FnMut(&Peer)) {
        self.peers.borrow().iter().for_each(|(_, peer)| act(peer));
    }

    /// Returns a number above those of all connections, to visit them in steps that do not delay
    /// requests.
    pub(crate) fn peer_places(&self) -> usize {
        self.peers.borrow().capacity()
    }

    /// Returns a connection, unless it has ended. Keeping it would keep its socket open.
    pub(crate) fn peer(&self, id: usize) -> Option<Rc<Peer>> {
        self.peers.borrow().get(id).cloned()
    }

    /// Returns the number of connections in the middle of a response or of a request's body.
    pub(crate) fn sending(&self) -> usize {
        let is_moving =
            |peer: &Peer| matches!(peer.activity(), Activity::Sending | Activity::Receiving);
        self.peers.borrow().iter().filter(|(_, peer)| is_moving(peer)).count()
    }

    /// Returns whether connections are to be closed after their response.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// Passes the current time in the form of a `Date` field, formatted once a second; 1970 if the
    /// clock is beyond the range of HTTP dates.
    pub(crate) fn with_date<T>(&self, now: SystemTime, use_it: impl FnOnce(&str) -> T) -> T {
        let mut date = self.date.borrow_mut();
        if !date.0.contains(&now) {
            let now = whole_seconds(now).unwrap_or(SystemTime::UNIX_EPOCH);
            *date = (now..now + Duration::from_secs(1), httpdate::fmt_http_date(now));
        }
        use_it(&date.1)
    }
}

/// Returns the maximum number of helper threads of a worker.
pub(crate) fn max_helpers(settings: &Settings) -> usize {
    MAX_HELPERS.min(MAX_ALL_HELPERS / settings.workers.max(1)).max(MIN_HELPERS)
}

/// The maximum number of threads of one worker that may wait for disks at once.
const MAX_HELPERS: usize = 64;

/// The maximum number of such threads of all workers together.
const MAX_ALL_HELPERS: usize = 256;

/// The minimum number for each worker, which takes precedence over the maximum of all.
const MIN_HELPERS: usize = 8;

/// The maximum number of bytes of a request that are read at once.
const SCRATCH: usize = 16 << 10;

/// The number of idle connections that are closed at once if open files have run out.
const EVICTED_AT_ONCE: usize = 32;

/// The number of idle connections that one search finds. Checking some ten thousand takes half a
/// millisecond, for which hardly any new connection should have to wait.
const FOUND_AT_ONCE: usize = 512;

/// The pause after a search that found no idle connections.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

/// The number of handshake steps before other connections have their turn.
const STEPS_AT_ONCE: usize = 16;
