//! The TLS handshake, before the first request of a connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::task::spawn_blocking;

use crate::connection::Link;
use crate::connection::peer::{Activity, Peer};
use crate::connection::socket::READABLE;
use crate::server::credentials::Credentials;
use underpass_transport::tls::{
    Acceptor, EncryptedBy, Handshake, HandshakeError, HandshakeProgress, Session,
};

/// Runs the handshake with a client; returns whether to serve the connection. A client that speaks
/// plain HTTP is served as well, because it gets a redirect or an error.
pub(crate) async fn run(link: Link<'_>, credentials: &Credentials) -> bool {
    let Link { worker, peer } = link;
    peer.set_activity(Activity::Handshaking, Instant::now());
    let metrics = worker.metrics();
    let outcome = run_handshake(link, credentials).await;
    peer.requests.release();
    match outcome {
        Ok(session) => {
            let facts = session.facts();
            let why = match facts.encrypted_by {
                EncryptedBy::Kernel => None,
                EncryptedBy::UserSpace(why) => Some(why.name()),
            };
            metrics.secured(why, facts.is_resumed);
            peer.secure(session);
            true
        }
        Err(HandshakeError::Challenge) => false,
        Err(error) => {
            metrics.handshake_failed(if peer.is_expired() { "timeout" } else { label(&error) });
            matches!(error, HandshakeError::PlainHttp)
        }
    }
}

/// Runs the steps of a handshake as their input arrives.
///
/// A step computes for some tenths of a millisecond, and thousands of clients may connect at once.
/// So only a few steps run before everything else on the worker gets its turn; the others wait in
/// line. A handshake that waits for its client is not in that line, so it cannot block others.
async fn run_handshake(
    Link { worker, peer }: Link<'_>,
    credentials: &Credentials,
) -> Result<Session, HandshakeError> {
    // No memory is held for a client that sends nothing.
    peer.socket.ready(READABLE).await.map_err(HandshakeError::Io)?;
    let mut stepping = HandshakeRunner::new(credentials.acceptor(), peer)?;
    loop {
        let began = Instant::now();
        peer.begin_handshake_step();
        let turn = worker.handshakes.acquire().await;
        let progress = worker.turns.run(stepping.step(peer)).await;
        peer.end_handshake_step(began.elapsed());
        let interest = match progress? {
            HandshakeProgress::Done(session) => return Ok(session),
            HandshakeProgress::Reads => READABLE,
            HandshakeProgress::Writes => Interest::WRITABLE,
        };
        if !worker.shared.requests.hold(&peer.requests, peer.address(), stepping.kept()) {
            // No response is worth the memory.
            return Err(HandshakeError::Io(io::ErrorKind::OutOfMemory.into()));
        }
        // This must precede any other wait, during which the runtime may learn of readiness.
        if !stepping.is_ready_now(interest) {
            peer.socket.clear_ready(interest);
        }
        drop(turn);
        peer.socket.ready(interest).await.map_err(HandshakeError::Io)?;
    }
}

/// Where the steps of a handshake run.
enum HandshakeRunner {
    /// On the worker.
    Here(Handshake),
    /// On a helper, with a duplicate of the socket's descriptor: the signature takes milliseconds.
    /// `None` while the helper runs.
    Elsewhere(Option<Handshake>, OwnedFd),
}

impl HandshakeRunner {
    fn new(acceptor: &Acceptor, peer: &Peer) -> Result<Self, HandshakeError> {
        let handshake = Handshake::accept(acceptor)?;
        if !acceptor.is_slow() {
            return Ok(Self::Here(handshake));
        }
        let socket = peer.socket.as_fd().try_clone_to_owned().map_err(HandshakeError::Io)?;
        Ok(Self::Elsewhere(Some(handshake), socket))
    }

    async fn step(&mut self, peer: &Peer) -> Result<HandshakeProgress, HandshakeError> {
        let (handshake, socket) = match self {
            Self::Here(handshake) => return handshake.advance(peer.socket.as_fd()),
            Self::Elsewhere(handshake, socket) => (handshake, socket),
        };
        let lost = || HandshakeError::Io(io::ErrorKind::Other.into());
        let mut stepping = handshake.take().ok_or_else(lost)?;
        let socket = socket.try_clone().map_err(HandshakeError::Io)?;
        let step = move || (stepping.advance(socket.as_fd()), stepping);
        let (progress, stepped) = spawn_blocking(step).await.map_err(|_| lost())?;
        *handshake = Some(stepped);
        progress
    }

    /// Returns the number of bytes that were received and not yet processed.
    fn kept(&self) -> usize {
        match self {
            Self::Here(handshake) => handshake.kept(),
            Self::Elsewhere(handshake, _) => handshake.as_ref().map_or(0, Handshake::kept),
        }
    }

    /// Returns whether the socket has become ready since a helper found that it was not: the
    /// runtime may have learned so before it was asked to wait.
    fn is_ready_now(&self, interest: Interest) -> bool {
        let Self::Elsewhere(_, socket) = self else { return false };
        let flags = if interest == Interest::WRITABLE { PollFlags::OUT } else { PollFlags::IN };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(socket, flags)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// Returns the label of an error in the metrics.
fn label(error: &HandshakeError) -> &'static str {
    match error {
        HandshakeError::PlainHttp => "plain_http",
        HandshakeError::Closed => "closed",
        HandshakeError::Io(_) => "io",
        _ => "tls",
    }
}
