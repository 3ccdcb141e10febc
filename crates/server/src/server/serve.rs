//! The thread of one worker: it accepts connections, serves each in a task, and ends on request.

use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::panic;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::sync::watch;
use tokio::task::{LocalSet, yield_now};
use tokio::time::{MissedTickBehavior, interval, sleep};
use underpass_engine::socket;

use crate::connection::peer::Peer;
use crate::connection::proxy_header::{ProxyHeaderError, RefusedHeader};
use crate::connection::serve::Connection;
use crate::connection::socket::{Accepting, Socket};
use crate::connection::{Link, canned, proxy_header, serve};
use crate::files::open_files::LIFETIME;
use crate::observe::access_entry;
use crate::server::control::Phase;
use crate::server::limits::admission::Ticket;
use crate::server::limits::priority::step_back;
use crate::server::listen::kind::ListenerKind;
use crate::server::shared::ServerState;
use crate::server::sites::published::Published;
use crate::server::worker::{Worker, max_helpers};
use crate::uploads;
use underpass_protocol::request::proxy_header::ProxiedClient;

/// Serves until the phase changes; returns the number of transfers that were cut off.
pub(crate) fn run(
    shared: Arc<ServerState>,
    published: Arc<Published>,
    index: usize,
    listeners: Vec<(OwnedFd, ListenerKind)>,
    phase: watch::Receiver<Phase>,
) -> io::Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(max_helpers(&shared.settings))
        .thread_keep_alive(2 * HELPER_INTERVAL)
        .on_thread_start(step_back)
        .build()?;
    // Where the system refuses to start threads, tokio would panic in words of its own.
    let _ = thread::Builder::new().spawn(|| ())?.join();
    let begun = {
        let _inside = runtime.enter();
        begin_helper()
    };
    if !begun {
        // Without one, a server at its limit of threads would drop each request that needs one.
        return Err(Errno::AGAIN.into());
    }
    let worker = Rc::new(Worker::new(shared, published, index));
    let local = LocalSet::new();
    let left = local.block_on(&runtime, serve(&worker, listeners, phase));
    // Connections are dropped first because they refer to the runtime. A helper that waits for a
    // dead network file system must not delay the end.
    drop(local);
    runtime.shutdown_background();
    left
}

/// Serves until the phase changes; returns the number of transfers that were cut off.
async fn serve(
    worker: &Rc<Worker>,
    listeners: Vec<(OwnedFd, ListenerKind)>,
    mut phase: watch::Receiver<Phase>,
) -> io::Result<usize> {
    let mut accepting = Vec::with_capacity(listeners.len());
    for (listener, kind) in listeners {
        let listener = Accepting::new(listener)?;
        accepting.push(tokio::task::spawn_local(accept(Rc::clone(worker), listener, kind)));
    }
    let sweeping = tokio::task::spawn_local(sweep(Rc::clone(worker)));
    let evicting = tokio::task::spawn_local(evict_for_others(Rc::clone(worker)));
    // The sender lives as long as the server.
    let _ = phase.wait_for(|phase| *phase >= Phase::Draining).await;
    for task in accepting {
        task.abort();
    }
    worker.begin_draining();
    let now = Instant::now();
    worker.for_each_peer(|peer| peer.drain(now));
    drain(worker, phase).await;
    sweeping.abort();
    evicting.abort();
    let left = worker.sending();
    worker.for_each_peer(Peer::terminate);
    // This lets each connection write its last line of the log.
    for _ in 0..LAST_TURNS {
        if worker.has_no_connections() {
            break;
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(left)
}

/// Waits until the last connection has ended or the time is up.
async fn drain(worker: &Worker, mut phase: watch::Receiver<Phase>) {
    let deadline = sleep(worker.shared.settings.drain);
    let stop = phase.wait_for(|phase| *phase == Phase::Stopped);
    let ended = async {
        while !worker.has_no_connections() {
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

/// Accepts connections as long as the task lives.
async fn accept(worker: Rc<Worker>, listener: Accepting, kind: ListenerKind) {
    let mut accepted = 0;
    loop {
        let error = match listener.accept().await {
            Ok((socket, address)) => {
                accept_connection(&worker, socket, address, kind);
                accepted += 1;
                if accepted % ACCEPTED_AT_ONCE == 0 {
                    // Requests that have arrived do not wait until thousands of connections are
                    // accepted.
                    yield_now().await;
                }
                continue;
            }
            Err(error) => error,
        };
        if error.kind() == io::ErrorKind::ConnectionAborted {
            // The peer has left already.
            continue;
        }
        // The process is out of descriptors or memory, so some connections have to end first. Until
        // then, new connections wait in the kernel.
        worker.shared.accept_failed(error);
        worker.evict_several();
        worker.expire_files(Instant::now() + LIFETIME);
        sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves a connection in a separate task, if the limits allow it.
fn accept_connection(
    worker: &Rc<Worker>,
    socket: Socket,
    address: Option<SocketAddr>,
    kind: ListenerKind,
) {
    let metrics = worker.metrics();
    let settings = &worker.shared.settings;
    let is_proxy = settings.trusted_proxies.trusts(address.map(|at| at.ip()));
    // A proxy's connection counts for its client, once that is known.
    let counted = address.filter(|_| !is_proxy);
    let Some(ticket) = worker.shared.admission.enter(counted, |of| worker.make_room(of)) else {
        metrics.connection_refused();
        canned::refuse(&socket, kind);
        return;
    };
    if let Some(rate) = worker.shared.settings.rate {
        // A socket that cannot be paced is served anyway.
        let _ = socket::set_pacing_rate(&socket, rate);
    }
    metrics.connection_opened();
    worker.turns.record_short(Instant::now());
    let peer = Rc::new(Peer::new(socket, address, kind, ticket.is_for_health()));
    let id = worker.add_peer(&peer);
    let presence = ConnectionCount { worker: Rc::clone(worker), id, ticket };
    tokio::task::spawn_local(serve_connection(presence, peer, is_proxy && settings.proxy_protocol));
}

/// Serves a connection to its end; `has_header` tells whether it begins with the header of a proxy.
///
/// Not an `async fn`, which would store its arguments twice, for as long as the connection lasts.
#[expect(clippy::manual_async_fn, reason = "it is smaller")]
fn serve_connection(
    mut presence: ConnectionCount,
    peer: Rc<Peer>,
    has_header: bool,
) -> impl Future<Output = ()> {
    async move {
        let refused = if has_header {
            // Boxed, so that its memory is free again when the first request arrives.
            match Box::pin(attribute(&mut presence, &peer)).await {
                ControlFlow::Continue(refused) => refused,
                ControlFlow::Break(()) => return,
            }
        } else {
            None
        };
        let link = Link { worker: &presence.worker, peer: &peer };
        // Boxed to fit between two tasks, which are aligned; within one it would take more.
        serve::serve(Box::new(Connection::new(link, refused))).await;
    }
}

/// Reads the client of a connection from the header of its proxy, and counts the connection for
/// that client. Returns the bytes that arrived instead of the header, if any; breaks if
/// the connection is over.
async fn attribute(
    presence: &mut ConnectionCount,
    peer: &Peer,
) -> ControlFlow<(), Option<Box<RefusedHeader>>> {
    match proxy_header::read(peer).await {
        Ok(origin) if presence.attribute(peer, origin) => return ControlFlow::Continue(None),
        Ok(_) => {
            let worker = &presence.worker;
            worker.metrics().connection_refused();
            canned::refuse(&peer.socket, peer.listener);
        }
        Err(ProxyHeaderError::Bad(refused)) => return ControlFlow::Continue(Some(refused)),
        Err(ProxyHeaderError::Ended(bytes)) if !bytes.is_empty() && peer.is_expired() => {
            access_entry::timed_out(Link { worker: &presence.worker, peer }, &bytes);
        }
        Err(ProxyHeaderError::Ended(_)) => {}
    }
    ControlFlow::Break(())
}

/// Closes idle connections on behalf of other workers, as long as the task lives.
async fn evict_for_others(worker: Rc<Worker>) {
    loop {
        let of = worker.shared.evictions.requested(worker.index).await;
        worker.evict_one(of);
    }
}

/// Starts a helper thread if none is idle; returns false if there is none and the system refuses
/// to start one, in which case tokio panics. This task must go on: no other enforces time limits.
fn begin_helper() -> bool {
    panic::catch_unwind(|| drop(tokio::task::spawn_blocking(|| ()))).is_ok()
}

/// Runs the periodic work, at least once a second.
async fn sweep(worker: Rc<Worker>) {
    let mut ticks =
        interval((worker.shared.settings.timeout / 2).clamp(MIN_SWEEP_INTERVAL, SWEEP_INTERVAL));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut helped = None;
    loop {
        ticks.tick().await;
        let now = Instant::now();
        // Keep one helper thread alive: if the system refuses to start more, work can wait for this
        // one.
        if helped.is_none_or(|helped| now - helped >= HELPER_INTERVAL) && begin_helper() {
            helped = Some(now);
        }
        worker.expire_files(now);
        if worker.index == 0 {
            uploads::tick(&worker.shared, &worker.published.get(), now);
            worker.shared.layouts.expire();
            let shared = Arc::clone(&worker.shared);
            if !shared.remote_files.is_empty() {
                drop(tokio::task::spawn_blocking(move || shared.remote_files.close_unused()));
            }
        }
        // Asking the kernel about thousands of connections takes milliseconds.
        let mut ids = 0..worker.peer_places();
        while !ids.is_empty() {
            for peer in ids.by_ref().take(PEERS_AT_ONCE).filter_map(|id| worker.peer(id)) {
                if worker.is_draining() {
                    peer.drain(now);
                }
                peer.expire(worker.shared.settings.timeout, now);
                let _ = access_entry::write_arrived(Link { worker: &worker, peer: &peer }, false);
            }
            yield_now().await;
        }
    }
}

/// Counts a connection for as long as this value lives.
struct ConnectionCount {
    worker: Rc<Worker>,
    id: usize,
    ticket: Ticket,
}

impl ConnectionCount {
    /// Counts the connection for the client that a proxy names; returns false if there are too many
    /// of this client.
    fn attribute(&mut self, peer: &Peer, origin: ProxiedClient) -> bool {
        let ProxiedClient::Client(address) = origin else { return true };
        let worker = &self.worker;
        let make_room = |of| worker.make_room(of);
        let has_place = worker.shared.admission.attribute(&mut self.ticket, address, make_room);
        // Only now: before, it could have been closed to make room for itself.
        peer.set_origin(address);
        has_place
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        let worker = &self.worker;
        worker.remove_peer(self.id);
        worker.shared.admission.leave(&self.ticket);
        worker.metrics().connection_closed();
    }
}

/// The interval at which a worker gives its helpers work, so that one of them is kept.
const HELPER_INTERVAL: Duration = Duration::from_secs(5);

/// The pause before another attempt to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The number of connections accepted before others have their turn.
const ACCEPTED_AT_ONCE: u32 = 16;

/// The number of connections that are checked before others have their turn.
const PEERS_AT_ONCE: usize = 16;

/// The interval at which connections and open files are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest interval, whatever the timeout is.
const MIN_SWEEP_INTERVAL: Duration = Duration::from_millis(1);

/// The number of milliseconds that connections get to end after they were closed.
const LAST_TURNS: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_of_a_waiting_connection_is_small() {
        const fn size<F>(_: fn(ConnectionCount, Rc<Peer>, bool) -> F) -> usize {
            size_of::<F>()
        }
        // The runtime adds about a hundred bytes, and rounds up to 256.
        assert!(size(serve_connection) <= 152, "{}", size(serve_connection));
    }
}
