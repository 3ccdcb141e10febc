//! One thread that serves: its runtime, its listeners, its connections and the clock over them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{Semaphore, watch};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use underpass_engine::{Capabilities, PipePool, socket};

use crate::connection::canned;
use crate::connection::handshake::STEPS_AT_ONCE;
use crate::connection::peer::{Doing, Peer};
use crate::connection::serve;
use crate::connection::socket::{Accepting, Socket};
use crate::files::open_files::Files;
use crate::observe::access_entry;
use crate::observe::access_entry::Desk;
use crate::server::control::Phase;
use crate::server::limits::admission::Ticket;
use crate::server::limits::priority::step_back;
use crate::server::listener_kind::ListenerKind;
use crate::server::shared::Shared;

/// What the connections of one thread have in common.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    /// Its number, from 0.
    pub(crate) index: usize,
    pub(crate) files: RefCell<Files>,
    /// What requests are read into: connections that wait need no buffer of their own.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// What the access log is written with.
    pub(crate) desk: RefCell<Desk>,
    pub(crate) capabilities: Capabilities,
    pub(crate) pipes: PipePool,
    /// Held by handshakes that take a step.
    pub(crate) handshakes: Semaphore,
    /// How many transfers are under way that did not end in their first turn.
    pub(crate) slow_transfers: Cell<usize>,
    /// Held by the one of many slow transfers that moves bytes now.
    pub(crate) turns: Semaphore,
    peers: RefCell<HashMap<u64, Rc<Peer>>>,
    next_peer: Cell<u64>,
    /// Connections that have been idle the longest, and since when.
    idlest: RefCell<VecDeque<(u64, Instant)>>,
    /// Not before then are idle connections looked for again.
    next_search: Cell<Instant>,
    is_draining: Cell<bool>,
    date: RefCell<(u64, String)>,
}

/// Serves until the phase says otherwise; returns how many transfers were cut off.
pub(crate) fn run(
    shared: Arc<Shared>,
    index: usize,
    listeners: Vec<(OwnedFd, ListenerKind)>,
    phase: watch::Receiver<Phase>,
) -> io::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(
            HELPERS.min(ALL_HELPERS / shared.settings.workers.max(1)).max(FEWEST_HELPERS),
        )
        .on_thread_start(step_back)
        .build()?;
    let worker = Rc::new(Worker::new(shared, index));
    let local = LocalSet::new();
    let left = local.block_on(&runtime, worker.serve(listeners, phase));
    // Connections first: they refer to the runtime. A helper that waits for a dead network file
    // system must not hold up the end.
    drop(local);
    runtime.shutdown_background();
    left
}

impl Worker {
    fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            shared,
            index,
            files: RefCell::default(),
            scratch: RefCell::new(vec![0; SCRATCH]),
            desk: RefCell::default(),
            capabilities: Capabilities::default(),
            pipes: PipePool::default(),
            handshakes: Semaphore::new(STEPS_AT_ONCE),
            slow_transfers: Cell::new(0),
            turns: Semaphore::new(1),
            peers: RefCell::default(),
            next_peer: Cell::new(0),
            idlest: RefCell::default(),
            next_search: Cell::new(Instant::now()),
            is_draining: Cell::new(false),
            date: RefCell::default(),
        }
    }

    async fn serve(
        self: &Rc<Self>,
        listeners: Vec<(OwnedFd, ListenerKind)>,
        mut phase: watch::Receiver<Phase>,
    ) -> io::Result<usize> {
        let mut accepting = Vec::with_capacity(listeners.len());
        for (listener, role) in listeners {
            let listener = Accepting::new(listener)?;
            accepting.push(tokio::task::spawn_local(Rc::clone(self).accept(listener, role)));
        }
        let sweeping = tokio::task::spawn_local(Rc::clone(self).sweep());
        // The sender lives as long as the server.
        let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
        for task in accepting {
            task.abort();
        }
        self.is_draining.set(true);
        self.for_each_peer(|peer| {
            if matches!(peer.doing(), Doing::Idle | Doing::Shaking) {
                peer.hang_up();
            }
        });
        self.drain(phase).await;
        sweeping.abort();
        let left = self.sending();
        self.for_each_peer(Peer::hang_up);
        // So that each connection can write its last line.
        for _ in 0..LAST_TURNS {
            if self.peers.borrow().is_empty() {
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(left)
    }

    /// Waits until the last connection has ended, or there is no more time.
    async fn drain(&self, mut phase: watch::Receiver<Phase>) {
        let deadline = sleep(self.shared.settings.drain);
        let stop = phase.wait_for(|phase| *phase == Phase::Stopped);
        let ended = async {
            while !self.peers.borrow().is_empty() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::pin!(deadline, stop, ended);
        std::future::poll_fn(|context| {
            use std::future::Future;
            let is_over = deadline.as_mut().poll(context).is_ready()
                || stop.as_mut().poll(context).is_ready()
                || ended.as_mut().poll(context).is_ready();
            if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }

    /// Accepts connections for as long as the task lives.
    async fn accept(self: Rc<Self>, listener: Accepting, role: ListenerKind) {
        loop {
            let error = match listener.accept().await {
                Ok((socket, address)) => {
                    self.welcome(socket, address, role);
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == io::ErrorKind::ConnectionAborted {
                // The peer has left already.
                continue;
            }
            // Out of descriptors or memory: some connections have to end first. Those that wait
            // meanwhile wait in the kernel.
            self.shared.accept_failed(error);
            (0..EVICTED_AT_ONCE).take_while(|_| self.evict_one()).count();
            self.files.borrow_mut().expire(Instant::now() + crate::files::open_files::LIFETIME);
            sleep(ACCEPT_PAUSE).await;
        }
    }

    fn welcome(self: &Rc<Self>, socket: Socket, address: Option<SocketAddr>, role: ListenerKind) {
        let metrics = self.shared.metrics.worker(self.index);
        let Some(ticket) = self.shared.admission.enter(address, || self.evict_one()) else {
            metrics.connection_refused();
            canned::refuse(&socket, role);
            return;
        };
        if let Some(rate) = self.shared.settings.rate {
            // A socket that cannot be paced is served all the same.
            let _ = socket::set_pacing_rate(&socket, rate);
        }
        metrics.connection_opened();
        let id = self.next_peer.replace(self.next_peer.get() + 1);
        let peer = Rc::new(Peer::new(socket, address, role, ticket.is_reserve));
        self.peers.borrow_mut().insert(id, Rc::clone(&peer));
        let presence = Presence { worker: Rc::clone(self), id, ticket };
        tokio::task::spawn_local(async move {
            serve::serve(&presence.worker, &peer).await;
        });
    }

    /// Closes the connection that has been idle the longest, to make room for another one; false if
    /// none is idle.
    fn evict_one(&self) -> bool {
        if self.evict_known() {
            return true;
        }
        let now = Instant::now();
        if now < self.next_search.get() {
            return false;
        }
        self.find_idlest();
        let is_evicted = self.evict_known();
        if !is_evicted {
            // A crowd that keeps coming must not have all connections looked at each time.
            self.next_search.set(now + SEARCH_PAUSE);
        }
        is_evicted
    }

    /// Notes which connections have been idle the longest: several at a time.
    fn find_idlest(&self) {
        let peers = self.peers.borrow();
        let idle = |(id, peer): (&u64, &Rc<Peer>)| Some((peer.idle_since()?, *id));
        let mut idle: Vec<_> = peers.iter().filter_map(idle).collect();
        if idle.len() > EVICTED_AT_ONCE {
            idle.select_nth_unstable(EVICTED_AT_ONCE);
            idle.truncate(EVICTED_AT_ONCE);
        }
        idle.sort_unstable();
        self.idlest.borrow_mut().extend(idle.into_iter().map(|(since, id)| (id, since)));
    }

    /// Closes one of those that were noted, if any of them is still idle.
    fn evict_known(&self) -> bool {
        while let Some((id, since)) = self.idlest.borrow_mut().pop_front() {
            let peer = self.peers.borrow().get(&id).cloned();
            if peer.is_some_and(|peer| peer.idle_since() == Some(since) && peer.evict()) {
                self.shared.metrics.worker(self.index).connection_evicted();
                return true;
            }
        }
        false
    }

    /// Looks after everything that only time changes, once a second.
    async fn sweep(self: Rc<Self>) {
        let mut ticks = interval(SWEEP_INTERVAL.min(self.shared.settings.timeout / 2));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = Instant::now();
            self.files.borrow_mut().expire(now);
            if self.index == 0 {
                crate::uploads::tick(&self.shared, now);
                self.shared.layouts.expire();
            }
            if self.index == 0 && self.shared.digests.has_unkept() {
                let shared = Arc::clone(&self.shared);
                tokio::task::spawn_blocking(move || shared.digests.keep_all());
            }
            self.for_each_peer(|peer| {
                peer.expire(self.shared.settings.timeout, now);
                access_entry::settle(&self, peer, false);
            });
        }
    }

    fn for_each_peer(&self, mut act: impl FnMut(&Peer)) {
        self.peers.borrow().values().for_each(|peer| act(peer));
    }

    /// How many connections are in the middle of a response, or of the body of a request.
    fn sending(&self) -> usize {
        let is_moving =
            |peer: &&Rc<Peer>| matches!(peer.doing(), Doing::Sending | Doing::Receiving);
        self.peers.borrow().values().filter(is_moving).count()
    }

    /// Whether connections are to be closed after their response.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.get()
    }

    /// The present time as a `Date` field has it, written anew once a second.
    pub(crate) fn with_date<T>(&self, now: SystemTime, use_it: impl FnOnce(&str) -> T) -> T {
        let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut date = self.date.borrow_mut();
        if date.0 != second {
            *date = (second, httpdate::fmt_http_date(now));
        }
        use_it(&date.1)
    }
}

/// A connection counts for as long as this lives, whatever its end.
struct Presence {
    worker: Rc<Worker>,
    id: u64,
    ticket: Ticket,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let worker = &self.worker;
        worker.peers.borrow_mut().remove(&self.id);
        worker.shared.admission.leave(&self.ticket);
        worker.shared.metrics.worker(worker.index).connection_closed();
    }
}

/// Threads of one worker that may wait for disks at once.
const HELPERS: usize = 64;

/// The same for all workers together,
const ALL_HELPERS: usize = 256;

/// unless each would have fewer than this.
const FEWEST_HELPERS: usize = 8;

/// The longest piece of a request that is read at once.
const SCRATCH: usize = 16 << 10;

/// Idle connections that are looked for at once when there are too many.
const EVICTED_AT_ONCE: usize = 32;

/// How long idle connections are not looked for after there were none.
const SEARCH_PAUSE: Duration = Duration::from_millis(50);

/// How long to wait before it is tried again to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often connections and open files are looked after.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How often connections are given another millisecond to end.
const LAST_TURNS: u32 = 100;
