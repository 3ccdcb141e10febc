//! Reads what a client sends for nothing: the body of a request that no handler has received, and what
//! comes after the last response.

use std::io;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use tokio::time::{sleep, timeout};

use crate::chunked::Chunked;
use crate::connection::peer::{Doing, Peer};
use crate::request::BodyLength;
use crate::server::worker::Worker;

/// Reads the body of a request, of which `buffer` may have come already, and keeps there what comes
/// after it; returns false if the body is too long for that.
pub(crate) async fn discard_body(
    worker: &Worker,
    peer: &Peer,
    buffer: &mut Vec<u8>,
    body: BodyLength,
    is_withheld: bool,
) -> bool {
    let mut unwanted = match body {
        BodyLength::None | BodyLength::Length(0) => return true,
        // The client does not send it without being asked to; or it does, which cannot be known.
        _ if is_withheld => return false,
        BodyLength::Length(len) if len > MAX_DISCARDED => return false,
        BodyLength::Length(len) => UnwantedBody::Bytes(len),
        BodyLength::Chunked => UnwantedBody::Chunks(Chunked::default(), MAX_DISCARDED),
    };
    peer.begins(Doing::Discarding, Instant::now());
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
        match read_more(worker, peer, buffer).await {
            // All of it has to come within the timeout: a byte now and then keeps no place.
            Ok(0) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Closes a connection so that the client gets the last response: a socket that is closed while
/// something unread is in it is reset, and takes with it what the client has not read.
pub(crate) async fn linger(worker: &Worker, peer: &Peer, max_discarded: u64) {
    peer.take_leave();
    if shutdown(&peer.socket, Shutdown::Write).is_err() {
        return;
    }
    // Until then its lack of progress counts as that of the response.
    peer.begins(Doing::Sending, Instant::now());
    let mut skipped = 0;
    while skipped < max_discarded && !peer.is_expired() {
        let mut bytes = Vec::new();
        match timeout(LINGER_INTERVAL, read_more(worker, peer, &mut bytes)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(read)) => skipped += read as u64,
            Err(_) if peer.acknowledged() == peer.written.get() => {
                // It has everything; what it still wants to say has had its time.
                sleep(LINGER_INTERVAL).await;
                return;
            }
            Err(_) => {}
        }
    }
}

/// Waits for more bytes and adds them.
async fn read_more(worker: &Worker, peer: &Peer, bytes: &mut Vec<u8>) -> io::Result<usize> {
    loop {
        peer.readable().await?;
        let mut scratch = worker.scratch.borrow_mut();
        if let Some(read) = peer.take(&mut scratch)? {
            bytes.extend_from_slice(&scratch[..read]);
            return Ok(read);
        }
    }
}

/// What is left of a request's body.
enum UnwantedBody {
    Bytes(u64),
    /// Chunks, and how many bytes they may have.
    Chunks(Chunked, u64),
}

impl UnwantedBody {
    /// Passes over what is there: how much of it, and whether that was all; `None` if it is no
    /// body, or has no end.
    fn skip(&mut self, bytes: &[u8]) -> Option<(usize, bool)> {
        match self {
            Self::Bytes(left) => {
                let consumed = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= consumed as u64;
                Some((consumed, *left == 0))
            }
            Self::Chunks(chunks, allowance) => {
                let step = chunks.skip(bytes).ok()?;
                *allowance = allowance.checked_sub(step.consumed as u64)?;
                Some((step.consumed, step.is_done))
            }
        }
    }
}

/// Bytes of a request's body that are read for the sake of keeping the connection.
pub(crate) const MAX_DISCARDED: u64 = 1 << 20;

/// Bytes of an upload that was refused, read so that a client that sends all of it before it listens
/// gets the response.
pub(crate) const MAX_REFUSED: u64 = 64 << 20;

/// How often it is checked whether a client that is to leave has everything.
const LINGER_INTERVAL: Duration = Duration::from_millis(100);
