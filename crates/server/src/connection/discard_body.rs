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

/// Discards the body of a request, of which `buffer` may have a part already, and keeps there any
/// bytes after it; returns false if the body is too long for that.
pub(crate) async fn discard_body(
    link: Link<'_>,
    buffer: &mut Vec<u8>,
    body: BodyLength,
    is_withheld: bool,
) -> bool {
    let mut unwanted = match body {
        BodyLength::None | BodyLength::Length(0) => return true,
        // The client was not invited to send it, and whether it will anyway cannot be known.
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
            // All of it has to come within the timeout: a byte now and then does not hold a place.
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Closes a connection so that the client gets the last response: a socket that is closed with
/// unread data is reset, which also discards what the client has not read.
pub(crate) async fn linger(link: Link<'_>, max_discarded: u64) {
    let peer = link.peer;
    // Until then a lack of progress counts as that of the response.
    peer.set_activity(Activity::Sending, Instant::now());
    if peer.session().is_some() {
        // A client that knows the length of the response may close before it reads the alert. Its
        // system then resets the connection, after which it is unknown what had arrived. Nothing is
        // read until then: a session that has read the end of the other side sends no alert.
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
        // It has nothing more to say, and may still be reading.
        arrival(peer, || peer.read(&mut [0]).is_ok()).await;
    }
}

/// Discards what a client still sends; returns true once it has ended its side, and false if it has
/// the whole response or is not to be waited for any longer.
async fn has_ended(link: Link<'_>, max_discarded: u64) -> bool {
    let peer = link.peer;
    let mut skipped = 0;
    // A client that is sending may pause, and has not read the response yet. Thousands may send a
    // byte now and then, so none of them is looked at before its pause is over.
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

/// Waits until the client has all that was sent, the response is given up, or `is_open` finds that
/// the connection was reset. No event announces an acknowledgement.
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

/// The maximum number of bytes that are discarded after a refusal, so that a client that sends all of
/// a body before it reads gets the response.
pub(crate) const MAX_REFUSED: u64 = 64 << 20;

/// The interval at which a lingering connection is checked for unread data at the client.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);

/// The time without a byte after which a client that was still sending is believed to have ended,
/// as `lingering_timeout` of nginx.
const MAX_PAUSE: Duration = Duration::from_secs(5);
