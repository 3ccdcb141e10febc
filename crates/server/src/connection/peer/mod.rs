//! The state of one connection for its worker: its address, its activity, and since when.

mod activity;
mod departure;
mod expiry;

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt::Write;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, getsockname, recv};
use rustix::process::geteuid;
use tokio::io::Interest;
use underpass_engine::{Mechanism, Policy, TlsTransport, socket};

pub(crate) use self::activity::Activity;
use self::activity::CloseReason;
use crate::connection::socket::{READABLE, Socket};
use crate::observe::pending_entry::PendingEntry;
use crate::server::limits::budget::BudgetShare;
use crate::server::listen::kind::ListenerKind;
use crate::server::proxies::TrustedProxies;
use underpass_protocol::request::ClientNet;
use underpass_protocol::request::Request;
use underpass_protocol::request::forwarded::{Contradiction, Forwarded, forwarded};
use underpass_protocol::response::resumption::ResumableDownload;
use underpass_transport::tls::Session;

/// A connection.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) socket: Socket,
    /// The address that opened the connection, directly or via a proxy; `None` over a Unix socket.
    origin: Cell<Option<SocketAddr>>,
    /// The client address of the current request, and whether it used https, if a proxy has named
    /// them.
    forwarded: OnceCell<Box<Cell<Forwarded>>>,
    /// The kind of the listener that accepted it.
    pub(crate) listener: ListenerKind,
    /// Whether it is one of the reserve, which only answers health checks.
    pub(crate) is_for_health: bool,
    /// The TLS session over the socket, after the handshake.
    session: OnceCell<Arc<Session>>,
    activity: Cell<Activity>,
    /// The time at which it began its present activity, or last made progress.
    since: Cell<Instant>,
    /// The state of a response that its client takes slowly.
    slow: OnceCell<Box<SlowWrite>>,
    /// The bytes written to the socket so far.
    pub(crate) written: Cell<u64>,
    /// The reason why this server has closed it; `None` if it has not.
    closed: Cell<Option<CloseReason>>,
    /// Whether the response that it was sending is given up.
    pub(crate) is_given_up: Cell<bool>,
    /// Whether it ended abnormally.
    is_reset: Cell<bool>,
    /// The download that is being sent, or was sent last, if it could be resumed.
    pub(crate) download: Cell<Option<(ResumableDownload, u64)>>,
    /// Responses that may not have arrived yet, in order. There are few, and a `Vec` is smaller.
    pub(crate) pending: RefCell<Vec<PendingEntry>>,
    /// Whether its last response was sent whole and may not have arrived. Set only where neither a
    /// log nor an observer waits for that.
    pub(crate) is_unconfirmed: Cell<bool>,
    /// The share of the budget that `pending` holds.
    pub(crate) entries: BudgetShare,
    /// The share of the budget that its requests and its handshake hold.
    pub(crate) requests: BudgetShare,
    /// Whether it has sent a whole request.
    has_requested: Cell<bool>,
    /// Whether the client has read so much of a response that a full socket took more.
    has_read: Cell<bool>,
    /// Whether nothing has tried to read from it yet.
    is_new: Cell<bool>,
    /// Whether it was accepted on a loopback address; unset until that is asked.
    is_to_loopback: OnceCell<bool>,
}

/// A response that the socket did not take at once, or that has taken a while.
#[derive(Debug, Default)]
struct SlowWrite {
    /// The bytes written to the socket at the last check, plus those that were acknowledged.
    seen: Cell<u64>,
    /// Wakes the task that waits until the socket takes more.
    writer: RefCell<Option<Waker>>,
}

impl Peer {
    pub(crate) fn new(
        socket: Socket,
        address: Option<SocketAddr>,
        listener: ListenerKind,
        is_for_health: bool,
    ) -> Self {
        Self {
            socket,
            origin: Cell::new(address),
            forwarded: OnceCell::new(),
            listener,
            is_for_health,
            session: OnceCell::new(),
            activity: Cell::new(Activity::Idle),
            since: Cell::new(Instant::now()),
            slow: OnceCell::new(),
            written: Cell::new(0),
            closed: Cell::new(None),
            is_given_up: Cell::new(false),
            is_reset: Cell::new(false),
            download: Cell::default(),
            pending: RefCell::default(),
            is_unconfirmed: Cell::new(false),
            entries: BudgetShare::default(),
            requests: BudgetShare::default(),
            has_requested: Cell::new(false),
            has_read: Cell::new(false),
            is_new: Cell::new(true),
            is_to_loopback: OnceCell::new(),
        }
    }

    /// Returns the address of the client of the current request; `None` over a Unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.forwarded().client.or(self.origin.get())
    }

    /// Returns the network of the current request's client, which limits count as one client.
    pub(crate) fn client_net(&self) -> ClientNet {
        ClientNet::of(self.address())
    }

    fn forwarded(&self) -> Forwarded {
        self.forwarded.get().map_or_else(Forwarded::default, |forwarded| forwarded.get())
    }

    /// Returns the address that opened the connection, directly or via a proxy.
    pub(crate) fn origin(&self) -> Option<SocketAddr> {
        self.origin.get()
    }

    /// Sets the address on whose behalf a proxy has opened the connection.
    pub(crate) fn set_origin(&self, address: SocketAddr) {
        self.origin.set(Some(address));
    }

    /// Reads the client of a request from the fields of a trusted proxy.
    ///
    /// # Errors
    ///
    /// If two fields name different clients.
    pub(crate) fn identify(
        &self,
        request: &Request<'_, '_>,
        proxies: &TrustedProxies,
    ) -> Result<(), Contradiction> {
        if proxies.is_empty() {
            return Ok(());
        }
        let present = self.forwarded.get_or_init(Box::default);
        present.take();
        if proxies.trusts(self.origin().map(|at| at.ip())) {
            present.set(forwarded(request, |address| proxies.has(address))?);
        }
        Ok(())
    }

    /// Returns whether the client used TLS, to this server or to a trusted proxy.
    pub(crate) fn is_secure(&self) -> bool {
        self.session().is_some() || self.forwarded().is_https == Some(true)
    }

    /// Returns whether it came over a Unix socket.
    pub(crate) fn is_unix(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// Sends and receives everything through TLS from now on.
    pub(crate) fn secure(&self, session: Session) {
        // There is one handshake for each connection.
        let _ = self.session.set(Arc::new(session));
    }

    /// Returns the TLS session over the socket.
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        self.session.get()
    }

    /// Returns whether every byte passes through user space on its way to the socket, to be
    /// encrypted.
    pub(crate) fn encrypts_here(&self) -> bool {
        self.session().is_some_and(|session| !session.is_in_kernel())
    }

    /// Returns the policy for moving bytes, given the configured one: if this process encrypts, no
    /// time is lost with trying other mechanisms.
    pub(crate) fn policy(&self, wanted: Policy) -> Policy {
        match wanted {
            Policy::Auto if self.encrypts_here() => Policy::Require(Mechanism::ReadWrite),
            _ => wanted,
        }
    }

    /// Returns the local port; 0 over a Unix socket.
    pub(crate) fn local_port(&self) -> u16 {
        self.local_address().map_or(0, |at| at.port())
    }

    fn local_address(&self) -> Option<SocketAddr> {
        getsockname(&self.socket).ok().and_then(|at| SocketAddr::try_from(at).ok())
    }

    /// Sets the activity from now on.
    pub(crate) fn set_activity(&self, activity: Activity, now: Instant) {
        self.activity.set(activity);
        self.since.set(now);
    }

    /// Records that a step of the handshake waits for its turn.
    pub(crate) fn begin_handshake_step(&self) {
        self.activity.set(Activity::HandshakeStep);
    }

    /// Records that a step of the handshake is done, which took this long, including its wait.
    pub(crate) fn end_handshake_step(&self, took: Duration) {
        self.set_activity(Activity::Handshaking, self.since.get() + took);
    }

    /// Records that the first bytes of a request have arrived. The first request of a connection is
    /// timed from the moment at which it could have been sent.
    pub(crate) fn begin_request(&self, now: Instant) {
        self.set_activity(
            Activity::Reading,
            if self.has_requested.get() { now } else { self.since.get() },
        );
    }

    /// Records that a request has been read to its end.
    pub(crate) fn note_request(&self) {
        self.has_requested.set(true);
    }

    /// Returns the time since which it has had no unanswered request, if it may be closed for
    /// another connection.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_idle = matches!(
            self.activity.get(),
            Activity::Handshaking | Activity::HandshakeStep | Activity::Idle | Activity::Reading
        );
        (is_idle && self.closed.get().is_none() && !self.is_for_health).then(|| self.since.get())
    }

    /// Closes it to make room for another connection, unless a client that has sent a request
    /// before has just sent another; returns whether it was closed. The kernel still sends what it
    /// has of the last response.
    pub(crate) fn evict(&self) -> bool {
        let is_used = self.activity.get() == Activity::Idle && self.has_requested.get();
        if is_used && self.has_input() {
            return false;
        }
        self.closed.set(Some(CloseReason::Evicted));
        self.terminate();
        true
    }

    fn slow(&self) -> &SlowWrite {
        self.slow.get_or_init(Box::default)
    }

    pub(crate) fn activity(&self) -> Activity {
        self.activity.get()
    }

    /// Returns whether it was accepted on a loopback address, which only this machine can reach.
    pub(crate) fn is_to_loopback(&self) -> bool {
        *self.is_to_loopback.get_or_init(|| {
            self.local_address().is_some_and(|at| at.ip().to_canonical().is_loopback())
        })
    }

    /// Returns whether it comes from this machine.
    pub(crate) fn is_from_here(&self) -> bool {
        self.address().is_none_or(|from| from.ip().to_canonical().is_loopback())
    }

    /// Returns whether the program at the other end, on this machine, runs as root or as the user
    /// of this server. The kernel answers without a wait.
    pub(crate) fn is_of_operator(&self) -> bool {
        let owner = socket::owner_of_peer(&self.socket);
        owner.is_some_and(|owner| owner == 0 || owner == geteuid().as_raw())
    }

    /// Appends the address in the form of the logs.
    pub(crate) fn write_name(&self, out: &mut String) {
        match self.address().map(|address| address.ip()) {
            Some(IpAddr::V4(address)) => push_ipv4(out, address),
            // Writing to a string does not fail.
            Some(IpAddr::V6(address)) => drop(write!(out, "{address}")),
            None => out.push_str("unix:"),
        }
    }

    /// Returns whether it was closed for lack of progress.
    pub(crate) fn is_expired(&self) -> bool {
        self.closed.get() == Some(CloseReason::Expired)
    }

    /// Returns the bytes written to the socket that the peer's kernel has acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        let in_flight = socket::unacknowledged(&self.socket).unwrap_or(0);
        // TLS records are a little longer than their content: the true number may be higher.
        let held = self.session().map_or(0, |session| session.held() as u64);
        self.written.get().saturating_sub(in_flight + held)
    }

    /// Returns whether everything that was written has arrived and was read, as far as that can be
    /// known: a client that closes with unread data resets the connection.
    pub(crate) fn has_delivered_all(&self) -> bool {
        !self.is_reset.get() && self.acknowledged() == self.written.get()
    }

    /// Returns whether the kernel is still sending written bytes to a client that may read them.
    pub(crate) fn is_sending_on(&self) -> bool {
        let is_ended = self.closed.get().is_some() || self.is_given_up.get();
        !is_ended && !self.is_reset.get() && !self.has_delivered_all()
    }

    /// Returns whether the connection was reset or lost; the next call on the socket returns why.
    pub(crate) fn has_failed(&self) -> bool {
        self.polls(PollFlags::empty(), PollFlags::ERR)
    }

    /// Returns whether polling the socket for these `events` and for errors reports any of the
    /// states `seen`.
    fn polls(&self, events: PollFlags, seen: PollFlags) -> bool {
        let mut state = [PollFd::new(&self.socket, events)];
        poll(&mut state, Some(&Timespec::default())).is_ok() && state[0].revents().intersects(seen)
    }

    /// Waits until the response is given up.
    pub(crate) async fn given_up(&self) {
        poll_fn(|context| {
            if self.is_given_up.get() {
                return Poll::Ready(());
            }
            self.slow().writer.replace(Some(context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Waits until there is something to [`read`](Self::read), or the end. The first call returns
    /// at once: on a busy server a request has often arrived by the time its connection is
    /// accepted, and must not wait until the runtime has polled all others again.
    pub(crate) fn readable(&self) -> impl Future<Output = io::Result<()>> + '_ {
        let mut ready = None;
        poll_fn(move |context| {
            if self.is_new.take() {
                return Poll::Ready(Ok(()));
            }
            let Some(session) = self.session() else { return self.socket.poll_readable(context) };
            if ready.is_none() && session.has_input() {
                return Poll::Ready(Ok(()));
            }
            // Boxed, so that connections without TLS need no memory for it.
            ready
                .get_or_insert_with(|| Box::pin(self.socket.ready(READABLE)))
                .as_mut()
                .poll(context)
        })
    }

    /// Reads bytes that have arrived; `None` if there are none yet, 0 at the end.
    ///
    /// Reports the end once this server has closed the connection, whatever the client has sent: a
    /// change must not be made if its response can no longer be sent.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if self.closed.get().is_some() {
            return Ok(Some(0));
        }
        if let Some(session) = self.session() {
            return self.read_tls(session, buffer);
        }
        let len = buffer.len();
        match recv(&self.socket, buffer, RecvFlags::empty()) {
            Ok((read, _)) => {
                if read < len {
                    // A short read shows that there is no more, without another call.
                    self.socket.clear_ready(Interest::READABLE);
                }
                Ok(Some(read))
            }
            Err(Errno::AGAIN) => {
                self.socket.clear_ready(Interest::READABLE);
                Ok(None)
            }
            Err(Errno::INTR) => Ok(None),
            Err(errno) => {
                self.is_reset.set(true);
                Err(errno.into())
            }
        }
    }

    /// Reads as [`read`](Self::read) does, through TLS.
    fn read_tls(&self, session: &Session, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match session.receive(self.socket.as_fd(), buffer) {
            // A short read may be one record of several.
            Ok(read) => Ok(Some(read)),
            Err(Errno::AGAIN) => {
                self.socket.clear_ready(READABLE);
                Ok(None)
            }
            Err(Errno::INTR) => Ok(None),
            // Requests announce their own length, so an end without the closing alert cannot
            // truncate them.
            Err(Errno::CONNABORTED) => Ok(Some(0)),
            Err(errno) => {
                self.is_reset.set(true);
                Err(errno.into())
            }
        }
    }

    /// Records that the client reads its responses: from now on the socket takes as much as its
    /// buffer holds, which needs fewer turns.
    pub(crate) fn note_read(&self) {
        if !self.has_read.replace(true) {
            // A Unix socket has no such limit.
            let _ = socket::limit_unsent(&self.socket, None);
        }
    }

    /// Waits until the socket takes more, after it refused to, or the response is given up.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.clear_ready(Interest::WRITABLE);
        let mut ready = pin!(self.socket.ready(Interest::WRITABLE));
        poll_fn(|context| {
            if self.is_given_up.get() {
                return Poll::Ready(Ok(()));
            }
            self.slow().writer.replace(Some(context.waker().clone()));
            ready.as_mut().poll(context)
        })
        .await
    }
}

/// Appends an address several times faster than formatting does; this runs for every request.
fn push_ipv4(out: &mut String, address: Ipv4Addr) {
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            out.push('.');
        }
        for unit in [100, 10, 1] {
            if octet >= unit || unit == 1 {
                out.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::push_ipv4;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_are_written_as_display_writes_them() {
        for octet in 0..=255 {
            let address = Ipv4Addr::new(octet, 0, 255 - octet, 10);
            let mut name = String::new();
            push_ipv4(&mut name, address);
            assert_eq!(name, address.to_string());
        }
    }
}
