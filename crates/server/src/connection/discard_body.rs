//! Reads and discards unwanted data: the body of a request that no handler has received, and
//! anything after the last response.

use std::io;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::time::{sleep, timeout};

use crate::connection::Link;
use crate::connection::peer::{Activity, Peer};
use crate::connection::turn::poll_interval;
use crate::files::resume;
use crate::observe::access_entry;
use underpass_protocol::chunked::Chunked;
use underpass_protocol::request::BodyLength;

/// Discards the body of a request, part of which `buffer` may hold already, and keeps any bytes
/// after it there; returns false if the connection cannot be kept.
pub(crate) async fn discard_body(
    link: Link<'_>,
    buffer: &mut Vec<u8>,
    body: BodyLength,
    is_withheld: bool,
) -> bool {
    let mut unwanted = match body {
        BodyLength::None | BodyLength::Length(0) => return true,
        // The client was not invited to send it, and may or may not send it anyway.
        _ if is_withheld => return false,
        BodyLength::Length(len) if len > MAX_DISCARDED => return false,
        BodyLength::Length(len) => UnwantedBody::Bytes(len),
        BodyLength::Chunked => UnwantedBody::Chunks(Chunked::default(), MAX_DISCARDED),
    };
    link.peer.set_activity(Activity::Discarding, Instant::now());
    loop {
        match unwanted.skip(buffer) {
            Some((consumed, is_all)) => {
                buffer.drain(..consumed);
                if is_all {
                    return true;
                }
            }
            None => return false,
        }
        match read_more(link, buffer).await {
            // The timeout covers the whole body, so trickling bytes does not hold a connection.
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Closes a connection so that the client gets the last response: closing a socket with unread data
/// resets it, which also discards what the client has not read.
pub(crate) async fn linger(link: Link<'_>, max_discarded: u64) {
    let peer = link.peer;
    // Until it is closed, the connection times out as if it were sending.
    peer.set_activity(Activity::Sending, Instant::now());
    if peer.session().is_some() {
        // A client that knows the length of the response may close before it reads the alert. Its
        // kernel then resets the connection, after which it is unknown what had arrived. Nothing is
        // read until then: a session that has read the client's end sends no alert.
        arrival(peer, || !peer.has_failed()).await;
        if peer.has_delivered_all() {
            let _ = access_entry::write_arrived(link, false);
            resume::end(link, true);
        }
    }
    peer.send_close_notify();
    if shutdown(&peer.socket, Shutdown::Write).is_err() {
        return;
    }
    if has_ended(link, max_discarded).await {
        // The client sends nothing more, but may still be reading.
        arrival(peer, || peer.read(&mut [0]).is_ok()).await;
    }
}

/// Discards what a client still sends; returns true once it has shut down its side, and false if it
/// has the whole response or was given enough time.
async fn has_ended(link: Link<'_>, max_discarded: u64) -> bool {
    let peer = link.peer;
    let mut skipped = 0;
    // A client that is still sending may pause, and has not read the response yet. Thousands may
    // trickle bytes, so each is only checked when its pause is over.
    let mut pause = LINGER_INTERVAL;
    while skipped < max_discarded && !peer.is_expired() {
        let mut bytes = Vec::new();
        match timeout(pause, read_more(link, &mut bytes)).await {
            Ok(Ok(0)) => return true,
            Ok(Err(_)) => return false,
            Ok(Ok(read)) => {
                skipped += read as u64;
                pause = MAX_PAUSE;
            }
            Err(_) if peer.acknowledged() == peer.written.get() => {
                // The client has everything, and its time for sending more is over.
                sleep(LINGER_INTERVAL).await;
                return false;
            }
            Err(_) => pause = LINGER_INTERVAL,
        }
    }
    false
}

/// Waits until the client has all that was sent, the response is given up, or `is_open` reports a
/// reset. No event announces an acknowledgement.
async fn arrival(peer: &Peer, is_open: impl Fn() -> bool) {
    let since = Instant::now();
    while peer.is_sending_on() && is_open() {
        let _ = timeout(poll_interval(since), peer.given_up()).await;
    }
}

/// Waits for more bytes and appends them.
async fn read_more(link: Link<'_>, bytes: &mut Vec<u8>) -> io::Result<usize> {
    let Link { worker, peer } = link;
    loop {
        peer.readable().await?;
        let mut scratch = worker.scratch.borrow_mut();
        if let Some(read) = peer.read(&mut scratch)? {
            bytes.extend_from_slice(&scratch[..read]);
            return Ok(read);
        }
    }
}

/// The rest of an unwanted body.
enum UnwantedBody {
    Bytes(u64),
    /// Chunks, and the maximum number of their bytes.
    Chunks(Chunked, u64),
}

impl UnwantedBody {
    /// Skips the part of the body in `bytes`; returns its length, and whether the body ends with
    /// it; `None` if the body is malformed or too long.
    fn skip(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        match self {
            Self::Bytes(missing) => {
                let consumed = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                *missing -= consumed as u64;
                Some((consumed, *missing == 0))
            }
            Self::Chunks(chunks, allowance) => {
                let step = chunks.skip(bytes).ok()?;
                *allowance = allowance.checked_sub(step.consumed as u64)?;
                Some((step.consumed, step.is_done))
            }
        }
    }
}

/// The maximum number of bytes of a body that are discarded to keep the connection.
pub(crate) const MAX_DISCARDED: u64 = 1 << 20;

/// The maximum number of bytes that are discarded after a refusal, so that a client that sends a
/// whole body before it reads gets the response.
pub(crate) const MAX_REFUSED: u64 = 64 << 20;

/// The interval at which a lingering connection is checked for unread data at the client.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);

/// The time without a byte after which a client that was still sending is considered done, like
/// `lingering_timeout` of nginx.
const MAX_PAUSE: Duration = Duration::from_secs(5);
